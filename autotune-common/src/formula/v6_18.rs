//! v6.18: `tcp_rcvbuf_grow(sk, newval)` of kernel 6.18 (commit aa251c84636c).
//!
//! ```text
//! rcvwin = newval << 1                                   (u32)
//! grow   = (u64)rcvwin * (u32)(newval - oldval) / oldval
//! rcvwin += grow << 1                                    (u32)
//! if the out-of-order queue is not empty: rcvwin += ooo
//! ```
//!
//! The division comes before the doubling: v6.19 has it the other way round, and differs by a byte of
//! `rcvwin` now and then.
//!
//! The first five rows of `testdata/traces/linux-6.18.15.trace.txt`, with `ooo` 0:
//!
//! | copied | inq | oldval | scaling_ratio | rcvwin | rcvbuf before | after | |
//! |---|---|---|---|---|---|---|---|
//! | 131072 | 61440 | 65483 | 251 | 156910 | 131072 | 160035 | |
//! | 153600 | 61440 | 69632 | 251 | 303584 | 160035 | 309631 | |
//! | 114635 | 53 | 92160 | 252 | 340672 | 309631 | 346079 | |
//! | 126976 | 0 | 114582 | 252 | 308890 | 346079 | 346079 | 313793 would do |
//! | 229376 | 12076 | 126976 | 252 | 1052902 | 346079 | 1069614 | |

use super::{GrowError, GrowthInput, as_int, as_u32, div_by_space, trunc32};

pub(super) const fn rcvwin(newval: u32, input: &GrowthInput) -> Result<u32, GrowError> {
    if as_int(newval) < input.space {
        return Err(GrowError::NotAboveSpace);
    }
    let rcvwin = newval.wrapping_shl(1);
    let ramp = rcvwin as u64 * newval.wrapping_sub(as_u32(input.space)) as u64;
    match div_by_space(ramp, input.space) {
        Ok(grow) => Ok(rcvwin.wrapping_add(trunc32(grow << 1)).wrapping_add(input.ooo)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use crate::formula::tests::RECEIVER;
    use crate::{Generation, GrowError, GrowthInput, Outcome};

    #[test]
    fn rows_of_the_table() {
        for (copied, inq, space, scaling_ratio, rcvwin, before, after) in [
            (131_072, 61_440, 65_483, 251, 156_910, 131_072, 160_035),
            (153_600, 61_440, 69_632, 251, 303_584, 160_035, 309_631),
            (114_635, 53, 92_160, 252, 340_672, 309_631, 346_079),
            (126_976, 0, 114_582, 252, 308_890, 346_079, 346_079),
            (229_376, 12_076, 126_976, 252, 1_052_902, 346_079, 1_069_614),
        ] {
            let input =
                GrowthInput { copied, inq, space, scaling_ratio, rcvbuf: before, ..RECEIVER };
            let expected = Generation::V6_18.grow(&input).unwrap();
            assert_eq!((expected.rcvwin, expected.rcvbuf), (rcvwin, after), "copied {copied}");
        }
    }

    #[test]
    fn the_out_of_order_queue_is_added_without_a_ramp() {
        let input = GrowthInput { copied: 114_582, space: 92_160, ..RECEIVER };
        let rcvwin = |input: &GrowthInput| Generation::V6_18.grow(input).unwrap().rcvwin;
        assert_eq!(rcvwin(&GrowthInput { ooo: 65_536, ..input }), rcvwin(&input) + 65_536);
    }

    #[test]
    fn the_fifth_growth_is_capped_where_rmem_max_is_lower() {
        let input = GrowthInput { copied: 229_376, inq: 12_076, space: 126_976, ..RECEIVER };
        let input = GrowthInput { scaling_ratio: 252, rmem_max: 1_069_613, ..input };
        let expected = Generation::V6_18.grow(&input).unwrap();
        assert_eq!((expected.outcome, expected.rcvbuf), (Outcome::Capped, 1_069_613));
        let input = GrowthInput { rmem_max: 1_069_614, ..input };
        assert_eq!(Generation::V6_18.grow(&input).unwrap().outcome, Outcome::Grow);
    }

    #[test]
    fn a_segment_out_of_order_asks_for_twice_space_and_the_queue() {
        // (2 * 110592 + 65536) * 256 / 252 = 291271 and a fraction: newval == oldval leaves no ramp.
        let input = GrowthInput { space: 110_592, ooo: 65_536, scaling_ratio: 252, ..RECEIVER };
        let input = GrowthInput { copied: 7, inq: 9, rtt_us: 348, low_rtt: 1000, ..input };
        assert_eq!(Generation::V6_18.grow_ooo(&input), Ok(Some(291_271)));
        let low = GrowthInput { rmem_max: 200_000, ..input };
        assert_eq!(Generation::V6_18.grow_ooo(&low), Ok(Some(200_000)));
        let new = GrowthInput { space: 0, ..input };
        assert_eq!(Generation::V6_18.grow_ooo(&new), Err(GrowError::SpaceZero));
    }
}
