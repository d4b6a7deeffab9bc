//! The probes at work on this kernel, and everything that they and the observer find.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use autotune::{
    kernel::running::{BTF_PATH, RunningKernel},
    observe::{Cause, Finding, Growth, Observer, ObserverStats, Verdict},
    probe::{Counters, Probe, ProbeConfig, ProgramStats, TRACEPOINTS},
    sink::growth_log::GrowthRecord,
};
use autotune_common::{Generation, Outcome, ProbeCounter, Sample, SampleKind, sample::DecodeError};

/// No wait takes longer than this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One test at a time: they share the host's tracepoints, and some measure.
pub(crate) struct Turn {
    _one_at_a_time: MutexGuard<'static, ()>,
}

/// The right to run as root, or a line that says why the test is skipped.
pub(crate) fn turn() -> Option<Turn> {
    static TURN: Mutex<()> = Mutex::new(());
    if !nix::unistd::geteuid().is_root() {
        skipped("needs root (CAP_BPF, CAP_PERFMON)");
        return None;
    }
    Some(Turn { _one_at_a_time: lock(&TURN) })
}

/// Says that this test, or a part of it, does not run; past the capture of passing tests' output.
pub(crate) fn skipped(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("live");
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
}

/// How to observe.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) ring_bytes: u32,
    pub(crate) interval: Duration,
    pub(crate) max_flows: usize,
    /// Keep every sample, for a second look.
    pub(crate) keep_samples: bool,
}

impl Default for Setup {
    /// The daemon's defaults.
    fn default() -> Self {
        Self {
            ring_bytes: 4 << 20,
            interval: Duration::from_secs(1),
            max_flows: 131_072,
            keep_samples: true,
        }
    }
}

/// Probes that are attached, and a thread that drains them into an observer.
pub(crate) struct Watch {
    probe: Mutex<Probe>,
    shared: Arc<Shared>,
    drain: JoinHandle<()>,
}

struct Shared {
    seen: Mutex<Seen>,
    stop: AtomicBool,
    pause: AtomicBool,
}

/// What came of the samples so far.
pub(crate) struct Seen {
    pub(crate) observer: Observer,
    pub(crate) findings: Vec<Finding>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) delivered: [u64; SampleKind::ALL.len()],
    pub(crate) undecodable: u64,
}

/// What is known once the probes are detached and the ring is drained.
pub(crate) struct Watched {
    pub(crate) findings: Vec<Finding>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) delivered: [u64; SampleKind::ALL.len()],
    pub(crate) stats: ObserverStats,
    pub(crate) counters: Counters,
    pub(crate) programs: Vec<ProgramStats>,
}

/// What this kernel is.
pub(crate) fn kernel() -> RunningKernel {
    RunningKernel::read(Path::new(BTF_PATH)).expect("this kernel can be observed")
}

/// Observes with the daemon's defaults while `cause` runs, and until the sockets are closed whose cookies
/// it returns.
pub(crate) fn watch(cause: impl FnOnce(&Watch) -> Vec<u64>) -> (Vec<u64>, Watched) {
    let watch = Watch::start(Setup::default());
    let cookies = cause(&watch);
    watch.until_closed(&cookies);
    (cookies, watch.finish())
}

