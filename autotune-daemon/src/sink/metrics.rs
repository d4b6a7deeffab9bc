//! Prometheus metrics: what was found, and what the observer itself costs and loses.
//!
//! No address, port, pid or cookie is a label: each label takes its values from a closed list, so that
//! the number of series does not depend on the traffic.

use std::sync::{Mutex, PoisonError};

use autotune_common::{Generation, ProbeCounter, SampleKind};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder, core::Collector, proto::MetricFamily,
};

use crate::{
    observe::{Finding, Growth, ObserverStats, Verdict},
    probe::{Counters, ProgramStats, TRACEPOINTS},
};

const PREFIX: &str = "tcp_autotune_";

/// `divergence_bytes`: negative where the kernel gave less than the formula, positive where it gave more.
const DIVERGENCE_BUCKETS: [f64; 13] = [
    -16_777_216.0,
    -1_048_576.0,
    -65_536.0,
    -4096.0,
    -1.0,
    0.0,
    4096.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// `rcvbuf_bytes`: 4 KiB to 256 MiB, a power of two each.
const RCVBUF_BUCKETS: [f64; 17] = [
    4096.0,
    8192.0,
    16_384.0,
    32_768.0,
    65_536.0,
    131_072.0,
    262_144.0,
    524_288.0,
    1_048_576.0,
    2_097_152.0,
    4_194_304.0,
    8_388_608.0,
    16_777_216.0,
    33_554_432.0,
    67_108_864.0,
    134_217_728.0,
    268_435_456.0,
];

/// `rtt_seconds`: 10 us to 1 s.
const RTT_BUCKETS: [f64; 16] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.25, 0.5, 1.0,
];

/// The metrics of one observer, in a registry of their own.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    growths: IntCounterVec,
    divergence: Histogram,
    rcvbuf: HistogramVec,
    rtt: HistogramVec,
    samples: [IntCounter; SampleKind::ALL.len()],
    undecodable: IntCounter,
    ring_used: IntGauge,
    state: StateCollector,
}

/// State that lives elsewhere and is read when a scrape comes.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Sockets being watched.
    pub flows: usize,
    /// What the observer counted.
    pub observer: ObserverStats,
    /// What the probes counted.
    pub counters: Counters,
    /// What the kernel knows of the programs.
    pub programs: Vec<ProgramStats>,
    /// Memory of the BPF maps, bytes.
    pub map_memory: u64,
    /// Lines of the growth log that nobody took.
    pub growth_lines_dropped: u64,
}

impl Metrics {
    /// Metrics that name this kernel and this build.
    ///
    /// # Errors
    /// When two metrics have the same name, which a test excludes.
    pub fn new(release: &str, generation: Option<Generation>) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let growths = IntCounterVec::new(
            opts(
                "growths_total",
                "Receive buffer growths by what the kernel's formula said, whether the kernel did it, \
                 and what explains a difference or kept it from being checked.",
            ),
            &["outcome", "verdict", "cause"],
        )?;
        // So that a first divergence is an increase from 0 and not a new series.
        for outcome in autotune_common::Outcome::ALL {
            for verdict in [Verdict::Exact, Verdict::Divergent] {
                growths.with_label_values(&[outcome.as_str(), verdict.as_str(), "none"]);
            }
        }
        let divergence = Histogram::with_opts(histogram(
            "divergence_bytes",
            "Observed less expected receive buffer, in bytes, of growths that were not exact.",
            &DIVERGENCE_BUCKETS,
        ))?;
        let rcvbuf = HistogramVec::new(
            histogram("rcvbuf_bytes", "Receive buffer (sk_rcvbuf) of a socket.", &RCVBUF_BUCKETS),
            &["at"],
        )?;
        let rtt = HistogramVec::new(
            histogram(
                "rtt_seconds",
                "Receiver's round-trip estimate of a socket, where it had one.",
                &RTT_BUCKETS,
            ),
            &["at"],
        )?;
        for by_time in [&rcvbuf, &rtt] {
            by_time.with_label_values(&["close"]);
        }
        let samples = IntCounterVec::new(
            opts("samples_total", "Samples that reached the observer, by why they were taken."),
            &["kind"],
        )?;
        let undecodable = IntCounter::with_opts(opts(
            "samples_undecodable_total",
            "Records of the ring buffer that were not samples: always 0 unless the build is broken.",
        ))?;
        let ring_used = IntGauge::with_opts(opts(
            "ring_used_bytes",
            "Samples that waited in the ring buffer when it was last drained, in bytes.",
        ))?;
        // The probes count them, so that no later sample of the socket is needed.
        let growths_lost = growths.with_label_values(&["unknown", "unverified", "samples_lost"]);
        let state = StateCollector::new(growths_lost)?;

