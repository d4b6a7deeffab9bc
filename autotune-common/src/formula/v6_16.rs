//! v6.16: `tcp_rcvbuf_grow(sk)` of kernels 6.16 and 6.17 (commits 65c5287892e9, 63ad7dfedfae).
//!
//! ```text
//! rcvwin = newval << 1              (int; newval = copied - inq is already in rcvq_space.space)
//! if the out-of-order queue is not empty: rcvwin += ooo
//! ```
//!
//! There is no ramp term: the buffer follows twice what was copied.
//!
//! | copied | inq | ooo | scaling_ratio | rcvwin | rcvbuf |
//! |---|---|---|---|---|---|
//! | 86016 | 5120 | 0 | 251 | 161792 | 165014 |

pub(super) const fn rcvwin(newval: u32, ooo: u32) -> u32 {
    newval.wrapping_shl(1).wrapping_add(ooo)
}
