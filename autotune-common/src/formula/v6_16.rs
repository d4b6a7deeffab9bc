//! v6.16: `tcp_rcvbuf_grow(sk)` of kernels 6.16 and 6.17 (commits 65c5287892e9, 63ad7dfedfae).
//!
//! ```text
//! rcvwin = newval << 1              (int; newval = copied - inq is already in rcvq_space.space)
//! if the out-of-order queue is not empty: rcvwin += ooo
//! ```
//!
//! There is no ramp term: the buffer follows twice what was copied.
//!
//! Rows of `testdata/traces`: the first three of `linux-6.16.3.trace.txt`, the last of
//! `patch05-ms-timestamps.csv`.
//!
//! | copied | inq | ooo | scaling_ratio | rcvwin | rcvbuf before | after |
//! |---|---|---|---|---|---|---|
//! | 86016 | 5120 | 0 | 251 | 161792 | 131072 | 165014 |
//! | 110592 | 0 | 0 | 252 | 221184 | 165014 | 224694 |
//! | 155648 | 37782 | 0 | 252 | 235732 | 224694 | 239473 |
//! | 424960 | 20480 | 0 | 230 | 808960 | 832022 | 900407 |

pub(super) const fn rcvwin(newval: u32, ooo: u32) -> u32 {
    newval.wrapping_shl(1).wrapping_add(ooo)
}

#[cfg(test)]
mod tests {
    use crate::formula::tests::RECEIVER;
    use crate::{Generation, GrowError, GrowthInput};

    #[test]
    fn rows_of_the_table() {
        for (copied, inq, scaling_ratio, rcvwin, before, after) in [
            (86_016, 5_120, 251, 161_792, 131_072, 165_014),
            (110_592, 0, 252, 221_184, 165_014, 224_694),
            (155_648, 37_782, 252, 235_732, 224_694, 239_473),
            (424_960, 20_480, 230, 808_960, 832_022, 900_407),
        ] {
            let input = GrowthInput { copied, inq, scaling_ratio, rcvbuf: before, ..RECEIVER };
            let expected = Generation::V6_16.grow(&input).unwrap();
            assert_eq!((expected.rcvwin, expected.rcvbuf), (rcvwin, after), "copied {copied}");
        }
    }

    #[test]
    fn the_old_space_does_not_count() {
        let input = GrowthInput { copied: 110_592, ..RECEIVER };
        let grown = Generation::V6_16.grow(&input);
        assert!(grown.is_ok());
        assert_eq!(Generation::V6_16.grow(&GrowthInput { space: 80_896, ..input }), grown);
    }

    #[test]
    fn the_out_of_order_queue_is_added() {
        let input = GrowthInput { copied: 110_592, ooo: 65_536, ..RECEIVER };
        assert_eq!(Generation::V6_16.grow(&input).unwrap().rcvwin, 2 * 110_592 + 65_536);
    }

    #[test]
    fn a_segment_out_of_order_asks_for_twice_space_and_the_queue() {
        // (2 * 110592 + 65536) * 256 / 252 = 291271 and a fraction, whatever was copied since.
        let input = GrowthInput { space: 110_592, ooo: 65_536, scaling_ratio: 252, ..RECEIVER };
        let input = GrowthInput { copied: 7, inq: 9, ..input };
        assert_eq!(Generation::V6_16.grow_ooo(&input), Ok(Some(291_271)));
        let low = GrowthInput { rmem_max: 200_000, ..input };
        assert_eq!(Generation::V6_16.grow_ooo(&low), Ok(Some(200_000)));
        let odd = GrowthInput { scaling_ratio: 0, ..input };
        assert_eq!(Generation::V6_16.grow_ooo(&odd), Err(GrowError::ScalingRatioZero));
    }
}
