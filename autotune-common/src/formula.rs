//! The kernel's receive-buffer growth, integer for integer, by [`Generation`].
//!
//! All generations share one shape (`net/ipv4/tcp_input.c`): compute the window the receiver may need,
//! convert it to buffer space, limit it by `tcp_rmem[2]`, and raise `sk_rcvbuf` to it, never lower it.
//!
//! ```text
//! rcvbuf = min(space_from_win(rcvwin), tcp_rmem[2])
//! if rcvbuf > sk_rcvbuf: sk_rcvbuf = rcvbuf, window_clamp = win_from_space(rcvbuf)
//! ```
//!
//! They differ in `rcvwin`, one file each below, and in the width of the comparison.

mod v6_12_35;
mod v6_16;
mod v6_18;
mod v6_19;
mod v6_6;

use crate::window::{space_from_win, win_from_space};

/// Which growth formula a kernel runs.
///
/// Stable trees and distributions backport these changes one by one, so the version number does not
/// tell the generation; the running kernel's BTF does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Generation {
    /// Kernels 4.16 to 6.5: converted by the truesize of a segment, with constants of the kernel's
    /// build. Not modelled.
    V4_16,
    /// Kernels 6.6 to 6.15 (commit dfa2f0483360).
    V6_6,
    /// Stable kernels 6.12.35 and 6.15.4 on: v6.6 with `inq` taken off (backport of ea33537d8292).
    V6_12_35,
    /// Kernels 6.16 and 6.17 (commits 65c5287892e9, 63ad7dfedfae, ea33537d8292).
    V6_16,
    /// Kernel 6.18 (commit aa251c84636c).
    V6_18,
    /// Kernels 6.19 on (commit ecfea98b7d0d).
    V6_19,
}

impl Generation {
    /// Every generation, oldest first.
    pub const ALL: [Self; 6] =
        [Self::V4_16, Self::V6_6, Self::V6_12_35, Self::V6_16, Self::V6_18, Self::V6_19];

