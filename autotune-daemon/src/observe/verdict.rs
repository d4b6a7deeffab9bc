//! Expected against observed: the verdict of one growth, and what accounts for a difference.
//!
//! Nothing touches the socket between the grow sample and the kernel's own growth, so that the formula
//! on the grow sample's inputs gives the result exactly. Between that growth and the next sample other
//! code may have written the same fields; each such writer leaves a signature, and only a signature
//! that the two samples satisfy explains a difference. There is no tolerance.

use std::fmt;

use autotune_common::{
    Expected, Generation, GrowError, GrowthInput, Outcome, Sample,
    sample::FLAG_MPTCP,
    window::{space_from_win, win_from_space},
};

/// One growth: the sample before it, the sample after it, and the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The grow sample: the formula's inputs, before the change.
    pub grow: Sample,
    /// When the outcome sample was taken, `CLOCK_MONOTONIC` nanoseconds; none if none came.
    pub settled_ns: Option<u64>,
    /// What came of it.
    pub judgement: Judgement,
}

/// The verdict of a growth, and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What the formula gives, where it could be evaluated.
    pub expected: Option<Expected>,
    /// What the next sample shows, if one came in time.
    pub observed: Option<Observed>,
    /// What came of the comparison.
    pub verdict: Verdict,
}

/// The two fields that a growth writes, as the outcome sample shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// `sk_rcvbuf`, bytes.
    pub rcvbuf: i32,
    /// `window_clamp`, bytes.
    pub window_clamp: u32,
}

/// What came of comparing expected with observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel did what the formula says.
    Exact,
    /// It differs, and this accounts for the difference.
    Explained(Explanation),
    /// It differs, and nothing accounts for it.
    Divergent,
    /// It could not be compared.
    Unverified(Unverified),
}

/// Who else moved the socket's buffer between the two samples, with the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// `tcp_data_queue_ofo` grew the buffer for an out-of-order segment (6.16 and later).
    OooGrowth {
        /// Span of the out-of-order queue that gives the observed buffer, bytes.
        ooo: u32,
        /// The largest window offered, which bounds it, bytes.
        offered: u32,
        /// Out-of-order segments that arrived between the samples.
        segments: u32,
    },
    /// `tcp_clamp_window` set the buffer to what was queued, when receive memory ran out.
    MemoryClamp {
        /// `rcv_ssthresh` before, bytes.
        rcv_ssthresh_before: u32,
        /// `rcv_ssthresh` after, bytes.
        rcv_ssthresh_after: u32,
        /// `window_clamp`, which the clamp leaves alone, bytes.
        window_clamp: u32,
        /// `sk_rmem_alloc` in the outcome sample, bytes.
        rmem_alloc: i32,
    },
    /// The application set the buffer, its lock, or the window clamp.
    SetByApplication(Setting),
    /// `SO_RCVLOWAT` raised the buffer to hold that much.
    Rcvlowat {
        /// `sk_rcvlowat`, bytes.
        rcvlowat: i32,
    },
    /// A sysctl of the socket's namespace changed while the kernel grew the buffer; with the new value
    /// the formula gives what was observed.
    SysctlChanged {
        /// Its name.
        name: &'static str,
        /// Its value in the grow sample.
        before: i32,
        /// Its value in the outcome sample.
        after: i32,
    },
    /// A subflow of an MPTCP connection, whose buffer the MPTCP socket writes.
    Mptcp,
}

/// What an application did to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `SO_RCVBUF` or `SO_RCVBUFFORCE` on a socket that was not locked.
    Rcvbuf {
        /// `sk_rcvbuf` as observed, bytes.
        rcvbuf: i32,
    },
    /// `SO_RCVBUF` again on a locked socket.
    RcvbufAgain {
        /// `sk_rcvbuf` before, bytes.
        before: i32,
        /// `sk_rcvbuf` as observed, bytes.
        after: i32,
    },
    /// `SO_BUF_LOCK` took the lock away.
    Unlocked,
    /// `TCP_WINDOW_CLAMP`.
    WindowClamp {
        /// `window_clamp` as observed, bytes.
        window_clamp: u32,
    },
}

