//! `autotune daemon`: observes, and serves what it finds.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use autotune_common::Generation;
use clap::{Args, ValueEnum};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tracing::{error, info, warn};

use super::{KernelArgs, doctor};
use crate::{
    exit::{Failure, Status},
    kernel::{preflight, running::RunningKernel},
    observe::{Finding, Growth, Observer},
    probe::{self, Probe, ProbeConfig, ProbeError},
    serve::http::{self, Pages},
    sink::{
        growth_log::GrowthRecord,
        growth_writer::GrowthWriter,
        metrics::{Metrics, State},
    },
    source::ring::SampleRing,
};

/// Records taken from the ring before others get a turn.
const DRAIN_LIMIT: usize = 4096;

/// How long the growth log's reader may take for the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The drain loop turns at least once a second; without a turn for this long it is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// Options of `autotune daemon`.
#[derive(Args, Debug)]
pub struct DaemonArgs {
    /// The kernel.
    #[command(flatten)]
    pub kernel: KernelArgs,
    /// Address to serve on, host:port; can be given several times. Port 0 takes a free one.
    #[arg(long = "web.listen-address", value_name = "ADDRESS", default_value = "127.0.0.1:9987")]
    pub listen_addresses: Vec<String>,
    /// Print each growth that was judged on stdout.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub growths: Option<GrowthFormat>,
    /// Sockets to remember; each takes some 350 bytes. Beyond that the least recently sampled goes.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 131_072,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub max_flows: u32,
    /// Size of the ring buffer in KiB: a power of two from 4 to 1048576.
    #[arg(long = "ring.size", value_name = "KIB", default_value_t = 4096, value_parser = ring_kib)]
    pub ring_kib: u32,
    /// Milliseconds to let samples gather after a wake-up.
    #[arg(
        long = "ring.rest",
        value_name = "MS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(0..=1000)
    )]
    pub ring_rest_ms: u64,
    /// Milliseconds between two periodic samples of a socket, at least.
    #[arg(
        long = "sample.interval",
        value_name = "MS",
        default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..=3_600_000)
    )]
    pub interval_ms: u64,
}

/// How growths are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GrowthFormat {
    /// A line a growth, for people.
    Text,
    /// A JSON object a line.
    Json,
}

/// Observes until SIGINT or SIGTERM.
///
/// # Errors
/// When this kernel or this process cannot observe, an address cannot be bound, or observing fails.
pub fn run(args: &DaemonArgs, verbose: bool) -> Result<Status, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the runtime")?;
    runtime.block_on(observe(args, verbose))
}

async fn observe(args: &DaemonArgs, verbose: bool) -> Result<Status, Failure> {
    let kernel = preflight::pass(&args.kernel.btf).map_err(doctor::refused)?;
    let generation = args.kernel.generation.resolve(kernel.detected.generation);
    let listeners = bind(&args.listen_addresses).await?;
    let mut stop = Stop::new().context("watching for signals")?;

    let mut probe = Probe::load(&ProbeConfig {
        btf: &kernel.btf,
        layout: &kernel.layout.slots,
        ring_bytes: args.ring_kib * 1024,
        interval: Duration::from_millis(args.interval_ms),
    })
    .map_err(|error| refused(error, verbose))?;
    let RunningKernel { release, detected, .. } = kernel;

    let mut ring = probe
        .take_samples(Duration::from_millis(args.ring_rest_ms))
        .map_err(|error| refused(error, verbose))?;
    let mut tasks = JoinSet::new();
    #[cfg(feature = "probe-log")]
    {
        let log = probe.take_log().map_err(|error| refused(error, verbose))?;
        tasks.spawn(async move { log.forward().await.context("reading the probes' log") });
    }
    probe.attach().map_err(|error| refused(error, verbose))?;

    let daemon = Arc::new(Daemon {
        observer: Mutex::new(Observer::new(generation, args.max_flows as usize)),
        probe: Mutex::new(probe),
        metrics: Metrics::new(&release, generation).context("making the metrics")?,
        generation,
        release,
        log: args.growths.map(GrowthLog::start).transpose()?,
        started: Instant::now(),
        turned_ms: AtomicU64::new(0),
    });
    info!("observing kernel {}: {}", daemon.release, detected.evidence);
    if generation != detected.generation {
        warn!("comparing with generation {} by option", generation_name(generation));
    }
    for listener in listeners {
        let address = listener.local_addr().context("asking for the port")?;
        info!("serving on http://{address}");
        let pages: Arc<dyn Pages> = Arc::<Daemon>::clone(&daemon);
        tasks.spawn(async move {
            http::serve(listener, pages).await.with_context(|| format!("serving on {address}"))
        });
    }

    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut more = false;
    loop {
        // In this order, so that no load keeps a signal waiting.
        tokio::select! {
            biased;
            signal = stop.wait() => {
                info!("{signal}: stopping");
                break;
            }
            Some(ended) = tasks.join_next() => ended.context("a task ended")??,
            () = tokio::task::yield_now(), if more => {}
            woken = ring.ready(), if !more => woken.context("waiting for samples")?,
            _ = tick.tick() => {}
        }
        more = daemon.turn(&mut ring)?;
    }

    lock(&daemon.probe).detach()?;
    while daemon.turn(&mut ring)? {}
    daemon.finish()?;
    tasks.shutdown().await;
    if let Some(GrowthLog { writer, .. }) = Arc::into_inner(daemon).and_then(|daemon| daemon.log) {
        writer.finish(LAST_LINES);
    }
    Ok(Status::Ok)
}

/// How growths are printed, and where.
struct GrowthLog {
    format: GrowthFormat,
    writer: GrowthWriter,
}

