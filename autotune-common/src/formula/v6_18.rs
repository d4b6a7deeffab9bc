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
//! | copied | inq | oldval | ooo | scaling_ratio | rcvwin | rcvbuf |
//! |---|---|---|---|---|---|---|
//! | 131072 | 61440 | 65483 | 0 | 251 | 156910 | 160035 |

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
