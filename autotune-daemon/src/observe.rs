//! From samples to verdicts: pure, no clock, no I/O, no async. Time comes in with the samples.
//!
//! [`Observer::handle`] takes one sample and files it under its socket in the [`flow`] table. A sample
//! that follows a grow sample settles it: the [`verdict`] module compares what the formula expects
//! with what the kernel did. [`Observer::poll`] hands out what was found.
//!
//! Live and replay share all of this; they differ only in who calls [`Observer::handle`].

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod flow;
pub mod verdict;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use autotune_common::{Generation, Sample, SampleKind};

pub use flow::{Flow, FlowTable};
pub use verdict::{Cause, Explanation, Field, Growth, Judgement, Observed, Unverified, Verdict};

/// Turns the samples of many sockets into findings.
#[derive(Debug)]
pub struct Observer {
    generation: Option<Generation>,
    flows: FlowTable,
    findings: VecDeque<Finding>,
    stats: ObserverStats,
}

/// Something worth telling a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A growth was judged.
    Growth(Box<Growth>),
    /// Growth events happened whose grow samples were lost: nothing is known of them but their number.
    GrowthsMissed {
        /// How many.
        count: u32,
    },
    /// A socket closed. Carries its last state.
    Closed(Box<Flow>),
}

/// What the observer counts beside its findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObserverStats {
    /// Flows that made room for others before they closed.
    pub flows_evicted: u64,
    /// Gaps in the sockets' sample numbers: samples that the probes tried to send and that never came.
    pub samples_missed: u64,
    /// Samples that came with a number already seen, which were ignored.
    pub samples_out_of_order: u64,
}

impl Observer {
    /// An observer for a kernel of this generation that remembers at most `max_flows` sockets.
    ///
    /// Without a generation every growth is `unverified`.
    #[must_use]
    pub fn new(generation: Option<Generation>, max_flows: usize) -> Self {
        Self {
            generation,
            flows: FlowTable::new(max_flows),
            findings: VecDeque::new(),
            stats: ObserverStats::default(),
        }
    }

    /// Takes the next sample in the order in which the probes sent them.
    pub fn handle(&mut self, sample: &Sample) {
        let kind = sample.kind();
        let Some(flow) = self.flows.get_mut(sample.cookie) else {
            self.missed_before_first(sample, kind);
            if kind == SampleKind::Close {
                self.findings.push_back(Finding::Closed(Box::new(Flow::new(sample))));
            } else if let Some(evicted) = self.flows.insert(Flow::new(sample)) {
                self.stats.flows_evicted += 1;
                self.findings.extend(unsettled(&evicted, self.generation, Unverified::Evicted));
            }
            return;
        };

        let gap = sample.seq.wrapping_sub(flow.sample.seq);
        if gap == 0 || gap > u32::MAX / 2 {
            self.stats.samples_out_of_order += 1;
            return;
        }
        self.stats.samples_missed += u64::from(gap - 1);
        flow.samples_missed = flow.samples_missed.saturating_add(gap - 1);

        if flow.awaits_outcome() {
            let growth = Growth::settled(self.generation, &flow.sample, sample);
            flow.note(&growth);
            self.findings.push_back(Finding::Growth(Box::new(growth)));
        }
        let delivered = u32::from(kind == SampleKind::Grow);
        let missed = sample.growths.wrapping_sub(flow.sample.growths).wrapping_sub(delivered);
        // A count that runs backwards is a corrupt capture's.
        if (1..=u32::MAX / 2).contains(&missed) {
            flow.growths_missed = flow.growths_missed.saturating_add(missed);
            self.findings.push_back(Finding::GrowthsMissed { count: missed });
        }
        flow.sample = *sample;

        if kind == SampleKind::Close
            && let Some(flow) = self.flows.remove(sample.cookie)
        {
            self.findings.push_back(Finding::Closed(Box::new(flow)));
        }
    }

    /// The next finding, oldest first.
    pub fn poll(&mut self) -> Option<Finding> {
        self.findings.pop_front()
    }

    /// No more samples will come: what still waits for an outcome stays unverified.
    pub fn finish(&mut self) {
        for flow in self.flows.iter() {
            self.findings.extend(unsettled(flow, self.generation, Unverified::Stopped));
        }
        self.flows.clear();
    }

    /// The sockets being watched, the most recently sampled first.
    #[must_use]
    pub const fn flows(&self) -> &FlowTable {
        &self.flows
    }

    /// What was counted so far.
    #[must_use]
    pub const fn stats(&self) -> ObserverStats {
        self.stats
    }

    /// Growths of a socket that were lost before its first sample came. Once flows have been evicted
    /// they may have been judged then, so that nothing is counted twice.
    fn missed_before_first(&mut self, sample: &Sample, kind: SampleKind) {
        let delivered = u32::from(kind == SampleKind::Grow);
        let count = sample.growths.saturating_sub(delivered);
        if self.stats.flows_evicted == 0 && count > 0 {
            self.findings.push_back(Finding::GrowthsMissed { count });
        }
    }
}

/// The growth of a flow that will not get its outcome sample.
fn unsettled(flow: &Flow, generation: Option<Generation>, why: Unverified) -> Option<Finding> {
    flow.awaits_outcome()
        .then(|| Finding::Growth(Box::new(Growth::unsettled(generation, &flow.sample, why))))
}
