//! v6.19: `tcp_rcvbuf_grow(sk, newval)` of kernels 6.19 on, seen up to 7.3 (commit ecfea98b7d0d).
//!
//! ```text
//! rcvwin = newval << 1                                   (u32)
//! if rtt_us < tcp_rcvbuf_low_rtt:
//!     grow = (u64)rcvwin * rtt_us / tcp_rcvbuf_low_rtt
//! else:
//!     grow = ((u64)rcvwin << 1) * (u32)(newval - oldval) / oldval
//! rcvwin += grow                                         (u32)
//! if the out-of-order queue is not empty: rcvwin += ooo
//! ```
//!
//! Below the threshold the ramp term does not depend on `newval - oldval`, so that growth for an
//! out-of-order segment has one too.

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
