//! What the observer costs, measured on the running kernel in one run: differences and ratios.
//!
//! Needs root. `cargo bench -p autotune-daemon --bench cost`

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::{
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use autotune::{
    kernel::running::{BTF_PATH, RunningKernel},
    observe::Observer,
    probe::{Probe, ProbeConfig, count_runs},
};
use autotune_common::{Generation, ProbeCounter, Sample, SampleKind, sample::SAMPLE_VERSION};
use aya::{Btf, Ebpf, EbpfLoader, programs::BtfTracePoint};

const READS: &str = "tcp_rcv_space_adjust";
const READ_SIZES: [(usize, &str); 3] = [(4096, "4 KiB"), (65_536, "64 KiB"), (1 << 20, "1 MiB")];
const PAIRS: usize = 20;

fn main() -> Result<()> {
    // cargo passes --bench, and tests of a bench target get no figures.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    if !nix::unistd::geteuid().is_root() {
        bail!("the kernel's part of the benchmark needs root");
    }
    let kernel = RunningKernel::read(Path::new(BTF_PATH))?;
    println!("kernel {}, generation {:?}", kernel.release, kernel.detected.generation);
    // Before anything else has left free memory behind.
    memory(&kernel)?;
    programs(&kernel)?;
    throughput(&kernel)?;
    pipeline();
    Ok(())
}

/// Nanoseconds per run of the read probe, and of an empty program on the same tracepoint.
fn programs(kernel: &RunningKernel) -> Result<()> {
    println!(
        "\nns per run of tcp_rcv_space_adjust, beside an empty program on the same tracepoint"
    );
    println!("(the kernel's own run-time statistics, which cost some 20 ns a run themselves)\n");
    println!("| reads | sampled | runs | empty | probe | over empty |");
    println!("|---|---|---|---|---|---|");
    for (interval, sampled) in
        [(Duration::from_secs(1), "1 a second"), (Duration::ZERO, "every read")]
    {
        for (size, name) in READ_SIZES {
            let measured = with_probe(kernel, interval, |probe| {
                let empty = Empty::load(kernel)?;
                let _counting = count_runs()?;
                let before = (of_probe(probe)?, empty.runs()?);
                drive(size, Duration::from_secs(3))?;
                let after = (of_probe(probe)?, empty.runs()?);
                Ok((after.0 - before.0, after.1 - before.1))
            })?;
            let (probe, empty) = (measured.0.nanos(), measured.1.nanos());
            println!(
                "| {name} | {sampled} | {} | {empty:.1} | {probe:.1} | {:+.1} |",
                measured.0.runs,
                probe - empty
            );
        }
    }
    Ok(())
}

/// Loopback throughput with the probes attached against without, in pairs.
fn throughput(kernel: &RunningKernel) -> Result<()> {
    println!("\nloopback throughput with the observer on, against off ({PAIRS} pairs of 1 s)\n");
    println!("| reads | off, Gbit/s | median of on/off | least | most |");
    println!("|---|---|---|---|---|");
    for (size, name) in READ_SIZES {
        let mut ratios = Vec::new();
        let mut off_total = 0.0;
        for pair in 0..PAIRS {
            let on = || with_probe(kernel, Duration::from_secs(1), |_| drive(size, PERIOD));
            // Whichever goes first has the machine as the pair before left it.
            let (on, off) = if pair % 2 == 0 {
                let on = on()?;
                (on, drive(size, PERIOD)?)
            } else {
                let off = drive(size, PERIOD)?;
                (on()?, off)
            };
            ratios.push(on / off);
            off_total += off;
        }
        ratios.sort_by(f64::total_cmp);
        let middle = (ratios[PAIRS / 2 - 1] + ratios[PAIRS / 2]) / 2.0;
        println!(
            "| {name} | {:.1} | {middle:.4} | {:.4} | {:.4} |",
            off_total / PAIRS as f64 * 8.0 / 1e9,
            ratios[0],
            ratios[PAIRS - 1]
        );
    }
    Ok(())
}

const PERIOD: Duration = Duration::from_secs(1);