        let kernel_info = info(
            "kernel_info",
            "The running kernel and its growth formula.",
            &[
                ("release", release),
                ("generation", generation.map_or("unknown", Generation::as_str)),
            ],
        )?;
        let build_info = info(
            "build_info",
            "The build that is running.",
            &[("version", env!("CARGO_PKG_VERSION")), ("revision", env!("AUTOTUNE_REVISION"))],
        )?;
        let collectors: [Box<dyn Collector>; 10] = [
            Box::new(growths.clone()),
            Box::new(divergence.clone()),
            Box::new(rcvbuf.clone()),
            Box::new(rtt.clone()),
            Box::new(samples.clone()),
            Box::new(undecodable.clone()),
            Box::new(ring_used.clone()),
            Box::new(kernel_info),
            Box::new(build_info),
            Box::new(prometheus::process_collector::ProcessCollector::for_self()),
        ];
        for collector in collectors {
            registry.register(collector)?;
        }
        let samples = SampleKind::ALL.map(|kind| samples.with_label_values(&[kind.as_str()]));
        Ok(Self {
            registry,
            growths,
            divergence,
            rcvbuf,
            rtt,
            samples,
            undecodable,
            ring_used,
            state,
        })
    }

    /// Counts a sample of the ring buffer.
    pub fn sample(&self, kind: SampleKind) {
        if let Some(counter) = self.samples.get(kind.index()) {
            counter.inc();
        }
    }

    /// Counts a record of the ring buffer that is no sample.
    pub fn undecodable(&self) {
        self.undecodable.inc();
    }

    /// Notes how much waited in the ring buffer.
    pub fn ring_used(&self, bytes: usize) {
        self.ring_used.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts a finding.
    pub fn finding(&self, finding: &Finding) {
        match finding {
            Finding::Growth(growth) => self.growth(growth),
            // The probes count them, whether or not a later sample of the socket tells of them.
            Finding::GrowthsMissed { .. } => {}
            Finding::Closed(flow) => {
                let at = &["close"];
                self.rcvbuf.with_label_values(at).observe(f64::from(flow.sample.rcvbuf));
                if flow.sample.rtt_us > 0 {
                    let seconds = f64::from(flow.sample.rtt_us) / 1e6;
                    self.rtt.with_label_values(at).observe(seconds);
                }
            }
        }
    }

    fn growth(&self, growth: &Growth) {
        let judgement = &growth.judgement;
        let outcome = judgement.outcome().map_or("unknown", autotune_common::Outcome::as_str);
        let cause = judgement.verdict.cause().map_or("none", crate::observe::Cause::as_str);
        self.growths.with_label_values(&[outcome, judgement.verdict.as_str(), cause]).inc();
        if let (Verdict::Explained(_) | Verdict::Divergent, Some(bytes)) =
            (&judgement.verdict, judgement.divergence())
        {
            #[expect(clippy::cast_precision_loss, reason = "below 2^33, which f64 holds exactly")]
            self.divergence.observe(bytes as f64);
        }
    }

    /// All metrics in the Prometheus text format, with `state` as it is now.
    ///
    /// # Errors
    /// When a metric cannot be encoded.
    pub fn render(&self, state: &State) -> prometheus::Result<String> {
        // First, as it sets one of the registry's counters too.
        let mut families = self.state.collect(state);
        families.extend(self.registry.gather());
        families.sort_by(|a, b| a.name().cmp(b.name()));
        TextEncoder::new().encode_to_string(&families)
    }
}

