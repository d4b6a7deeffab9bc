//! [`ProbeCounter`]: what the probes count in the kernel, per CPU, so that the books balance.
//!
//! Each run of a probe ends in exactly one of these, so for each program
//! `runs = submitted + shed + not sampled + lost`, whatever happens to the ring buffer.

use crate::sample::SampleKind;

/// One monotonic count of the probes, an index into their per-CPU counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeCounter {
    /// Samples of this kind that were put into the ring buffer.
    Submitted(SampleKind),
    /// Samples of this kind that found the ring buffer full, or their socket without state.
    Lost(SampleKind),
    /// Periodic samples deliberately not taken because the ring buffer was more than half full.
    Shed,
    /// Reads that were not sampled: nothing to settle, and the socket's next sample not yet due.
    ReadNotSampled,
    /// Sockets that closed without ever having been sampled.
    CloseNotSampled,
}

impl ProbeCounter {
    /// How many counters there are.
    pub const COUNT: usize = 11;

    /// Every counter, in the order of their indices.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Submitted(SampleKind::Grow),
        Self::Submitted(SampleKind::Outcome),
        Self::Submitted(SampleKind::Periodic),
        Self::Submitted(SampleKind::Close),
        Self::Lost(SampleKind::Grow),
        Self::Lost(SampleKind::Outcome),
        Self::Lost(SampleKind::Periodic),
        Self::Lost(SampleKind::Close),
        Self::Shed,
        Self::ReadNotSampled,
        Self::CloseNotSampled,
    ];

    /// Its place among the counters.
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> usize {
        match self {
            Self::Submitted(kind) => kind.index(),
            Self::Lost(kind) => SampleKind::ALL.len() + kind.index(),
            Self::Shed => 8,
            Self::ReadNotSampled => 9,
            Self::CloseNotSampled => 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_numbered_in_order() {
        for (index, counter) in ProbeCounter::ALL.into_iter().enumerate() {
            assert_eq!(counter.index(), index);
        }
    }
}