/// Samples a second from record to verdict, on one core.
fn pipeline() {
    println!("\nuser space, record to verdict, one core\n");
    println!("| flows | samples | growths | samples/s |");
    println!("|---|---|---|---|");
    for flows in [1000_u64, 10_000, 100_000] {
        let records = records(flows);
        let mut observer = Observer::new(Some(Generation::V6_18), 131_072);
        let mut growths = 0_u64;
        let start = Instant::now();
        for record in &records {
            if let Ok(sample) = Sample::decode(record) {
                observer.handle(&sample);
            }
            while let Some(finding) = observer.poll() {
                growths += u64::from(matches!(finding, autotune::observe::Finding::Growth(_)));
            }
        }
        let rate = records.len() as f64 / start.elapsed().as_secs_f64();
        println!("| {flows} | {} | {growths} | {:.2} million |", records.len(), rate / 1e6);
    }
}

/// Records as many sockets would send them: one in ten a growth, each with its outcome.
fn records(flows: u64) -> Vec<[u8; Sample::SIZE]> {
    let rounds = (2_000_000 / flows).clamp(10, 200);
    let mut records = Vec::new();
    let (mut growths, mut last) = (0, SampleKind::Periodic);
    for round in 0..rounds {
        let kind = match (round % 10, last) {
            (_, SampleKind::Grow) => SampleKind::Outcome,
            (1, _) => SampleKind::Grow,
            _ => SampleKind::Periodic,
        };
        growths += u32::from(kind == SampleKind::Grow);
        last = kind;
        for flow in 0..flows {
            records.push(sample(flow, round as u32 + 1, growths, kind).to_ne_bytes());
        }
    }
    records
}

fn sample(flow: u64, seq: u32, growths: u32, kind: SampleKind) -> Sample {
    Sample {
        version: SAMPLE_VERSION,
        kind: kind as u8,
        cookie: flow + 1,
        seq,
        growths,
        copied: 131_072,
        inq: 61_440,
        space: 65_483,
        scaling_ratio: 251,
        rcvbuf: if kind == SampleKind::Grow { 131_072 } else { 160_035 },
        window_clamp: if kind == SampleKind::Grow { 128_512 } else { 156_909 },
        tcp_rmem: [4096, 131_072, 33_554_432],
        tcp_moderate_rcvbuf: 1,
        ..Sample::ZERO
    }
}

/// Resident memory of a process that loaded the probes and remembers so many sockets.
fn memory(kernel: &RunningKernel) -> Result<()> {
    println!("\nmemory with the probes loaded, MiB\n");
    println!("| flows | resident | peak, loading included | bytes a flow |");
    println!("|---|---|---|---|");
    with_probe(kernel, Duration::from_secs(1), |_| {
        let mut observer = Observer::new(Some(Generation::V6_18), 131_072);
        let (empty, mib) = (memory_of("VmRSS")?, f64::from(1 << 20));
        for flows in [1000_u64, 10_000, 100_000] {
            for flow in observer.flows().len() as u64..flows {
                observer.handle(&sample(flow, 1, 0, SampleKind::Periodic));
            }
            let (resident, peak) = (memory_of("VmRSS")?, memory_of("VmHWM")?);
            println!(
                "| {flows} | {:.1} | {:.1} | {} |",
                resident as f64 / mib,
                peak as f64 / mib,
                resident.saturating_sub(empty) / flows
            );
        }
        Ok(())
    })
}

/// A line of `/proc/self/status`, bytes.
fn memory_of(name: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.split_whitespace().next());
    Ok(kib.with_context(|| format!("no {name} in /proc/self/status"))?.parse::<u64>()? * 1024)
}

/// Runs of a program.
#[derive(Clone, Copy, Debug)]
struct Runs {
    runs: u64,
    time: Duration,
}

impl Runs {
    fn nanos(self) -> f64 {
        self.time.as_nanos() as f64 / self.runs.max(1) as f64
    }
}

impl std::ops::Sub for Runs {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { runs: self.runs - earlier.runs, time: self.time - earlier.time }
    }
}

fn of_probe(probe: &Probe) -> Result<Runs> {
    let stats = probe.program_stats()?;
    let program = stats.iter().find(|program| program.name == READS).context(READS)?;
    Ok(Runs { runs: program.runs, time: program.run_time })
}