impl GrowthLog {
    fn start(format: GrowthFormat) -> anyhow::Result<Self> {
        let writer = GrowthWriter::start(std::io::stdout()).context("starting the growth log")?;
        Ok(Self { format, writer })
    }

    /// The growth as a line, without its end.
    fn line(&self, generation: Option<Generation>, growth: &Growth) -> anyhow::Result<String> {
        let record = GrowthRecord::new(generation, growth);
        Ok(match self.format {
            GrowthFormat::Text => record.to_string(),
            GrowthFormat::Json => serde_json::to_string(&record)?,
        })
    }
}

/// What the drain loop and the pages share.
struct Daemon {
    observer: Mutex<Observer>,
    probe: Mutex<Probe>,
    metrics: Metrics,
    generation: Option<Generation>,
    release: String,
    log: Option<GrowthLog>,
    started: Instant,
    /// When the drain loop last turned, milliseconds since the start.
    turned_ms: AtomicU64,
}

impl Daemon {
    /// Drains some samples and tells the sinks. Whether there may be more.
    fn turn(&self, ring: &mut SampleRing) -> anyhow::Result<bool> {
        let mut observer = lock(&self.observer);
        let drained = ring.drain(DRAIN_LIMIT, |sample| match sample {
            Ok(sample) => {
                self.metrics.sample(sample.kind());
                observer.handle(&sample);
            }
            Err(error) => {
                self.metrics.undecodable();
                error!("a record of the ring buffer is no sample: {error}");
            }
        });
        self.metrics.ring_used(drained.bytes);
        self.tell(&mut observer)?;
        self.turned_ms.store(self.uptime_ms(), Ordering::Relaxed);
        Ok(drained.more)
    }

    /// No more samples will come.
    fn finish(&self) -> anyhow::Result<()> {
        let mut observer = lock(&self.observer);
        observer.finish();
        self.tell(&mut observer)
    }

    fn tell(&self, observer: &mut Observer) -> anyhow::Result<()> {
        let (mut text, mut lines) = (String::new(), 0);
        while let Some(finding) = observer.poll() {
            self.metrics.finding(&finding);
            if let (Finding::Growth(growth), Some(log)) = (&finding, &self.log) {
                text.push_str(&log.line(self.generation, growth)?);
                text.push('\n');
                lines += 1;
            }
        }
        if let (1.., Some(log)) = (lines, &self.log) {
            log.writer.print(text, lines);
        }
        Ok(())
    }

    fn uptime_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Pages for Daemon {
    fn metrics(&self) -> Result<String, String> {
        let state = {
            let probe = lock(&self.probe);
            State {
                counters: probe.counters().map_err(|error| error.to_string())?,
                programs: probe.program_stats().map_err(|error| error.to_string())?,
                map_memory: probe::map_memory().map_err(|error| error.to_string())?,
                growth_lines_dropped: self.log.as_ref().map_or(0, |log| log.writer.dropped()),
                ..State::default()
            }
        };
        let (flows, observer) = {
            let observer = lock(&self.observer);
            (observer.flows().len(), observer.stats())
        };
        self.metrics.render(&State { flows, observer, ..state }).map_err(|error| error.to_string())
    }

    fn ready(&self) -> Result<(), String> {
        if !lock(&self.probe).is_attached() {
            return Err("the probes are not attached".to_owned());
        }
        let since = self.uptime_ms().saturating_sub(self.turned_ms.load(Ordering::Relaxed));
        if u128::from(since) > STUCK_AFTER.as_millis() {
            return Err(format!("the ring buffer was last drained {since} ms ago"));
        }
        Ok(())
    }

    fn summary(&self) -> String {
        format!(
            "kernel {}, generation {}, {} sockets watched",
            self.release,
            generation_name(self.generation),
            lock(&self.observer).flows().len()
        )
    }
}

/// SIGINT and SIGTERM.
struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn wait(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

async fn bind(addresses: &[String]) -> Result<Vec<TcpListener>, Failure> {
    let mut listeners = Vec::new();
    for address in addresses {
        let bound = http::bind(address).await;
        if let Err(error) = &bound
            && error.kind() == std::io::ErrorKind::InvalidInput
        {
            let error = anyhow!("--web.listen-address {address:?} is not host:port: {error}");
            return Err(Failure::new(Status::Usage, error));
        }
        listeners.extend(
            bound.with_context(|| format!("cannot listen on {address} (--web.listen-address)"))?,
        );
    }
    Ok(listeners)
}

fn refused(error: ProbeError, verbose: bool) -> Failure {
    match error {
        ProbeError::NotPermitted { .. } => Failure::new(Status::NotPermitted, error),
        ProbeError::NoTracepoint { .. } => Failure::new(Status::Unsupported, error),
        ProbeError::Rejected { ref verifier_log, .. } => {
            let hint = if verbose {
                // The reason is in the last lines; the whole is as long as the program.
                let lines: Vec<&str> = verifier_log.lines().collect();
                format!("\n{}", lines[lines.len().saturating_sub(20)..].join("\n"))
            } else {
                " (-v shows what the verifier printed)".to_owned()
            };
            Failure::new(Status::Failed, anyhow!("{error}{hint}"))
        }
        ProbeError::Other { .. } => Failure::new(Status::Failed, error),
    }
}

fn ring_kib(value: &str) -> Result<u32, String> {
    let kib: u32 = value.parse().map_err(|error| format!("{error}"))?;
    if (4..=1_048_576).contains(&kib) && kib.is_power_of_two() {
        Ok(kib)
    } else {
        Err("not a power of two from 4 to 1048576".to_owned())
    }
}

fn generation_name(generation: Option<Generation>) -> &'static str {
    generation.map_or("unknown", Generation::as_str)
}

/// A panic elsewhere leaves counts at worst one off, so that its poison does not matter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
