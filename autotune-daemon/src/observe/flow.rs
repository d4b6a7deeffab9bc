//! The flow table: what is remembered of each socket, bounded, the least recently sampled going first.

use autotune_common::{Outcome, Sample, SampleKind};
use lru::LruCache;

use super::verdict::{Growth, Verdict};

/// What is remembered of one socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The latest sample. A grow sample here waits for its outcome.
    pub sample: Sample,
    /// When the first sample was taken, `CLOCK_MONOTONIC` nanoseconds.
    pub first_ns: u64,
    /// Growths judged.
    pub growths: u32,
    /// Growth events whose grow samples were lost.
    pub growths_missed: u32,
    /// Samples that the probes tried to send for this socket and that never came.
    pub samples_missed: u32,
    /// The last growth that was judged.
    pub last_growth: Option<LastGrowth>,
}

/// The last growth of a flow, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastGrowth {
    /// When the grow sample was taken, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// What the formula said, where it could be evaluated.
    pub outcome: Option<Outcome>,
    /// What came of the comparison.
    pub verdict: Verdict,
}

impl Flow {
    /// A flow that begins with this sample.
    #[must_use]
    pub const fn new(sample: &Sample) -> Self {
        Self {
            sample: *sample,
            first_ns: sample.time_ns,
            growths: 0,
            growths_missed: 0,
            samples_missed: 0,
            last_growth: None,
        }
    }

    /// Whether the latest sample is a grow sample, which the next one settles.
    #[must_use]
    pub fn awaits_outcome(&self) -> bool {
        self.sample.kind() == SampleKind::Grow
    }

    /// Remembers a growth that was judged.
    pub fn note(&mut self, growth: &Growth) {
        self.growths = self.growths.saturating_add(1);
        self.last_growth = Some(LastGrowth {
            time_ns: growth.grow.time_ns,
            outcome: growth.judgement.outcome(),
            verdict: growth.judgement.verdict.clone(),
        });
    }
}

/// The flows by cookie, at most so many.
#[derive(Debug)]
pub struct FlowTable {
    flows: LruCache<u64, Flow>,
    max_flows: usize,
}

impl FlowTable {
    /// An empty table for `max_flows` flows; 0 counts as 1. Memory is taken as flows come.
    #[must_use]
    pub fn new(max_flows: usize) -> Self {
        Self { flows: LruCache::unbounded(), max_flows: max_flows.max(1) }
    }

    /// The flow of that cookie, which becomes the most recently sampled.
    pub fn get_mut(&mut self, cookie: u64) -> Option<&mut Flow> {
        self.flows.get_mut(&cookie)
    }

    /// Adds a flow, and returns the one that made room for it.
    pub fn insert(&mut self, flow: Flow) -> Option<Flow> {
        let evicted = if self.flows.len() >= self.max_flows {
            self.flows.pop_lru().map(|(_, flow)| flow)
        } else {
            None
        };
        self.flows.put(flow.sample.cookie, flow);
        evicted
    }

    /// Takes a flow out.
    pub fn remove(&mut self, cookie: u64) -> Option<Flow> {
        self.flows.pop(&cookie)
    }

    /// Forgets every flow.
    pub fn clear(&mut self) {
        self.flows.clear();
    }

    /// The flows, the most recently sampled first.
    pub fn iter(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter().map(|(_, flow)| flow)
    }

    /// How many flows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// How many flows there can be.
    #[must_use]
    pub const fn max_flows(&self) -> usize {
        self.max_flows
    }
}