/// Why a growth could not be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unverified {
    /// Another growth of this socket came in between, and its sample was lost.
    SamplesLost,
    /// Another growth of this socket came in between, and the kernel did not hand it to the probe.
    EventMissed,
    /// The flow made room for others before its next sample.
    Evicted,
    /// The observer stopped before the flow's next sample.
    Stopped,
    /// The formula cannot be evaluated on this sample.
    NotModelled(GrowError),
    /// It is not known which formula this kernel runs.
    GenerationUnknown,
    /// One of `rcvbuf` and `window_clamp` is as the formula gives it and the other was moved later by a
    /// writer that left no trace: growth writes both.
    MovedAlone(Field),
}

/// A field that a growth writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `sk_rcvbuf`.
    Rcvbuf,
    /// `window_clamp`.
    WindowClamp,
}

/// The one word for what explains a growth or keeps it from being verified: a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// [`Explanation::OooGrowth`].
    OooGrowth,
    /// [`Explanation::MemoryClamp`].
    MemoryClamp,
    /// [`Explanation::SetByApplication`].
    SetByApplication,
    /// [`Explanation::Rcvlowat`].
    Rcvlowat,
    /// [`Explanation::SysctlChanged`].
    SysctlChanged,
    /// [`Explanation::Mptcp`].
    Mptcp,
    /// [`Unverified::SamplesLost`].
    SamplesLost,
    /// [`Unverified::EventMissed`].
    EventMissed,
    /// [`Unverified::Evicted`].
    Evicted,
    /// [`Unverified::Stopped`].
    Stopped,
    /// [`Unverified::NotModelled`].
    NotModelled,
    /// [`Unverified::GenerationUnknown`].
    GenerationUnknown,
    /// [`Unverified::MovedAlone`].
    MovedAlone,
}

impl Growth {
    /// The growth of a grow sample, settled by the socket's next sample.
    #[must_use]
    pub fn settled(generation: Option<Generation>, grow: &Sample, next: &Sample) -> Self {
        Self {
            grow: *grow,
            settled_ns: Some(next.time_ns),
            judgement: judge(generation, grow, next),
        }
    }

    /// The growth of a grow sample that no other sample followed.
    #[must_use]
    pub fn unsettled(generation: Option<Generation>, grow: &Sample, why: Unverified) -> Self {
        let expected = generation.and_then(|generation| generation.grow(&grow.growth_input()).ok());
        let verdict = Verdict::Unverified(why);
        Self {
            grow: *grow,
            settled_ns: None,
            judgement: Judgement { expected, observed: None, verdict },
        }
    }
}

impl Judgement {
    /// What the formula said, where it could be evaluated.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.expected.map(|expected| expected.outcome)
    }

    /// Observed less expected `sk_rcvbuf`, bytes; none where one of them is missing.
    #[must_use]
    pub fn divergence(&self) -> Option<i64> {
        let (expected, observed) = (self.expected?, self.observed?);
        Some(i64::from(observed.rcvbuf) - i64::from(expected.rcvbuf))
    }
}

