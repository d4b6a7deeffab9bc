//! v6.12.35: v6.6 with the receive queue taken off `copied`, in stable kernels 6.12.35 and 6.15.4 on
//! (backport of ea33537d8292).
//!
//! ```text
//! copied    -= inq                                       (int, as space is)
//! u64 rcvwin = ((u64)copied << 1) + 16 * advmss
//! u64 grow   = rcvwin * (copied - space) / space
//! rcvwin    += grow << 1
//! ```
//!
//! `copied` and the difference are `int` here, and their sign is extended to 64 bits.
//!
//! These kernels have no tracepoint at the growth, so no trace shows it. The rows are computed by hand
//! from events of v6.6 in `testdata/traces` (the first two `patch01-ms-timestamps.csv`, the last
//! `patch01-us-timestamps.csv`), with `advmss` 4096 and `scaling_ratio` 230:
//!
//! | copied | inq | space | rcvwin | rcvbuf before | after | |
//! |---|---|---|---|---|---|---|
//! | 110592 | 0 | 41080 | 1257044 | 131072 | 1399144 | as v6.6 |
//! | 2658304 | 49152 | 1040384 | 21218570 | 7006410 | 23617190 | v6.6: 24622616 |
//! | 1146880 | 65536 | 741376 | 4271788 | 4642390 | 4754685 | v6.6: 5498637 |

use super::{GrowError, GrowthInput, as_int, as_u64, v6_6};

pub(super) const fn rcvwin(newval: u32, input: &GrowthInput) -> Result<u32, GrowError> {
    let copied = as_int(newval);
    if copied < input.space {
        return Err(GrowError::NotAboveSpace);
    }
    v6_6::ramped(as_u64(copied), as_u64(copied.wrapping_sub(input.space)), input)
}

#[cfg(test)]
mod tests {
    use crate::formula::tests::RECEIVER;
    use crate::{Generation, GrowError, GrowthInput};

    #[test]
    fn rows_of_the_table() {
        for (copied, inq, space, rcvwin, before, after) in [
            (110_592, 0, 41_080, 1_257_044, 131_072, 1_399_144),
            (2_658_304, 49_152, 1_040_384, 21_218_570, 7_006_410, 23_617_190),
            (1_146_880, 65_536, 741_376, 4_271_788, 4_642_390, 4_754_685),
        ] {
            let input = GrowthInput { copied, inq, space, rcvbuf: before, ..RECEIVER };
            let expected = Generation::V6_12_35.grow(&input).unwrap();
            assert_eq!((expected.rcvwin, expected.rcvbuf), (rcvwin, after), "copied {copied}");
        }
    }

    #[test]
    fn it_is_v6_6_where_nothing_is_queued() {
        let input = GrowthInput { copied: 333_824, space: 110_592, ..RECEIVER };
        assert_eq!(Generation::V6_12_35.grow(&input), Generation::V6_6.grow(&input));
    }

    #[test]
    fn less_than_space_without_the_queue_is_refused() {
        // patch01-us-timestamps.csv: v6.6 compares 1310720, and 573440 are below space.
        let input = GrowthInput { copied: 1_310_720, inq: 737_280, space: 1_146_880, ..RECEIVER };
        assert_eq!(Generation::V6_12_35.grow(&input), Err(GrowError::NotAboveSpace));
        assert!(Generation::V6_6.grow(&input).is_ok());
    }

    #[test]
    fn a_segment_out_of_order_grows_nothing() {
        let input = GrowthInput { space: 41_080, ooo: 65_536, ..RECEIVER };
        assert_eq!(Generation::V6_12_35.grow_ooo(&input), Ok(None));
    }
}