/// Metrics of [`State`]: set and collected in one go for each scrape.
#[derive(Debug)]
struct StateCollector {
    metrics: Mutex<StateMetrics>,
}

#[derive(Debug)]
struct StateMetrics {
    /// Belongs to `growths_total`, which the registry collects.
    growths_lost: IntCounter,
    flows: IntGauge,
    flows_evicted: IntCounter,
    samples_lost: IntCounterVec,
    samples_shed: IntCounter,
    samples_missed: IntCounter,
    samples_out_of_order: IntCounter,
    events_not_sampled: IntCounterVec,
    program_runs: IntCounterVec,
    program_seconds: prometheus::CounterVec,
    program_missed: IntCounterVec,
    map_memory: IntGauge,
    growth_lines_dropped: IntCounter,
}

impl StateCollector {
    fn new(growths_lost: IntCounter) -> prometheus::Result<Self> {
        let metrics = StateMetrics {
            growths_lost,
            flows: IntGauge::with_opts(opts("flows", "Sockets being watched."))?,
            flows_evicted: IntCounter::with_opts(opts(
                "flows_evicted_total",
                "Sockets that were forgotten before they closed, to make room for others.",
            ))?,
            samples_lost: IntCounterVec::new(
                opts(
                    "samples_lost_total",
                    "Samples that the probes could not deliver, because the ring buffer was full or \
                     the kernel had no memory for a socket's state.",
                ),
                &["kind"],
            )?,
            samples_shed: IntCounter::with_opts(opts(
                "samples_shed_total",
                "Periodic samples deliberately not taken while the ring buffer was half full.",
            ))?,
            samples_missed: IntCounter::with_opts(opts(
                "samples_missed_total",
                "Gaps in the sockets' sample numbers, as the observer sees the lost samples.",
            ))?,
            samples_out_of_order: IntCounter::with_opts(opts(
                "samples_out_of_order_total",
                "Samples with a number already seen, which were ignored.",
            ))?,
            events_not_sampled: IntCounterVec::new(
                opts(
                    "events_not_sampled_total",
                    "Events of which no sample was due, by tracepoint. Events = samples + lost + shed \
                     + not sampled.",
                ),
                &["tracepoint"],
            )?,
            program_runs: IntCounterVec::new(
                opts(
                    "probe_runs_total",
                    "Runs of a probe, counted by the kernel only while kernel.bpf_stats_enabled is 1.",
                ),
                &["program"],
            )?,
            program_seconds: prometheus::CounterVec::new(
                opts(
                    "probe_seconds_total",
                    "Time spent in a probe, measured by the kernel only while \
                     kernel.bpf_stats_enabled is 1.",
                ),
                &["program"],
            )?,
            program_missed: IntCounterVec::new(
                opts(
                    "probe_missed_total",
                    "Events that the kernel did not hand to a probe, because it was already running \
                     on that CPU.",
                ),
                &["program"],
            )?,
            map_memory: IntGauge::with_opts(opts(
                "map_memory_bytes",
                "Kernel memory of the BPF maps, which is not part of the resident set.",
            ))?,
            growth_lines_dropped: IntCounter::with_opts(opts(
                "growth_lines_dropped_total",
                "Lines of the growth log (--growths) that its reader did not take in time.",
            ))?,
        };
        Ok(Self { metrics: Mutex::new(metrics) })
    }