impl Watch {
    /// Loads and attaches the probes, and drains them from now on.
    pub(crate) fn start(setup: Setup) -> Self {
        let generation = kernel().detected.generation;
        let shared = Arc::new(Shared {
            seen: Mutex::new(Seen {
                observer: Observer::new(generation, setup.max_flows),
                findings: Vec::new(),
                samples: Vec::new(),
                delivered: [0; SampleKind::ALL.len()],
                undecodable: 0,
            }),
            stop: AtomicBool::new(false),
            pause: AtomicBool::new(false),
        });
        let (attached, when_attached) = mpsc::channel();
        let drain = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || drain(setup, &shared, &attached)
        });
        let probe = when_attached.recv().expect("the probes are attached");
        Self { probe: Mutex::new(probe), shared, drain }
    }

    /// Lets the ring fill up, or drains it again.
    pub(crate) fn pause(&self, pause: bool) {
        self.shared.pause.store(pause, Ordering::SeqCst);
    }

    /// What was found so far.
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.shared.seen)
    }

    /// Waits until this is so.
    pub(crate) fn until(&self, what: &str, mut so: impl FnMut(&Seen) -> bool) {
        let start = Instant::now();
        while !so(&self.seen()) {
            assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the last samples of these sockets.
    pub(crate) fn until_closed(&self, cookies: &[u64]) {
        self.until("the sockets' close samples", |seen| {
            let closed = |cookie: &u64| {
                seen.findings.iter().any(|finding| {
                    matches!(finding, Finding::Closed(flow) if flow.sample.cookie == *cookie)
                })
            };
            cookies.iter().all(closed)
        });
    }

    /// Detaches the probes and drains what they sent.
    pub(crate) fn finish(self) -> Watched {
        let Self { probe, shared, drain } = self;
        let mut probe = probe.into_inner().expect("no test panicked");
        probe.detach().expect("detached");
        // A program that runs on another CPU right now may still send a sample.
        std::thread::sleep(Duration::from_millis(50));
        shared.stop.store(true, Ordering::SeqCst);
        drain.join().expect("the drain ends");
        let mut seen = lock(&shared.seen);
        assert_eq!(seen.undecodable, 0, "records that are no samples");
        seen.observer.finish();
        seen.poll();
        Watched {
            findings: std::mem::take(&mut seen.findings),
            samples: std::mem::take(&mut seen.samples),
            delivered: seen.delivered,
            stats: seen.observer.stats(),
            counters: probe.counters().expect("counters"),
            programs: probe.program_stats().expect("statistics"),
        }
    }
}

/// Attaches probes and drains them until it is told to stop.
fn drain(setup: Setup, shared: &Shared, attached: &mpsc::Sender<Probe>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let kernel = kernel();
        let mut probe = Probe::load(&ProbeConfig {
            btf: &kernel.btf,
            layout: &kernel.layout.slots,
            ring_bytes: setup.ring_bytes,
            interval: setup.interval,
        })
        .expect("the kernel takes the probes");
        let mut ring = probe.take_samples(Duration::from_millis(10)).expect("a ring");
        probe.attach().expect("the tracepoints exist");
        attached.send(probe).expect("a test that waits");
        loop {
            // What was submitted before the stop is drained below.
            let stop = shared.stop.load(Ordering::SeqCst);
            if stop || !shared.pause.load(Ordering::SeqCst) {
                let mut seen = lock(&shared.seen);
                while ring.drain(4096, |sample| seen.take(sample, setup.keep_samples)).more {}
                seen.poll();
            }
            if stop {
                return;
            }
            let _ = tokio::time::timeout(Duration::from_millis(20), ring.ready()).await;
        }
    });
}

impl Seen {
    fn take(&mut self, sample: Result<Sample, DecodeError>, keep: bool) {
        let Ok(sample) = sample else {
            self.undecodable += 1;
            return;
        };
        self.delivered[sample.kind().index()] += 1;
        if keep {
            self.samples.push(sample);
        }
        self.observer.handle(&sample);
    }

    fn poll(&mut self) {
        while let Some(finding) = self.observer.poll() {
            self.findings.push(finding);
        }
    }
}

impl Watched {
    /// The growths of these sockets that were judged.
    pub(crate) fn growths(&self, cookies: &[u64]) -> Vec<&Growth> {
        growths(&self.findings, cookies)
    }

    /// The samples of these sockets.
    pub(crate) fn samples(&self, cookies: &[u64]) -> Vec<Sample> {
        self.samples.iter().filter(|sample| cookies.contains(&sample.cookie)).copied().collect()
    }