    /// Its name in metrics, JSON, options and docs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V4_16 => "v4.16",
            Self::V6_6 => "v6.6",
            Self::V6_12_35 => "v6.12.35",
            Self::V6_16 => "v6.16",
            Self::V6_18 => "v6.18",
            Self::V6_19 => "v6.19",
        }
    }

    /// The generation of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|generation| generation.as_str() == name)
    }

    /// What the kernel makes of `input`.
    ///
    /// # Errors
    /// Says why the outcome cannot be told: the kernel would divide by zero, its arithmetic would wrap
    /// in a way that only a bug elsewhere leads to, or the generation is not modelled.
    pub const fn grow(self, input: &GrowthInput) -> Result<Expected, GrowError> {
        let (rcvwin, space) = match self.rcvwin(input) {
            Ok(pair) => pair,
            Err(error) => return Err(error),
        };
        let unchanged = Expected {
            outcome: Outcome::Enough,
            rcvbuf: input.rcvbuf,
            window_clamp: input.window_clamp,
            space,
            rcvwin,
        };
        // The order of the kernel's own test.
        if !input.moderate_rcvbuf {
            return Ok(Expected { outcome: Outcome::ModerationOff, ..unchanged });
        }
        if input.locked {
            return Ok(Expected { outcome: Outcome::Locked, ..unchanged });
        }
        let Some(wanted) = space_from_win(as_int(rcvwin), input.scaling_ratio) else {
            return Err(GrowError::ScalingRatioZero);
        };
        let (limited, over_limit) = self.limit(wanted, input.rmem_max);
        if !self.raises(limited, input.rcvbuf) {
            let outcome = if over_limit { Outcome::Capped } else { Outcome::Enough };
            return Ok(Expected { outcome, ..unchanged });
        }
        Ok(Expected {
            outcome: if over_limit { Outcome::Capped } else { Outcome::Grow },
            rcvbuf: limited,
            window_clamp: as_u32(win_from_space(limited, input.scaling_ratio)),
            ..unchanged
        })
    }

    /// Buffer that growth for an out-of-order segment asks for (`tcp_data_queue_ofo`), bytes, limited
    /// by `rmem_max`: no tracepoint shows it, and `newval == oldval == space`.
    ///
    /// # Errors
    /// As [`Generation::grow`]. Generations before v6.16 have no such growth: `Ok(None)`.
    pub const fn grow_ooo(self, input: &GrowthInput) -> Result<Option<i32>, GrowError> {
        let space = as_u32(input.space);
        let rcvwin = match self {
            Self::V4_16 | Self::V6_6 | Self::V6_12_35 => return Ok(None),
            Self::V6_16 => v6_16::rcvwin(space, input.ooo),
            Self::V6_18 => match v6_18::rcvwin(space, input) {
                Ok(rcvwin) => rcvwin,
                Err(error) => return Err(error),
            },
            Self::V6_19 => match v6_19::rcvwin(space, input) {
                Ok(rcvwin) => rcvwin,
                Err(error) => return Err(error),
            },
        };
        match space_from_win(as_int(rcvwin), input.scaling_ratio) {
            Some(wanted) => Ok(Some(self.limit(wanted, input.rmem_max).0)),
            None => Err(GrowError::ScalingRatioZero),
        }
    }

    /// `rcvwin` and the new `rcvq_space.space`.
    const fn rcvwin(self, input: &GrowthInput) -> Result<(u32, i32), GrowError> {
        let newval = input.copied.wrapping_sub(input.inq);
        let rcvwin = match self {
            Self::V4_16 => return Err(GrowError::NotModelled),
            Self::V6_6 => match v6_6::rcvwin(input.copied, input) {
                Ok(rcvwin) => return Ok((rcvwin, as_int(input.copied))),
                Err(error) => Err(error),
            },
            Self::V6_12_35 => v6_12_35::rcvwin(newval, input),
            Self::V6_16 => Ok(v6_16::rcvwin(newval, input.ooo)),
            Self::V6_18 => v6_18::rcvwin(newval, input),
            Self::V6_19 => v6_19::rcvwin(newval, input),
        };
        match rcvwin {
            Ok(rcvwin) => Ok((rcvwin, as_int(newval))),
            Err(error) => Err(error),
        }
    }

    /// `min(wanted, tcp_rmem[2])` in this generation's width, and whether the limit was the smaller.
    const fn limit(self, wanted: i32, rmem_max: i32) -> (i32, bool) {
        let over = match self {
            // min_t(u64, ...)
            Self::V4_16 | Self::V6_6 | Self::V6_12_35 => as_u64(wanted) > as_u64(rmem_max),
            // min_t(u32, ...)
            Self::V6_16 | Self::V6_18 | Self::V6_19 => as_u32(wanted) > as_u32(rmem_max),
        };
        (if over { rmem_max } else { wanted }, over)
    }

    /// Whether the kernel's `rcvbuf > sk_rcvbuf` holds, in this generation's width.
    const fn raises(self, rcvbuf: i32, current: i32) -> bool {
        match self {
            Self::V4_16 | Self::V6_6 | Self::V6_12_35 | Self::V6_16 => rcvbuf > current,
            Self::V6_18 | Self::V6_19 => as_u32(rcvbuf) > as_u32(current),
        }
    }
}

impl core::fmt::Display for Generation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The formula's inputs, as they stand at `tcp_rcvbuf_grow` before the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrowthInput {
    /// `copied_seq - rcvq_space.seq`, bytes, before `inq` is taken off.
    pub copied: u32,
    /// `rcv_nxt - copied_seq`, bytes.
    pub inq: u32,
    /// The old `rcvq_space.space`, bytes.
    pub space: i32,
    /// Span of the out-of-order queue, bytes; 0 when it is empty.
    pub ooo: u32,
    /// `rcv_rtt_est.rtt_us >> 3`, microseconds (v6.19).
    pub rtt_us: u32,
    /// Advertised maximum segment size, bytes (v6.6, v6.12.35).
    pub advmss: u16,
    /// Payload per charged memory, 1/256.
    pub scaling_ratio: u8,
    /// `sk_rcvbuf` before the change, bytes.
    pub rcvbuf: i32,
    /// `window_clamp` before the change, bytes.
    pub window_clamp: u32,
    /// `tcp_rmem[2]` of the socket's namespace, bytes.
    pub rmem_max: i32,
    /// `tcp_rcvbuf_low_rtt` of the socket's namespace, microseconds; 0 turns it off (v6.19).
    pub low_rtt: i32,
    /// `tcp_moderate_rcvbuf` of the socket's namespace.
    pub moderate_rcvbuf: bool,
    /// `SOCK_RCVBUF_LOCK` is set in `sk_userlocks`.
    pub locked: bool,
}

