//! Whatever a ring-buffer record holds, decoding it gives a sample that writes the same bytes again,
//! or an error.

#![no_main]

use autotune_common::Sample;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|record: &[u8]| {
    if let Ok(sample) = Sample::decode(record) {
        assert_eq!(sample.to_ne_bytes().as_slice(), record);
        let _ = sample.kind();
    }
});