    /// Every growth of these sockets was judged, and the kernel did what the formula says or the
    /// evidence says who else did something. Returns the growths.
    pub(crate) fn all_accounted_for(&self, cookies: &[u64]) -> Vec<&Growth> {
        let growths = self.growths(cookies);
        println!("{}", tally(&growths));
        for growth in &growths {
            match &growth.judgement.verdict {
                Verdict::Exact => {}
                Verdict::Explained(why) => println!("explained: {why}\n{}", shown(growth)),
                Verdict::Divergent | Verdict::Unverified(_) => {
                    panic!("not accounted for: {}\n{growth:#?}", shown(growth))
                }
            }
        }
        let grow_samples =
            self.samples(cookies).iter().filter(|sample| sample.kind() == SampleKind::Grow).count();
        assert_eq!(growths.len(), grow_samples, "each grow sample is judged once");
        growths
    }

    /// Each run of each probe ended in one of its counts, and what was submitted came out of the ring.
    pub(crate) fn assert_books_balance(&self) {
        for kind in SampleKind::ALL {
            let submitted = self.counters.get(ProbeCounter::Submitted(kind));
            assert_eq!(submitted, self.delivered[kind.index()], "{kind:?} samples delivered");
        }
        for program in &self.programs {
            let counts: u64 = of_program(program.name)
                .into_iter()
                .map(|counter| self.counters.get(counter))
                .sum();
            println!("{}: {} runs, {} missed", program.name, program.runs, program.missed);
            assert_eq!(program.runs, counts, "{}: runs against its counts", program.name);
        }
        assert_eq!(
            self.programs.iter().map(|program| program.runs).sum::<u64>(),
            self.counters.events()
        );
    }

    /// Samples that the probes could not send, of all kinds.
    pub(crate) fn lost(&self) -> u64 {
        lost(&self.counters)
    }
}

/// Samples that the probes could not send, of all kinds.
pub(crate) fn lost(counters: &Counters) -> u64 {
    SampleKind::ALL.into_iter().map(|kind| counters.get(ProbeCounter::Lost(kind))).sum()
}

/// The counts that a program's runs end in.
fn of_program(name: &str) -> Vec<ProbeCounter> {
    use ProbeCounter::{CloseNotSampled, Lost, ReadNotSampled, Shed, Submitted};
    use SampleKind::{Close, Grow, Outcome, Periodic};
    match name {
        "tcp_rcvbuf_grow" => vec![Submitted(Grow), Lost(Grow)],
        "tcp_rcv_space_adjust" => vec![
            Submitted(Outcome),
            Submitted(Periodic),
            Lost(Outcome),
            Lost(Periodic),
            Shed,
            ReadNotSampled,
        ],
        "tcp_destroy_sock" => vec![Submitted(Close), Lost(Close), CloseNotSampled],
        name => panic!("{name} is not one of {TRACEPOINTS:?}"),
    }
}

/// The growths of these sockets among the findings.
pub(crate) fn growths<'a>(findings: &'a [Finding], cookies: &[u64]) -> Vec<&'a Growth> {
    findings
        .iter()
        .filter_map(|finding| match finding {
            Finding::Growth(growth) if cookies.contains(&growth.grow.cookie) => Some(&**growth),
            _ => None,
        })
        .collect()
}

/// How many of each outcome, verdict and cause.
pub(crate) fn tally(growths: &[&Growth]) -> String {
    let mut counts = BTreeMap::<_, usize>::new();
    for growth in growths {
        let judgement = &growth.judgement;
        let outcome = judgement.outcome().map_or("unknown", Outcome::as_str);
        let cause = judgement.verdict.cause().map_or("none", Cause::as_str);
        *counts.entry((outcome, judgement.verdict.as_str(), cause)).or_default() += 1;
    }
    format!("{} growths: {counts:?}", growths.len())
}

/// A growth in one line, as the daemon prints it.
pub(crate) fn shown(growth: &Growth) -> String {
    // Text does not name the generation.
    GrowthRecord::new(None, growth).to_string()
}

/// What the observer finds in these samples, if the kernel were of this generation.
pub(crate) fn replay(generation: Generation, samples: &[Sample]) -> Vec<Finding> {
    let mut observer = Observer::new(Some(generation), usize::MAX);
    for sample in samples {
        observer.handle(sample);
    }
    observer.finish();
    std::iter::from_fn(|| observer.poll()).collect()
}

/// The lock, whether or not a test panicked with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