impl Verdict {
    /// Its name in metrics, JSON and docs.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Explained(_) => "explained",
            Self::Divergent => "divergent",
            Self::Unverified(_) => "unverified",
        }
    }

    /// What explains it or keeps it from being verified.
    #[must_use]
    pub const fn cause(&self) -> Option<Cause> {
        match self {
            Self::Exact | Self::Divergent => None,
            Self::Explained(explanation) => Some(match explanation {
                Explanation::OooGrowth { .. } => Cause::OooGrowth,
                Explanation::MemoryClamp { .. } => Cause::MemoryClamp,
                Explanation::SetByApplication(_) => Cause::SetByApplication,
                Explanation::Rcvlowat { .. } => Cause::Rcvlowat,
                Explanation::SysctlChanged { .. } => Cause::SysctlChanged,
                Explanation::Mptcp => Cause::Mptcp,
            }),
            Self::Unverified(why) => Some(match why {
                Unverified::SamplesLost => Cause::SamplesLost,
                Unverified::EventMissed => Cause::EventMissed,
                Unverified::Evicted => Cause::Evicted,
                Unverified::Stopped => Cause::Stopped,
                Unverified::NotModelled(_) => Cause::NotModelled,
                Unverified::GenerationUnknown => Cause::GenerationUnknown,
                Unverified::MovedAlone(_) => Cause::MovedAlone,
            }),
        }
    }

    /// The evidence as a sentence; none for a verdict that needs none.
    #[must_use]
    pub fn evidence(&self) -> Option<String> {
        match self {
            Self::Exact | Self::Divergent => None,
            Self::Explained(explanation) => Some(explanation.to_string()),
            Self::Unverified(why) => Some(why.to_string()),
        }
    }
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 13] = [
        Self::OooGrowth,
        Self::MemoryClamp,
        Self::SetByApplication,
        Self::Rcvlowat,
        Self::SysctlChanged,
        Self::Mptcp,
        Self::SamplesLost,
        Self::EventMissed,
        Self::Evicted,
        Self::Stopped,
        Self::NotModelled,
        Self::GenerationUnknown,
        Self::MovedAlone,
    ];

    /// Its name in metrics, JSON and docs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OooGrowth => "ooo_growth",
            Self::MemoryClamp => "memory_clamp",
            Self::SetByApplication => "set_by_application",
            Self::Rcvlowat => "rcvlowat",
            Self::SysctlChanged => "sysctl_changed",
            Self::Mptcp => "mptcp",
            Self::SamplesLost => "samples_lost",
            Self::EventMissed => "event_missed",
            Self::Evicted => "evicted",
            Self::Stopped => "stopped",
            Self::NotModelled => "not_modelled",
            Self::GenerationUnknown => "generation_unknown",
            Self::MovedAlone => "moved_alone",
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OooGrowth { ooo, offered, segments } => write!(
                f,
                "{segments} segments arrived out of order, and the formula gives this rcvbuf for an \
                 out-of-order queue of {ooo} bytes, within the {offered} bytes offered"
            ),
            Self::MemoryClamp {
                rcv_ssthresh_before,
                rcv_ssthresh_after,
                window_clamp,
                rmem_alloc,
            } => write!(
                f,
                "rcvbuf moved and window_clamp stayed at {window_clamp}, with {rmem_alloc} bytes of \
                 memory in use and rcv_ssthresh from {rcv_ssthresh_before} to {rcv_ssthresh_after}: \
                 receive memory ran out"
            ),
            Self::SetByApplication(setting) => setting.fmt(f),
            Self::Rcvlowat { rcvlowat } => {
                write!(f, "SO_RCVLOWAT was set to {rcvlowat}, and rcvbuf is what holds that much")
            }
            Self::SysctlChanged { name, before, after } => write!(
                f,
                "{name} changed from {before} to {after}, and with the new value the formula gives \
                 this rcvbuf"
            ),
            Self::Mptcp => f.write_str("an MPTCP subflow: the MPTCP socket writes its rcvbuf"),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rcvbuf { rcvbuf } => write!(f, "SO_RCVBUF locked rcvbuf at {rcvbuf}"),
            Self::RcvbufAgain { before, after } => {
                write!(f, "SO_RCVBUF moved a locked rcvbuf from {before} to {after}")
            }
            Self::Unlocked => f.write_str("SO_BUF_LOCK unlocked rcvbuf"),
            Self::WindowClamp { window_clamp } => {
                write!(f, "TCP_WINDOW_CLAMP set window_clamp to {window_clamp}")
            }
        }
    }
}

impl fmt::Display for Unverified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SamplesLost => f.write_str("the grow sample of a later growth was lost"),
            Self::EventMissed => f.write_str(
                "space is above what this growth left: another growth came in between, which the \
                 kernel did not hand to the probe",
            ),
            Self::Evicted => f.write_str("the flow was evicted before its next sample"),
            Self::Stopped => f.write_str("the observer stopped before the flow's next sample"),
            Self::NotModelled(error) => error.fmt(f),
            Self::GenerationUnknown => {
                f.write_str("it is not known which growth formula this kernel runs")
            }
            Self::MovedAlone(Field::Rcvbuf) => f.write_str(
                "window_clamp is as the formula gives it and rcvbuf was moved alone, which growth does \
                 not: a clamp by memory whose queue was read since, or SO_RCVBUF and an unlock",
            ),
            Self::MovedAlone(Field::WindowClamp) => f.write_str(
                "rcvbuf is as the formula gives it and window_clamp was moved alone, which growth does \
                 not: TCP_WINDOW_CLAMP",
            ),
        }
    }
}

