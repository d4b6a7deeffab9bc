//! Loads the probes, sets their constants, attaches them, and reads what they count: with
//! `source/ring.rs` the only file that names aya.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    time::Duration,
};

use autotune_common::{ProbeCounter, SockLayout};
use aya::{
    Btf, Ebpf, EbpfError, EbpfLoader, Endianness, VerifierLogLevel,
    maps::{MapData, PerCpuArray, RingBuf},
    programs::{BtfTracePoint, ProgramError, tp_btf::BtfTracePointLinkId},
};

#[cfg(feature = "probe-log")]
use tokio::io::{Interest, unix::AsyncFd};

use crate::source::ring::SampleRing;

/// The object that the build script made.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/autotune-ebpf.o"));

/// The tracepoints in the order of attaching. `tcp_rcvbuf_grow` comes last and goes first, so that no
/// grow sample misses its outcome sample because nobody watches the reads yet.
pub const TRACEPOINTS: [&str; 3] = ["tcp_rcv_space_adjust", "tcp_destroy_sock", "tcp_rcvbuf_grow"];

/// What the probes are told before they are loaded.
#[derive(Clone, Copy, Debug)]
pub struct ProbeConfig<'a> {
    /// Raw BTF of the running kernel.
    pub btf: &'a [u8],
    /// Where this kernel keeps what they read.
    pub layout: &'a SockLayout,
    /// Size of the ring buffer in bytes: a power of two, at least a page.
    pub ring_bytes: u32,
    /// Least time between two periodic samples of a socket.
    pub interval: Duration,
}

/// The probes in the kernel. Dropping it detaches and frees them.
#[derive(derive_more::Debug)]
pub struct Probe {
    ebpf: Ebpf,
    #[debug(skip)]
    counters: PerCpuArray<MapData, [u64; ProbeCounter::COUNT]>,
    links: Vec<(&'static str, BtfTracePointLinkId)>,
}

/// What the kernel knows of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramStats {
    /// Name of the program, which is that of its tracepoint.
    pub name: &'static str,
    /// Times it ran while the kernel counted runs (`kernel.bpf_stats_enabled`).
    pub runs: u64,
    /// Time spent in those runs.
    pub run_time: Duration,
    /// Events that the kernel did not hand to the program, because it interrupted a run of the same
    /// program on the same CPU.
    pub missed: u64,
    /// Instructions that the verifier walked.
    pub verified_instructions: u32,
    /// Size of its machine code in bytes.
    pub jited_bytes: u32,
}

/// Counts of the probes over all CPUs, one for each [`ProbeCounter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters([u64; ProbeCounter::COUNT]);

impl From<[u64; ProbeCounter::COUNT]> for Counters {
    fn from(counts: [u64; ProbeCounter::COUNT]) -> Self {
        Self(counts)
    }
}

impl Counters {
    /// One count.
    #[must_use]
    pub const fn get(&self, counter: ProbeCounter) -> u64 {
        self.0[counter.index()]
    }

    /// Events that the probes saw, which is the sum of all they count.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Why the probes are not at work.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel refused for want of a capability.
    #[error("{what}: the kernel does not permit it; CAP_BPF and CAP_PERFMON are needed (or root)")]
    NotPermitted {
        /// What was being done.
        what: String,
    },
    /// The kernel has no such tracepoint.
    #[error("this kernel has no tracepoint tcp:{name}")]
    NoTracepoint {
        /// Its name.
        name: &'static str,
    },
    /// The verifier did not accept a program.
    #[error("the kernel's verifier refused the program {program}: {reason}")]
    Rejected {
        /// The program.
        program: &'static str,
        /// The error of the system call.
        reason: io::Error,
        /// What the verifier printed.
        verifier_log: String,
    },
    /// Anything else.
    #[error("{what}: {reason}")]
    Other {
        /// What was being done.
        what: String,
        /// What went wrong, with all that caused it.
        reason: String,
    },
}