    /// Every family, with the values of `state`.
    fn collect(&self, state: &State) -> Vec<MetricFamily> {
        // Set and read under one lock, so that two scrapes at once do not mix.
        let metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        let StateMetrics {
            growths_lost,
            flows,
            flows_evicted,
            samples_lost,
            samples_shed,
            samples_missed,
            samples_out_of_order,
            events_not_sampled,
            program_runs,
            program_seconds,
            program_missed,
            map_memory,
            growth_lines_dropped,
        } = &*metrics;
        let lost = state.counters.get(ProbeCounter::Lost(SampleKind::Grow));
        growths_lost.inc_by(lost.saturating_sub(growths_lost.get()));
        set(growth_lines_dropped, state.growth_lines_dropped);
        flows.set(i64::try_from(state.flows).unwrap_or(i64::MAX));
        set(flows_evicted, state.observer.flows_evicted);
        set(samples_missed, state.observer.samples_missed);
        set(samples_out_of_order, state.observer.samples_out_of_order);
        for kind in SampleKind::ALL {
            let lost = state.counters.get(ProbeCounter::Lost(kind));
            set(&samples_lost.with_label_values(&[kind.as_str()]), lost);
        }
        set(samples_shed, state.counters.get(ProbeCounter::Shed));
        for (tracepoint, counter) in [
            (TRACEPOINTS[0], ProbeCounter::ReadNotSampled),
            (TRACEPOINTS[1], ProbeCounter::CloseNotSampled),
        ] {
            set(&events_not_sampled.with_label_values(&[tracepoint]), state.counters.get(counter));
        }
        for program in &state.programs {
            let label = &[program.name];
            set(&program_runs.with_label_values(label), program.runs);
            set(&program_missed.with_label_values(label), program.missed);
            let seconds = program_seconds.with_label_values(label);
            seconds.reset();
            seconds.inc_by(program.run_time.as_secs_f64());
        }
        map_memory.set(i64::try_from(state.map_memory).unwrap_or(i64::MAX));

        let collectors: [&dyn Collector; 12] = [
            flows,
            flows_evicted,
            samples_lost,
            samples_shed,
            samples_missed,
            samples_out_of_order,
            events_not_sampled,
            program_runs,
            program_seconds,
            program_missed,
            map_memory,
            growth_lines_dropped,
        ];
        // A family without a value yet cannot be encoded.
        collectors
            .into_iter()
            .flat_map(Collector::collect)
            .filter(|family| !family.get_metric().is_empty())
            .collect()
    }
}

/// Sets a counter to a count that is kept elsewhere.
fn set(counter: &IntCounter, value: u64) {
    counter.reset();
    counter.inc_by(value);
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("{PREFIX}{name}"), help)
}

fn histogram(name: &str, help: &str, buckets: &[f64]) -> HistogramOpts {
    HistogramOpts { common_opts: opts(name, help), buckets: buckets.to_vec() }
}

/// A gauge of value 1 that carries labels.
fn info(name: &str, help: &str, labels: &[(&str, &str)]) -> prometheus::Result<IntGaugeVec> {
    let (names, values): (Vec<_>, Vec<_>) = labels.iter().copied().unzip();
    let gauge = IntGaugeVec::new(opts(name, help), &names)?;
    gauge.with_label_values(&values).set(1);
    Ok(gauge)
}

#[cfg(test)]
mod tests {
    use autotune_common::{Sample, sample::SAMPLE_VERSION};

    use super::*;
    use crate::observe::{Cause, Flow, Observer};

    fn metrics() -> Metrics {
        Metrics::new("6.18.0-test", Some(Generation::V6_18)).unwrap()
    }