/// Compares what `generation` gives for `grow` with what `next` shows.
fn judge(generation: Option<Generation>, grow: &Sample, next: &Sample) -> Judgement {
    let unverified =
        |expected, why| Judgement { expected, observed: None, verdict: Verdict::Unverified(why) };
    let Some(generation) = generation else {
        return unverified(None, Unverified::GenerationUnknown);
    };
    let expected = match generation.grow(&grow.growth_input()) {
        Ok(expected) => expected,
        Err(error) => return unverified(None, Unverified::NotModelled(error)),
    };
    // The first sample after a growth carries the same count, or one more if it is the grow sample
    // of the next one, which shows the state before that. Any other is past a growth that was lost.
    let growths_between = next.growths.wrapping_sub(grow.growths);
    let next_is_grow = u32::from(next.kind() == autotune_common::SampleKind::Grow);
    if growths_between != next_is_grow {
        return unverified(Some(expected), Unverified::SamplesLost);
    }

    let observed = Observed { rcvbuf: next.rcvbuf, window_clamp: next.window_clamp };
    let gap = Gap { generation, grow, next, expected };
    let verdict = if gap.is_exact() {
        Verdict::Exact
    } else if gap.event_missed() {
        Verdict::Unverified(Unverified::EventMissed)
    } else {
        match (gap.explain(), gap.moved_alone()) {
            (Some(explanation), _) => Verdict::Explained(explanation),
            (None, Some(field)) => Verdict::Unverified(Unverified::MovedAlone(field)),
            (None, None) => Verdict::Divergent,
        }
    };
    Judgement { expected: Some(expected), observed: Some(observed), verdict }
}

/// The time between a growth and the next sample, in which others may have written the same fields.
struct Gap<'a> {
    generation: Generation,
    grow: &'a Sample,
    next: &'a Sample,
    expected: Expected,
}

