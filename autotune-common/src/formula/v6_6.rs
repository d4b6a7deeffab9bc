//! v6.6: `tcp_rcv_space_adjust` of kernels 6.6 to 6.15 (commit dfa2f0483360; the growth term is
//! c3916ad9320e of 4.16).
//!
//! ```text
//! u64 rcvwin = ((u64)copied << 1) + 16 * advmss
//! u64 grow   = rcvwin * (copied - space) / space
//! rcvwin    += grow << 1
//! ```
//!
//! `copied` keeps what is still in the receive queue, and the out-of-order queue does not count. The
//! 64-bit window is truncated to `int` when it is converted to space.
//!
//! | copied | space | advmss | scaling_ratio | rcvwin | rcvbuf |
//! |---|---|---|---|---|---|
//! | 110592 | 41080 | 4096 | 230 | 1257042 | 1399142 |

use super::{GrowError, GrowthInput, as_u32, div_by_space, trunc32};

pub(super) const fn rcvwin(copied: u32, input: &GrowthInput) -> Result<u32, GrowError> {
    let rcvwin = ((copied as u64) << 1) + 16 * input.advmss as u64;
    let ramp = rcvwin.wrapping_mul(copied.wrapping_sub(as_u32(input.space)) as u64);
    match div_by_space(ramp, input.space) {
        Ok(grow) => Ok(trunc32(rcvwin.wrapping_add(grow << 1))),
        Err(error) => Err(error),
    }
}