impl Probe {
    /// Loads the programs and the maps. Nothing is attached yet.
    ///
    /// # Errors
    /// Tells a missing capability, a missing tracepoint and a refused program apart.
    pub fn load(config: &ProbeConfig<'_>) -> Result<Self, ProbeError> {
        let interval_ticks = ticks(config.interval)
            .map_err(|error| other("asking for the kernel's tick", &error))?;
        let shed_above = u64::from(config.ring_bytes / 2);
        let mut loader = EbpfLoader::new();
        // The loader parses the system's BTF by itself: dropped here, so that two are never in memory.
        loader.btf(None);
        let btf = Btf::parse(config.btf, Endianness::default())
            .map_err(|error| other("reading the kernel's BTF", &error))?;
        let mut ebpf = loader
            .btf(Some(&btf))
            .override_global("SOCK_LAYOUT", config.layout, true)
            .override_global("INTERVAL_TICKS", &interval_ticks, true)
            .override_global("SHED_ABOVE", &shed_above, true)
            .map_max_entries("SAMPLES", config.ring_bytes)
            .verifier_log_level(VerifierLogLevel::VERBOSE)
            .load(OBJECT)
            .map_err(|error| from_load(&error))?;

        for name in TRACEPOINTS {
            program(&mut ebpf, name)?.load(name, &btf).map_err(|error| rejected(name, error))?;
        }
        let counters = ebpf.take_map("COUNTERS").ok_or_else(|| no_map("COUNTERS"))?;
        let counters =
            PerCpuArray::try_from(counters).map_err(|error| other("opening COUNTERS", &error))?;
        Ok(Self { ebpf, counters, links: Vec::new() })
    }

    /// The ring buffer's reading end, once. Belongs into a tokio runtime.
    ///
    /// # Errors
    /// When it was taken before, or cannot be mapped or registered.
    pub fn take_samples(&mut self, rest: Duration) -> Result<SampleRing, ProbeError> {
        let map = self.ebpf.take_map("SAMPLES").ok_or_else(|| no_map("SAMPLES"))?;
        let ring = RingBuf::try_from(map).map_err(|error| other("mapping the ring", &error))?;
        SampleRing::new(ring, rest).map_err(|error| other("polling the ring", &error))
    }

    /// Reads the probes' warnings and passes them to `log`; none if they were built without.
    ///
    /// # Errors
    /// When the map of the warnings cannot be opened.
    #[cfg(feature = "probe-log")]
    pub fn take_log(&mut self) -> Result<ProbeLog, ProbeError> {
        let failed = |error: &dyn std::error::Error| other("opening the probes' log", error);
        let log = aya_log::EbpfLogger::init(&mut self.ebpf).map_err(|error| failed(&error))?;
        #[expect(unsafe_code, reason = "tokio asks for a promise about the descriptor")]
        // SAFETY: the logger owns its ring buffer's descriptor for its whole life.
        let log = unsafe { AsyncFd::register_with_interest(log, Interest::READABLE) };
        log.map(ProbeLog).map_err(|error| failed(&io::Error::from(error)))
    }

    /// Attaches the programs to their tracepoints.
    ///
    /// # Errors
    /// Names the tracepoint that could not be attached to.
    pub fn attach(&mut self) -> Result<(), ProbeError> {
        for name in TRACEPOINTS {
            let link = program(&mut self.ebpf, name)?.attach().map_err(|error| {
                let what = format!("attaching to tcp:{name}");
                if is_not_permitted(&error) {
                    ProbeError::NotPermitted { what }
                } else {
                    other(&what, &error)
                }
            })?;
            self.links.push((name, link));
        }
        Ok(())
    }

    /// Whether every program is attached.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        self.links.len() == TRACEPOINTS.len()
    }

    /// Detaches the programs. What is in the ring buffer can still be drained.
    ///
    /// # Errors
    /// Names the tracepoint that could not be detached from.
    pub fn detach(&mut self) -> Result<(), ProbeError> {
        while let Some((name, link)) = self.links.pop() {
            program(&mut self.ebpf, name)?
                .detach(link)
                .map_err(|error| other(&format!("detaching from tcp:{name}"), &error))?;
        }
        Ok(())
    }

    /// What the probes counted since they were loaded.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn counters(&self) -> Result<Counters, ProbeError> {
        let of_cpus =
            self.counters.get(&0, 0).map_err(|error| other("reading the counters", &error))?;
        let mut sum = Counters::default();
        for of_cpu in of_cpus.iter() {
            for (total, count) in sum.0.iter_mut().zip(of_cpu) {
                *total = total.wrapping_add(*count);
            }
        }
        Ok(sum)
    }

    /// What the kernel knows of the programs.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn program_stats(&self) -> Result<Vec<ProgramStats>, ProbeError> {
        TRACEPOINTS
            .iter()
            .map(|&name| {
                let failed = |error: &dyn std::error::Error| other("asking for statistics", error);
                let program: &BtfTracePoint = self
                    .ebpf
                    .program(name)
                    .ok_or_else(|| no_map(name))?
                    .try_into()
                    .map_err(|error: ProgramError| failed(&error))?;
                let info = program.info().map_err(|error| failed(&error))?;
                let fd = program.fd().map_err(|error| failed(&error))?;
                Ok(ProgramStats {
                    name,
                    runs: info.run_count(),
                    run_time: info.run_time(),
                    missed: fdinfo(std::os::fd::AsFd::as_fd(fd).as_raw_fd(), "recursion_misses")
                        .unwrap_or(0),
                    verified_instructions: info.verified_instruction_count().unwrap_or(0),
                    jited_bytes: info.size_jitted(),
                })
            })
            .collect()
    }
}