impl Gap<'_> {
    fn is_exact(&self) -> bool {
        self.next.rcvbuf == self.expected.rcvbuf && self.window_clamp_agrees()
    }

    /// `window_clamp` is as the growth left it, or as `tcp_measure_rcv_mss` derives it anew when a
    /// segment changes `scaling_ratio` (6.11 and later; for a ratio that changed and came back too).
    fn window_clamp_agrees(&self) -> bool {
        let data_arrived = self.next.bytes_received != self.grow.bytes_received
            || self.next.rcv_ooopack != self.grow.rcv_ooopack;
        self.next.window_clamp == self.expected.window_clamp
            || data_arrived && self.window_clamp_follows()
            || self.is_disconnected()
    }

    /// `tcp_disconnect`, which a close with `SO_LINGER` 0 is too, begins anew but for `rcvbuf`.
    fn is_disconnected(&self) -> bool {
        self.next.bytes_received < self.grow.bytes_received
    }

    /// Whether another growth event came after this one. It fires only where more was copied than
    /// `space`, and then that is the new `space`; nothing else raises it. The kernel skips a run of a
    /// probe while an earlier one is preempted on the same CPU, which 7.0 and later allow.
    fn event_missed(&self) -> bool {
        self.next.space > self.expected.space && !self.next.has(FLAG_MPTCP)
    }

    /// Which field was moved alone. A growth that the formula does not give would have moved both, and
    /// left a clamp that follows the buffer.
    fn moved_alone(&self) -> Option<Field> {
        if self.window_clamp_follows() {
            None
        } else if self.next.window_clamp == self.expected.window_clamp {
            Some(Field::Rcvbuf)
        } else if self.next.rcvbuf == self.expected.rcvbuf {
            Some(Field::WindowClamp)
        } else {
            None
        }
    }

    fn window_clamp_follows(&self) -> bool {
        let Sample { rcvbuf, scaling_ratio, window_clamp, .. } = *self.next;
        window_clamp == win_from_space(rcvbuf, scaling_ratio).cast_unsigned()
    }

    /// What accounts for the difference: the strictest signatures first.
    fn explain(&self) -> Option<Explanation> {
        self.sysctl_changed()
            .or_else(|| self.set_by_application())
            .or_else(|| self.rcvlowat())
            .or_else(|| self.ooo_growth())
            .or_else(|| self.memory_clamp())
            .or_else(|| self.window_clamp_set())
            .or_else(|| self.next.has(FLAG_MPTCP).then_some(Explanation::Mptcp))
    }

    fn sysctl_changed(&self) -> Option<Explanation> {
        let (grow, next) = (self.grow, self.next);
        let old = grow.growth_input();
        let new = next.growth_input();
        // The kernel reads each sysctl once, so that a growth sees its old or its new value.
        let changes = [
            (
                "tcp_rmem[2]",
                (old.rmem_max, new.rmem_max),
                GrowthInput { rmem_max: new.rmem_max, ..old },
            ),
            (
                "tcp_moderate_rcvbuf",
                (grow.tcp_moderate_rcvbuf.into(), next.tcp_moderate_rcvbuf.into()),
                GrowthInput { moderate_rcvbuf: new.moderate_rcvbuf, ..old },
            ),
            (
                "tcp_rcvbuf_low_rtt",
                (old.low_rtt, new.low_rtt),
                GrowthInput { low_rtt: new.low_rtt, ..old },
            ),
        ];
        changes.into_iter().find_map(|(name, (before, after), with_new)| {
            if before == after {
                return None;
            }
            let expected = self.generation.grow(&with_new).ok()?;
            let gap = Gap { expected, ..*self };
            gap.is_exact().then_some(Explanation::SysctlChanged { name, before, after })
        })
    }

    fn set_by_application(&self) -> Option<Explanation> {
        let (grow, next) = (self.grow, self.next);
        let setting = match (grow.is_locked(), next.is_locked()) {
            _ if !self.rcvbuf_set() => return None,
            (false, true) => Setting::Rcvbuf { rcvbuf: next.rcvbuf },
            (true, false) => Setting::Unlocked,
            // Nothing but setsockopt moves the buffer of a locked socket.
            (true, true) => Setting::RcvbufAgain { before: grow.rcvbuf, after: next.rcvbuf },
            (false, false) => return None,
        };
        Some(Explanation::SetByApplication(setting))
    }

    /// `__sock_set_rcvbuf` stores twice the value of `SO_RCVBUF`, or a minimum that is even too, and
    /// leaves `window_clamp` as it is until the ratio changes. `SO_BUF_LOCK` moves neither: a buffer that
    /// is unlocked and moved was set before.
    fn rcvbuf_set(&self) -> bool {
        let Sample { rcvbuf, window_clamp, .. } = *self.next;
        rcvbuf != self.expected.rcvbuf
            && rcvbuf % 2 == 0
            && (window_clamp == self.expected.window_clamp || self.window_clamp_follows())
    }

    /// `tcp_set_rcvlowat`: `rcvbuf = space_from_win(rcvlowat)`, where that is more.
    fn rcvlowat(&self) -> Option<Explanation> {
        let (grow, next) = (self.grow, self.next);
        let rcvlowat = next.rcvlowat;
        if rcvlowat <= 1 || rcvlowat == grow.rcvlowat || next.rcvbuf <= self.expected.rcvbuf {
            return None;
        }
        let holds = |ratio| space_from_win(rcvlowat, ratio) == Some(next.rcvbuf);
        (holds(grow.scaling_ratio) || holds(next.scaling_ratio))
            .then_some(Explanation::Rcvlowat { rcvlowat })
    }

    /// Growth for an out-of-order segment: no tracepoint shows it, but the formula, with `newval` and
    /// `oldval` both the current `space`, must give the observed buffer for a queue that fits into
    /// the window that was offered.
    fn ooo_growth(&self) -> Option<Explanation> {
        let (grow, next) = (self.grow, self.next);
        let segments = next.rcv_ooopack.wrapping_sub(grow.rcv_ooopack);
        if segments == 0 || next.rcvbuf <= self.expected.rcvbuf || !self.window_clamp_follows() {
            return None;
        }
        // What is advertised is rounded up to the window scale's step.
        let step = 1_u32.checked_shl(next.rcv_wscale.into()).unwrap_or(1);
        let clamp = self.expected.window_clamp.checked_next_multiple_of(step);
        let offered = grow.rcv_wnd.max(next.rcv_wnd).max(clamp.unwrap_or(u32::MAX));
        let ratios = [next.scaling_ratio, grow.scaling_ratio];
        let rtts = [next.rtt_us, grow.rtt_us];
        ratios.into_iter().flat_map(|ratio| rtts.into_iter().map(move |rtt| (ratio, rtt))).find_map(
            |(scaling_ratio, rtt_us)| {
                let input = GrowthInput {
                    space: next.space,
                    scaling_ratio,
                    rtt_us,
                    rmem_max: next.rmem_max(),
                    low_rtt: next.tcp_rcvbuf_low_rtt,
                    ..grow.growth_input()
                };
                let ooo = smallest_ooo(self.generation, &input, offered, next.rcvbuf)?;
                Some(Explanation::OooGrowth { ooo, offered, segments })
            },
        )
    }

    /// `tcp_clamp_window`: `rcvbuf = min(sk_rmem_alloc, tcp_rmem[2])`, `window_clamp` left alone. Where
    /// the limit is the smaller, `rcv_ssthresh` falls to two segments (from where it rises again); else
    /// the memory in use is at the new buffer, and stays there until someone reads or the queue is
    /// collapsed.
    fn memory_clamp(&self) -> Option<Explanation> {
        let (grow, next) = (self.grow, self.next);
        let collapsed = next.rcv_ssthresh < grow.rcv_ssthresh;
        let full = next.rcvbuf > self.expected.rcvbuf && next.rmem_alloc >= next.rcvbuf;
        let clamped = next.rcvbuf != self.expected.rcvbuf
            && !next.is_locked()
            && next.rcvbuf <= next.rmem_max()
            && next.window_clamp == self.expected.window_clamp
            && (collapsed || full);
        clamped.then_some(Explanation::MemoryClamp {
            rcv_ssthresh_before: grow.rcv_ssthresh,
            rcv_ssthresh_after: next.rcv_ssthresh,
            window_clamp: next.window_clamp,
            rmem_alloc: next.rmem_alloc,
        })
    }

    /// `tcp_set_window_clamp` leaves `rcvbuf` alone. A clamp below `rcv_ssthresh` brings that down to it;
    /// one above leaves no trace and is not told from a kernel that converts otherwise, unless no ratio
    /// gives so large a window.
    fn window_clamp_set(&self) -> Option<Explanation> {
        let (grow, next) = (self.grow, self.next);
        if next.rcvbuf != self.expected.rcvbuf {
            return None;
        }
        let window_clamp = next.window_clamp;
        let set = if window_clamp < self.expected.window_clamp {
            next.rcv_ssthresh <= window_clamp
                && window_clamp <= grow.rcv_ssthresh.max(next.rcv_ssthresh)
        } else {
            next.rcv_ssthresh >= next.rcv_wnd.min(window_clamp)
                && window_clamp > win_from_space(next.rcvbuf, u8::MAX).cast_unsigned()
        };
        set.then_some(Explanation::SetByApplication(Setting::WindowClamp { window_clamp }))
    }
}

/// The smallest out-of-order span, 1 to `most` bytes, for which out-of-order growth asks for exactly
/// `rcvbuf`. The formula does not fall with `ooo` as long as nothing wraps, which the search checks by
/// evaluating what it finds.
fn smallest_ooo(
    generation: Generation,
    input: &GrowthInput,
    most: u32,
    rcvbuf: i32,
) -> Option<u32> {
    let asks = |ooo| generation.grow_ooo(&GrowthInput { ooo, ..*input }).ok().flatten();
    let (mut low, mut high) = (1, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if asks(middle)? < rcvbuf { low = middle + 1 } else { high = middle }
    }
    (low <= most && asks(low)? == rcvbuf).then_some(low)
}