/// The empty program on the reads' tracepoint, attached.
struct Empty(Ebpf);

impl Empty {
    fn load(kernel: &RunningKernel) -> Result<Self> {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("workspace")?;
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ebpf");
        let object = ebpf_build::Toolchain::find()?.build(workspace, &target, &[])?;
        let object = std::fs::read(object.with_file_name("empty"))?;
        let btf = Btf::parse(&kernel.btf, aya::Endianness::default())?;
        let mut ebpf = EbpfLoader::new().btf(Some(&btf)).load(&object)?;
        let program: &mut BtfTracePoint = ebpf.program_mut(READS).context(READS)?.try_into()?;
        program.load(READS, &btf)?;
        program.attach()?;
        Ok(Self(ebpf))
    }

    fn runs(&self) -> Result<Runs> {
        let program: &BtfTracePoint = self.0.program(READS).context(READS)?.try_into()?;
        let info = program.info()?;
        Ok(Runs { runs: info.run_count(), time: info.run_time() })
    }
}

/// Runs `work` while the probes are attached and drained as the daemon does.
fn with_probe<T>(
    kernel: &RunningKernel,
    interval: Duration,
    work: impl FnOnce(&Probe) -> Result<T>,
) -> Result<T> {
    let mut probe = Probe::load(&ProbeConfig {
        btf: &kernel.btf,
        layout: &kernel.layout.slots,
        ring_bytes: 4 << 20,
        interval,
    })?;
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut ring = {
        let _context = runtime.enter();
        probe.take_samples(Duration::from_millis(10))?
    };
    let generation = kernel.detected.generation;
    let drainer = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            runtime.block_on(async {
                let mut observer = Observer::new(generation, 131_072);
                while !stop.load(Ordering::Relaxed) {
                    let _ = tokio::time::timeout(Duration::from_secs(1), ring.ready()).await;
                    while ring
                        .drain(4096, |sample| {
                            if let Ok(sample) = sample {
                                observer.handle(&sample);
                            }
                        })
                        .more
                    {}
                    while observer.poll().is_some() {}
                }
            });
        }
    });
    probe.attach()?;
    let result = work(&probe);
    probe.detach()?;
    stop.store(true, Ordering::Relaxed);
    let _ = drainer.join();
    let counters = probe.counters()?;
    let lost: u64 = SampleKind::ALL.map(|kind| counters.get(ProbeCounter::Lost(kind))).iter().sum();
    if lost > 0 || counters.get(ProbeCounter::Shed) > 0 {
        println!("(lost {lost}, shed {})", counters.get(ProbeCounter::Shed));
    }
    result
}

/// Keeps this thread on a CPU, if there is such a one: where the two ends run moves the throughput more
/// than anything that is measured here.
fn pin(cpu: usize) {
    let mut cpus = nix::sched::CpuSet::new();
    if cpus.set(cpu).is_ok() {
        let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus);
    }
}

/// One loopback flow for `period` with reads of `size`; bytes a second.
fn drive(size: usize, period: Duration) -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let received = Arc::new(AtomicU64::new(0));
    let reader = thread::spawn({
        let received = Arc::clone(&received);
        move || -> io::Result<()> {
            pin(1);
            let (mut stream, _) = listener.accept()?;
            let mut buffer = vec![0; size];
            loop {
                match stream.read(&mut buffer)? {
                    0 => return Ok(()),
                    bytes => received.fetch_add(bytes as u64, Ordering::Relaxed),
                };
            }
        }
    });
    pin(0);
    let mut stream = TcpStream::connect(address)?;
    let chunk = vec![0; 1 << 18];
    // The connection begins slowly.
    let warm = Instant::now();
    while warm.elapsed() < Duration::from_millis(100) {
        stream.write_all(&chunk)?;
    }
    let before = received.load(Ordering::Relaxed);
    let start = Instant::now();
    while start.elapsed() < period {
        stream.write_all(&chunk)?;
    }
    let bytes = received.load(Ordering::Relaxed) - before;
    let rate = bytes as f64 / start.elapsed().as_secs_f64();
    drop(stream);
    let _ = reader.join();
    Ok(rate)
}