    fn value(text: &str, series: &str) -> Option<f64> {
        text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    fn series(text: &str) -> Vec<&str> {
        text.lines().filter(|line| !line.starts_with('#')).collect()
    }

    /// A growth that the kernel did not do, found through the observer.
    fn divergent() -> Vec<Finding> {
        let grow = Sample {
            version: SAMPLE_VERSION,
            kind: SampleKind::Grow as u8,
            seq: 1,
            growths: 1,
            copied: 131_072,
            inq: 61_440,
            space: 65_483,
            scaling_ratio: 251,
            rcvbuf: 131_072,
            window_clamp: 128_512,
            tcp_rmem: [4096, 131_072, 33_554_432],
            tcp_moderate_rcvbuf: 1,
            ..Sample::ZERO
        };
        let mut observer = Observer::new(Some(Generation::V6_18), 1);
        observer.handle(&grow);
        observer.handle(&Sample { kind: SampleKind::Close as u8, seq: 2, rtt_us: 250, ..grow });
        std::iter::from_fn(|| observer.poll()).collect()
    }

    #[test]
    fn findings_are_counted_under_their_names() {
        let metrics = metrics();
        for finding in divergent() {
            metrics.finding(&finding);
        }
        let mut counts = [0; ProbeCounter::COUNT];
        counts[ProbeCounter::Lost(SampleKind::Grow).index()] = 7;
        let state = State { counters: Counters::from(counts), ..State::default() };
        // Scrapes at once count each loss once.
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| metrics.render(&state).unwrap());
            }
        });
        let text = metrics.render(&state).unwrap();
        let growths =
            |labels: &str| value(&text, &format!("tcp_autotune_growths_total{{{labels}}}"));
        assert_eq!(growths(r#"cause="none",outcome="grow",verdict="divergent""#), Some(1.0));
        assert_eq!(
            growths(r#"cause="samples_lost",outcome="unknown",verdict="unverified""#),
            Some(7.0)
        );
        // Expected 160035 and observed 131072.
        assert_eq!(value(&text, "tcp_autotune_divergence_bytes_sum"), Some(-28_963.0));
        assert_eq!(value(&text, r#"tcp_autotune_rcvbuf_bytes_sum{at="close"}"#), Some(131_072.0));
        assert_eq!(value(&text, r#"tcp_autotune_rtt_seconds_sum{at="close"}"#), Some(0.000_25));
    }

    #[test]
    fn state_is_shown_as_it_is_at_the_scrape() {
        let metrics = metrics();
        let state = State { flows: 3, map_memory: 4096, ..State::default() };
        for flows in [3, 9, 2] {
            let text = metrics.render(&State { flows, ..state.clone() }).unwrap();
            assert_eq!(value(&text, "tcp_autotune_flows"), Some(f64::from(flows as u32)));
            assert_eq!(value(&text, "tcp_autotune_map_memory_bytes"), Some(4096.0));
        }
    }

    #[test]
    fn every_family_is_explained_by_a_sentence() {
        let text = metrics().render(&State::default()).unwrap();
        for line in text.lines().filter(|line| line.starts_with("# HELP tcp_autotune_")) {
            assert!(line.ends_with('.'), "{line}");
        }
        let types = text.lines().filter(|line| line.starts_with("# TYPE")).count();
        assert_eq!(text.lines().filter(|line| line.starts_with("# HELP")).count(), types);
    }

    #[test]
    fn the_number_of_series_does_not_depend_on_the_traffic() {
        let metrics = metrics();
        let programs: Vec<ProgramStats> = TRACEPOINTS
            .iter()
            .map(|&name| ProgramStats {
                name,
                runs: 1,
                run_time: std::time::Duration::from_secs(1),
                missed: 0,
                verified_instructions: 1,
                jited_bytes: 1,
            })
            .collect();
        let state = State { programs, ..State::default() };
        // Everything that can ever be counted.
        for outcome in autotune_common::Outcome::ALL {
            for cause in Cause::ALL {
                for verdict in ["explained", "unverified"] {
                    let labels = [outcome.as_str(), verdict, cause.as_str()];
                    metrics.growths.with_label_values(&labels).inc();
                }
            }
        }
        metrics.finding(&Finding::GrowthsMissed { count: 1 });
        let most = series(&metrics.render(&state).unwrap()).len();
        assert!(most < 300, "{most} series");
        // Many sockets with addresses, ports, pids and cookies of their own.
        for cookie in 1..2000_u64 {
            let sample = Sample {
                cookie,
                pid: cookie as u32,
                remote_port: cookie as u16,
                rcvbuf: 1 << (cookie % 30),
                rtt_us: cookie as u32,
                ..Sample::ZERO
            };
            metrics.finding(&Finding::Closed(Box::new(Flow::new(&sample))));
        }
        assert_eq!(series(&metrics.render(&state).unwrap()).len(), most);
    }

    #[test]
    fn labels_are_from_a_closed_list() {
        let text = metrics().render(&State::default()).unwrap();
        for line in series(&text) {
            for label in line.split(['{', ',']).filter_map(|part| part.split_once("=\"")) {
                assert!(
                    matches!(
                        label.0,
                        "outcome"
                            | "verdict"
                            | "cause"
                            | "at"
                            | "le"
                            | "kind"
                            | "tracepoint"
                            | "program"
                            | "release"
                            | "generation"
                            | "version"
                            | "revision"
                    ),
                    "{line}"
                );
            }
        }
    }
}
