//! v6.12.35: v6.6 with the receive queue taken off `copied`, in stable kernels 6.12.35 and 6.15.4 on
//! (backport of ea33537d8292).
//!
//! ```text
//! copied    -= inq                  (int)
//! u64 rcvwin = ((u64)copied << 1) + 16 * advmss
//! u64 grow   = rcvwin * (copied - space) / space
//! rcvwin    += grow << 1
//! ```

use super::{GrowError, GrowthInput, v6_6};

pub(super) const fn rcvwin(newval: u32, input: &GrowthInput) -> Result<u32, GrowError> {
    v6_6::rcvwin(newval, input)
}