/// Keeps the kernel counting the runs of every BPF program on this host, and their time, until it is
/// dropped.
#[derive(Debug)]
#[must_use = "the kernel stops counting when this is dropped"]
pub struct RunCounting {
    /// The kernel counts while this is open.
    _descriptor: OwnedFd,
}

/// Has the kernel count runs and run time ([`ProgramStats::runs`]), whatever `kernel.bpf_stats_enabled`
/// says. It adds some 20 ns to each run of each program on the host.
///
/// # Errors
/// When it is not permitted (`CAP_SYS_ADMIN`), or the kernel is older than 5.8.
pub fn count_runs() -> Result<RunCounting, ProbeError> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime)
        .map(|descriptor| RunCounting { _descriptor: descriptor })
        .map_err(|error| other("having the runs of programs counted", &error))
}

/// Memory that the kernel holds for the BPF maps of this process, bytes: it is not part of its resident
/// set. The state that the kernel keeps with each socket is not counted by the kernel.
///
/// # Errors
/// When `/proc/self/fdinfo` cannot be read.
pub fn map_memory() -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir("/proc/self/fdinfo")? {
        // A descriptor may be closed while the folder is read.
        let Ok(text) = std::fs::read_to_string(entry?.path()) else { continue };
        if field(&text, "map_type").is_some() {
            bytes += field(&text, "memlock").unwrap_or(0);
        }
    }
    Ok(bytes)
}

/// The probes' warnings.
#[cfg(feature = "probe-log")]
#[derive(derive_more::Debug)]
pub struct ProbeLog(#[debug(skip)] AsyncFd<aya_log::EbpfLogger<&'static dyn log::Log>>);

#[cfg(feature = "probe-log")]
impl ProbeLog {
    /// Passes warnings to the log as they come, until it is dropped.
    ///
    /// # Errors
    /// When the descriptor cannot be polled.
    pub async fn forward(mut self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable_mut().await?;
            ready.clear_ready();
            ready.get_inner_mut().flush();
        }
    }
}

fn fdinfo(fd: i32, name: &str) -> Option<u64> {
    field(&std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?, name)
}

/// A time in ticks of the kernel's clock, rounded up: the coarse clocks advance once a tick.
fn ticks(time: Duration) -> nix::Result<u64> {
    let tick = Duration::from(nix::time::clock_getres(nix::time::ClockId::CLOCK_MONOTONIC_COARSE)?);
    let ticks = time.as_nanos().div_ceil(tick.as_nanos().max(1));
    Ok(u64::try_from(ticks).unwrap_or(u64::MAX))
}

/// The value of a `name:\tvalue` line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .and_then(|value| value.trim().parse().ok())
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut BtfTracePoint, ProbeError> {
    ebpf.program_mut(name)
        .ok_or_else(|| no_map(name))?
        .try_into()
        .map_err(|error: ProgramError| other(&format!("opening the program {name}"), &error))
}

fn from_load(error: &EbpfError) -> ProbeError {
    let what = "loading the probes";
    if is_not_permitted(error) {
        ProbeError::NotPermitted { what: what.to_owned() }
    } else {
        other(what, error)
    }
}

fn rejected(program: &'static str, error: ProgramError) -> ProbeError {
    match error {
        ProgramError::LoadError { io_error, .. }
            if io_error.kind() == io::ErrorKind::PermissionDenied
                && io_error.raw_os_error() == Some(nix::libc::EPERM) =>
        {
            ProbeError::NotPermitted { what: format!("loading the program {program}") }
        }
        ProgramError::LoadError { io_error, verifier_log } => ProbeError::Rejected {
            program,
            reason: io_error,
            verifier_log: verifier_log.to_string(),
        },
        ProgramError::Btf(aya::BtfError::UnknownBtfTypeName { .. }) => {
            ProbeError::NoTracepoint { name: program }
        }
        error => other(&format!("loading the program {program}"), &error),
    }
}

/// Whether EPERM is what it comes down to.
fn is_not_permitted(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| {
        error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.raw_os_error() == Some(nix::libc::EPERM))
    })
}

fn no_map(name: &str) -> ProbeError {
    ProbeError::Other {
        what: "opening the eBPF object".to_owned(),
        reason: format!("it has no {name}, or it was taken already"),
    }
}

fn other(what: &str, error: &dyn std::error::Error) -> ProbeError {
    let mut reason = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !reason.contains(&cause_text) {
            reason.push_str(": ");
            reason.push_str(&cause_text);
        }
        source = cause.source();
    }
    ProbeError::Other { what: what.to_owned(), reason }
}
