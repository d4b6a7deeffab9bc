//! v6.6: `tcp_rcv_space_adjust` of kernels 6.6 to 6.15 (commit dfa2f0483360; the growth term is
//! c3916ad9320e of 4.16).
//!
//! ```text
//! u64 rcvwin = ((u64)copied << 1) + 16 * advmss
//! u64 grow   = rcvwin * (copied - space) / space         (copied and space are u32)
//! rcvwin    += grow << 1
//! ```
//!
//! `copied` keeps what is still in the receive queue, and the out-of-order queue does not count. The
//! 64-bit window is truncated to `int` when it is converted to space.
//!
//! Rows of `testdata/traces/patch01-ms-timestamps.csv`, with `advmss` 4096 and `scaling_ratio` 230:
//!
//! | copied | space | rcvwin | rcvbuf before | after | |
//! |---|---|---|---|---|---|
//! | 110592 | 41080 | 1257044 | 131072 | 1399144 | |
//! | 333824 | 110592 | 3693074 | 1399144 | 4110551 | |
//! | 1040384 | 798720 | 3445092 | 7006410 | 7006410 | 3834537 would do |
//! | 12013568 | 10633216 | 30347856 | 25136755 | 33554432 | limited from 33778483 |

use super::{GrowError, GrowthInput, as_u32, div_by_space, trunc32};

pub(super) const fn rcvwin(copied: u32, input: &GrowthInput) -> Result<u32, GrowError> {
    let above = copied.wrapping_sub(as_u32(input.space));
    ramped(copied as u64, above as u64, input)
}

/// The window for `copied` bytes, `above` of them more than last time, both as the kernel widens them.
pub(super) const fn ramped(copied: u64, above: u64, input: &GrowthInput) -> Result<u32, GrowError> {
    let rcvwin = (copied << 1).wrapping_add(16 * input.advmss as u64);
    match div_by_space(rcvwin.wrapping_mul(above), input.space) {
        Ok(grow) => Ok(trunc32(rcvwin.wrapping_add(grow << 1))),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use crate::formula::tests::RECEIVER;
    use crate::{Generation, GrowError, GrowthInput, Outcome};

    #[test]
    fn rows_of_the_table() {
        for (copied, space, rcvwin, before, after, outcome) in [
            (110_592, 41_080, 1_257_044, 131_072, 1_399_144, Outcome::Grow),
            (333_824, 110_592, 3_693_074, 1_399_144, 4_110_551, Outcome::Grow),
            (1_040_384, 798_720, 3_445_092, 7_006_410, 7_006_410, Outcome::Enough),
            (12_013_568, 10_633_216, 30_347_856, 25_136_755, 33_554_432, Outcome::Capped),
        ] {
            let input = GrowthInput { copied, space, rcvbuf: before, ..RECEIVER };
            let expected = Generation::V6_6.grow(&input).unwrap();
            assert_eq!(
                (expected.rcvwin, expected.rcvbuf, expected.outcome),
                (rcvwin, after, outcome),
                "copied {copied}"
            );
        }
    }

    #[test]
    fn what_is_queued_does_not_count() {
        let input = GrowthInput { copied: 110_592, space: 41_080, ..RECEIVER };
        let queued = GrowthInput { inq: 49_152, ooo: 65_536, ..input };
        assert_eq!(Generation::V6_6.grow(&queued), Generation::V6_6.grow(&input));
    }

    #[test]
    fn a_window_of_2_gib_is_capped() {
        // 2 * 2^30 = 2^31 is negative as int, and huge as u64 when it is compared with the limit.
        let input = GrowthInput { copied: 1 << 30, space: 1 << 30, advmss: 0, ..RECEIVER };
        let input = GrowthInput { scaling_ratio: 255, ..input };
        let expected = Generation::V6_6.grow(&input).unwrap();
        assert_eq!((expected.rcvwin, expected.outcome), (1 << 31, Outcome::Capped));
    }

    #[test]
    fn a_segment_out_of_order_grows_nothing() {
        let input = GrowthInput { space: 41_080, ooo: 65_536, ..RECEIVER };
        assert_eq!(Generation::V6_6.grow_ooo(&input), Ok(None));
    }

    #[test]
    fn a_space_of_zero_is_refused() {
        let input = GrowthInput { copied: 1, ..RECEIVER };
        assert_eq!(Generation::V6_6.grow(&input), Err(GrowError::SpaceZero));
    }
}
