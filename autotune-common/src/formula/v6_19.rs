//! v6.19: `tcp_rcvbuf_grow(sk, newval)` of kernels 6.19 on, seen up to 7.3 (commit ecfea98b7d0d).
//!
//! ```text
//! rcvwin = newval << 1                                   (u32)
//! if rtt_us < tcp_rcvbuf_low_rtt:                        (u32)
//!     grow = (u64)rcvwin * rtt_us / tcp_rcvbuf_low_rtt
//! else:
//!     grow = ((u64)rcvwin << 1) * (u32)(newval - oldval) / oldval
//! rcvwin += grow                                         (u32)
//! if the out-of-order queue is not empty: rcvwin += ooo
//! ```
//!
//! Below the threshold the ramp term does not depend on `newval - oldval`, so that growth for an
//! out-of-order segment has one too.
//!
//! Computed by hand from rows 1, 3 and 4 of `testdata/traces/linux-6.18.15.trace.txt`, with
//! `tcp_rcvbuf_low_rtt` 1000 and `ooo` 0:
//!
//! | copied | inq | oldval | rtt_us | scaling_ratio | rcvwin | rcvbuf before | after | |
//! |---|---|---|---|---|---|---|---|---|
//! | 131072 | 61440 | 65483 | 1484 | 251 | 156911 | 131072 | 160036 | v6.18: 160035 |
//! | 114635 | 53 | 92160 | 578 | 252 | 361620 | 309631 | 367360 | v6.18: 346079 |
//! | 126976 | 0 | 114582 | 811 | 252 | 459907 | 346079 | 467207 | v6.18: unchanged |

use super::{GrowError, GrowthInput, as_int, as_u32, div_by_space, trunc32};

pub(super) const fn rcvwin(newval: u32, input: &GrowthInput) -> Result<u32, GrowError> {
    if as_int(newval) < input.space {
        return Err(GrowError::NotAboveSpace);
    }
    let rcvwin = newval.wrapping_shl(1);
    let low_rtt = as_u32(input.low_rtt);
    let grow = match low_rtt as u64 {
        threshold if input.rtt_us < low_rtt => rcvwin as u64 * input.rtt_us as u64 / threshold,
        _ => {
            let ramp = ((rcvwin as u64) << 1)
                .wrapping_mul(newval.wrapping_sub(as_u32(input.space)) as u64);
            match div_by_space(ramp, input.space) {
                Ok(grow) => grow,
                Err(error) => return Err(error),
            }
        }
    };
    Ok(rcvwin.wrapping_add(trunc32(grow)).wrapping_add(input.ooo))
}

#[cfg(test)]
mod tests {
    use crate::formula::tests::RECEIVER;
    use crate::{Generation, GrowthInput};

    #[test]
    fn rows_of_the_table() {
        for (copied, inq, space, rtt_us, scaling_ratio, rcvwin, before, after) in [
            (131_072, 61_440, 65_483, 1484, 251, 156_911, 131_072, 160_036),
            (114_635, 53, 92_160, 578, 252, 361_620, 309_631, 367_360),
            (126_976, 0, 114_582, 811, 252, 459_907, 346_079, 467_207),
        ] {
            let input = GrowthInput { copied, inq, space, rtt_us, scaling_ratio, ..RECEIVER };
            let input = GrowthInput { rcvbuf: before, low_rtt: 1000, ..input };
            let expected = Generation::V6_19.grow(&input).unwrap();
            assert_eq!((expected.rcvwin, expected.rcvbuf), (rcvwin, after), "copied {copied}");
        }
    }

    #[test]
    fn the_ramp_is_doubled_before_the_division_and_in_v6_18_after_it() {
        let input = GrowthInput { copied: 131_072, inq: 61_440, space: 65_483, ..RECEIVER };
        assert_eq!(Generation::V6_18.grow(&input).unwrap().rcvwin, 156_910);
        assert_eq!(Generation::V6_19.grow(&input).unwrap().rcvwin, 156_911);
    }

    #[test]
    fn a_round_trip_at_the_threshold_is_not_low() {
        let input = GrowthInput { copied: 126_976, space: 114_582, ..RECEIVER };
        let input = GrowthInput { low_rtt: 1000, ..input };
        let rcvwin =
            |rtt_us| Generation::V6_19.grow(&GrowthInput { rtt_us, ..input }).unwrap().rcvwin;
        assert_eq!(rcvwin(999), 253_952 + 253_698);
        assert_eq!(rcvwin(1000), 253_952 + 54_938);
    }

    #[test]
    fn a_threshold_of_zero_turns_the_branch_off() {
        let input = GrowthInput { copied: 126_976, space: 114_582, rtt_us: 0, ..RECEIVER };
        assert_eq!(Generation::V6_19.grow(&input).unwrap().rcvwin, 253_952 + 54_938);
    }

    #[test]
    fn a_segment_out_of_order_has_a_ramp_where_the_round_trip_is_low() {
        // (2 * 110592 + 65536) * 256 / 252, and with 221184 * 348 / 1000 = 76972 more.
        let input = GrowthInput { space: 110_592, ooo: 65_536, scaling_ratio: 252, ..RECEIVER };
        let input = GrowthInput { copied: 7, inq: 9, low_rtt: 1000, ..input };
        assert_eq!(Generation::V6_19.grow_ooo(&input), Ok(Some(291_271)));
        let near = GrowthInput { rtt_us: 348, ..input };
        assert_eq!(Generation::V6_19.grow_ooo(&near), Ok(Some(369_464)));
        let low = GrowthInput { rmem_max: 300_000, ..near };
        assert_eq!(Generation::V6_19.grow_ooo(&low), Ok(Some(300_000)));
    }
}