/// What the formula makes of a [`GrowthInput`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// What it came to.
    pub outcome: Outcome,
    /// `sk_rcvbuf` afterwards, bytes.
    pub rcvbuf: i32,
    /// `window_clamp` afterwards, bytes.
    pub window_clamp: u32,
    /// `rcvq_space.space` afterwards, bytes: moves even where growth is refused.
    pub space: i32,
    /// The window that the formula asked room for, bytes, before conversion and limit.
    pub rcvwin: u32,
}

/// What the formula said about a growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The buffer is raised to what the formula asks for.
    Grow,
    /// `tcp_rmem[2]` is less than what it asks for.
    Capped,
    /// The buffer is already as large as it asks for.
    Enough,
    /// `SO_RCVBUF` was set: the kernel leaves the buffer alone.
    Locked,
    /// `tcp_moderate_rcvbuf` is 0 in the socket's namespace: the kernel leaves the buffer alone.
    ModerationOff,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 5] =
        [Self::Grow, Self::Capped, Self::Enough, Self::Locked, Self::ModerationOff];

    /// Its name in metrics, JSON and docs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grow => "grow",
            Self::Capped => "capped",
            Self::Enough => "enough",
            Self::Locked => "locked",
            Self::ModerationOff => "moderation_off",
        }
    }
}

/// Why the formula cannot be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrowError {
    /// The old `space` is 0: the kernel divides by it.
    SpaceZero,
    /// `scaling_ratio` is 0: the kernel divides by it, and never stores it.
    ScalingRatioZero,
    /// `copied - inq` is below the old `space`: the event cannot fire for it, and the kernel's
    /// difference would wrap.
    NotAboveSpace,
    /// The generation's arithmetic is not reproduced here.
    NotModelled,
}

impl core::fmt::Display for GrowError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::SpaceZero => "space is 0, and the kernel divides by it",
            Self::ScalingRatioZero => "scaling_ratio is 0, and the kernel divides by it",
            Self::NotAboveSpace => "copied - inq is below space, which the event excludes",
            Self::NotModelled => "this generation's formula is not modelled",
        })
    }
}

impl core::error::Error for GrowError {}

/// `(int)value`
const fn as_int(value: u32) -> i32 {
    value.cast_signed()
}

/// `(u32)value`
const fn as_u32(value: i32) -> u32 {
    value.cast_unsigned()
}

/// `(u64)value`: the sign is extended.
const fn as_u64(value: i32) -> u64 {
    (value as i64).cast_unsigned()
}

/// `value / by` in 64 bits, or the error that `space` is 0.
const fn div_by_space(value: u64, space: i32) -> Result<u64, GrowError> {
    match value.checked_div(as_u32(space) as u64) {
        Some(quotient) => Ok(quotient),
        None => Err(GrowError::SpaceZero),
    }
}

/// The low 32 bits, as an assignment to `u32` keeps them.
const fn trunc32(value: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the kernel truncates here")]
    let low = value as u32;
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The receiver of the traces in testdata, for the rows of the generations' tables to fill in.
    pub(super) const RECEIVER: GrowthInput = GrowthInput {
        copied: 0,
        inq: 0,
        space: 0,
        ooo: 0,
        rtt_us: 1000,
        advmss: 4096,
        scaling_ratio: 230,
        rcvbuf: 131_072,
        window_clamp: 65_535,
        rmem_max: 33_554_432,
        low_rtt: 0,
        moderate_rcvbuf: true,
        locked: false,
    };

    #[test]
    fn every_name_leads_back_to_its_generation() {
        for generation in Generation::ALL {
            assert_eq!(Generation::from_name(generation.as_str()), Some(generation));
        }
        assert_eq!(Generation::from_name("v6.17"), None);
    }

    #[test]
    fn generations_are_in_order_of_age() {
        assert!(Generation::ALL.is_sorted());
    }

    #[test]
    fn a_negative_buffer_is_over_every_limit_in_either_width() {
        for generation in Generation::ALL {
            assert_eq!(generation.limit(-256, 33_554_432), (33_554_432, true), "{generation}");
            assert_eq!(generation.limit(-256, -1), (-256, false), "{generation}");
        }
    }

    #[test]
    fn a_negative_rcvbuf_is_raised_only_where_the_kernel_compares_it_as_int() {
        for generation in Generation::ALL {
            assert_eq!(generation.raises(1, -1), generation < Generation::V6_18, "{generation}");
        }
    }
}
