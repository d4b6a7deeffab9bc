//! Whatever claims to be the kernel's BTF, the daemon survives reading it.

#![no_main]

use autotune::kernel::btf::Btf;
use autotune::kernel::{generation, layout};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(btf) = Btf::parse(bytes) else { return };
    // The members of the struct in the corpus's seeds that no socket has.
    for path in ["first", "many[1].x", "deep", "bits", "grid[1][1]"] {
        let _ = btf.member("s", path);
    }
    let _ = layout::resolve(&btf);
    let _ = generation::detect(&btf);
});
