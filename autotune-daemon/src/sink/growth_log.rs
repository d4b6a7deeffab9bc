//! One record for each growth that was judged: a line of text for people, a line of JSON for programs.

use std::{borrow::Cow, fmt, net::SocketAddr};

use autotune_common::{Generation, Sample};
use serde::Serialize;

use crate::observe::Growth;

/// Version of the JSON records. Fields may be added within a version; none changes its meaning.
pub const JSON_VERSION: u32 = 1;

/// A growth as it is told to people and programs. Bytes and microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct GrowthRecord {
    /// [`JSON_VERSION`].
    pub version: u32,
    /// Always `growth`.
    pub r#type: &'static str,
    /// When the kernel grew the buffer: `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Socket cookie.
    pub cookie: u64,
    /// Inode number of the network namespace.
    pub netns_inum: u32,
    /// Local address and port.
    pub local: SocketAddr,
    /// Remote address and port.
    pub remote: SocketAddr,
    /// Process id of the reader.
    pub pid: u32,
    /// Name of the reading thread.
    pub comm: String,
    /// Cgroup id of the reader.
    pub cgroup_id: u64,
    /// Formula of the running kernel.
    pub generation: Option<&'static str>,
    /// The formula's inputs.
    pub input: InputRecord,
    /// What the formula said.
    pub outcome: Option<&'static str>,
    /// What it gives.
    pub expected: Option<BufferRecord>,
    /// What the next sample of the socket shows.
    pub observed: Option<BufferRecord>,
    /// Observed less expected `rcvbuf`.
    pub divergence: Option<i64>,
    /// What came of the comparison.
    pub verdict: &'static str,
    /// What explains it or keeps it from being verified.
    pub cause: Option<&'static str>,
    /// The evidence, as a sentence.
    pub evidence: Option<String>,
}

/// The formula's inputs, before the change.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct InputRecord {
    /// Since the measurement began.
    pub time_us: i32,
    /// Receiver's round-trip estimate.
    pub rtt_us: u32,
    /// Copied to the application since then, `inq` included.
    pub copied: u32,
    /// Received in order and not read.
    pub inq: u32,
    /// Copied per round trip as measured before.
    pub space: i32,
    /// Span of the out-of-order queue.
    pub ooo: u32,
    /// Payload per charged memory, 1/256.
    pub scaling_ratio: u8,
    /// Advertised maximum segment size.
    pub advmss: u16,
    /// `sk_rcvbuf`.
    pub rcvbuf: i32,
    /// `window_clamp`.
    pub window_clamp: u32,
    /// `tcp_rmem[2]` of the socket's namespace.
    pub rmem_max: i32,
    /// `tcp_rcvbuf_low_rtt` of the socket's namespace.
    pub low_rtt: i32,
}

/// The two fields that a growth writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BufferRecord {
    /// `sk_rcvbuf`.
    pub rcvbuf: i32,
    /// `window_clamp`.
    pub window_clamp: u32,
}

impl GrowthRecord {
    /// The record of a growth under this generation.
    #[must_use]
    pub fn new(generation: Option<Generation>, growth: &Growth) -> Self {
        let Growth { grow, settled_ns: _, judgement } = growth;
        Self {
            version: JSON_VERSION,
            r#type: "growth",
            time_ns: grow.time_ns,
            cookie: grow.cookie,
            netns_inum: grow.netns_inum,
            local: grow.local(),
            remote: grow.remote(),
            pid: grow.pid,
            comm: comm(grow).into_owned(),
            cgroup_id: grow.cgroup_id,
            generation: generation.map(Generation::as_str),
            input: InputRecord {
                time_us: grow.time_us,
                rtt_us: grow.rtt_us,
                copied: grow.copied,
                inq: grow.inq,
                space: grow.space,
                ooo: grow.ooo,
                scaling_ratio: grow.scaling_ratio,
                advmss: grow.advmss,
                rcvbuf: grow.rcvbuf,
                window_clamp: grow.window_clamp,
                rmem_max: grow.rmem_max(),
                low_rtt: grow.tcp_rcvbuf_low_rtt,
            },
            outcome: judgement.outcome().map(autotune_common::Outcome::as_str),
            expected: judgement.expected.map(|expected| BufferRecord {
                rcvbuf: expected.rcvbuf,
                window_clamp: expected.window_clamp,
            }),
            observed: judgement.observed.map(|observed| BufferRecord {
                rcvbuf: observed.rcvbuf,
                window_clamp: observed.window_clamp,
            }),
            divergence: judgement.divergence(),
            verdict: judgement.verdict.as_str(),
            cause: judgement.verdict.cause().map(crate::observe::Cause::as_str),
            evidence: judgement.verdict.evidence(),
        }
    }
}

impl fmt::Display for GrowthRecord {
    /// One line, without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { input, .. } = self;
        let seconds = self.time_ns / 1_000_000_000;
        let micros = self.time_ns % 1_000_000_000 / 1000;
        write!(
            f,
            "{seconds}.{micros:06} {} > {} {}[{}] rtt {} us copied {} inq {} space {} ooo {} \
             ratio {} rcvbuf {}",
            self.remote,
            self.local,
            // A thread may name itself anything, a line end or a terminal's commands too.
            self.comm.escape_debug(),
            self.pid,
            input.rtt_us,
            input.copied,
            input.inq,
            input.space,
            input.ooo,
            input.scaling_ratio,
            input.rcvbuf,
        )?;
        write!(f, " expected {}", OrNone(self.expected.map(|expected| expected.rcvbuf)))?;
        write!(f, " observed {}", OrNone(self.observed.map(|observed| observed.rcvbuf)))?;
        write!(f, " {} {}", self.outcome.unwrap_or("unknown"), self.verdict)?;
        if let Some(cause) = self.cause {
            write!(f, " {cause}")?;
        }
        if let Some(evidence) = &self.evidence {
            write!(f, " ({evidence})")?;
        }
        Ok(())
    }
}

/// Name of the reading thread, without its padding.
#[must_use]
pub fn comm(sample: &Sample) -> Cow<'_, str> {
    let length = sample.comm.iter().position(|&byte| byte == 0).unwrap_or(sample.comm.len());
    String::from_utf8_lossy(sample.comm.get(..length).unwrap_or_default())
}

struct OrNone<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for OrNone<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}
