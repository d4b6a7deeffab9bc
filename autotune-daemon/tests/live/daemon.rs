//! The binary as a service.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    harness::{self, PATIENCE},
    traffic::Flow,
};

/// A daemon that serves on free ports. Killed when dropped.
struct Daemon {
    child: Child,
    /// In the order of the addresses given.
    addresses: Vec<SocketAddr>,
}

impl Daemon {
    fn start(listen: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_autotune"));
        command.args(["daemon", "--log.format", "json"]);
        for address in listen {
            command.args(["--web.listen-address", address]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let log = BufReader::new(child.stderr.take().expect("a pipe"));
        let (said, told) = mpsc::channel();
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                println!("{line}");
                if let Some((_, address)) = line.split_once("http://") {
                    let address = address.split(['"', '/', ' ']).next().unwrap_or_default();
                    let _ = said.send(address.parse().expect("an address"));
                }
            }
        });
        let mut daemon = Self { child, addresses: Vec::new() };
        for _ in listen {
            daemon.addresses.push(told.recv_timeout(PATIENCE).expect("the daemon serves"));
        }
        daemon
    }

    /// Ids of the BPF programs that the daemon holds open.
    fn programs(&self) -> Vec<u32> {
        let folder = format!("/proc/{}/fdinfo", self.child.id());
        let entries = std::fs::read_dir(folder).expect("/proc");
        let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
        let mut programs: Vec<u32> = texts
            .filter_map(|text| {
                let id = text.lines().find_map(|line| line.strip_prefix("prog_id:"))?;
                id.trim().parse().ok()
            })
            .collect();
        programs.sort_unstable();
        programs.dedup();
        programs
    }

    /// Sends the signal and waits for the end.
    fn stop(&mut self, signal: Signal) -> ExitStatus {
        let pid = Pid::from_raw(self.child.id().try_into().expect("a pid"));
        kill(pid, signal).expect("the daemon runs");
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "{signal} does not end the daemon");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status and body of a page.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    (status, body.to_owned())
}

/// Sum of a metric's samples whose labels contain all of these.
fn metric(page: &str, name: &str, labels: &[&str]) -> f64 {
    page.lines()
        .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
        .filter(|line| labels.iter().all(|label| line.contains(label)))
        .map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number"))
        .sum()
}

fn is_loaded(program: u32) -> bool {
    let mut command = Command::new("bpftool");
    command.args(["prog", "show", "id", &program.to_string()]);
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[test]
fn the_daemon_serves_what_it_finds_and_leaves_nothing_behind() {
    let Some(_turn) = harness::turn() else { return };
    let mut daemon = Daemon::start(&["127.0.0.1:0", "[::1]:0"]);
    let programs = daemon.programs();
    assert_eq!(programs.len(), 3, "{programs:?}");
    for v6 in [false, true] {
        Flow { v6, bytes: 256 << 20, ..Flow::default() }.run();
    }
    let start = Instant::now();
    let page = loop {
        let (status, page) = get(daemon.addresses[0], "/metrics");
        assert_eq!(status, 200, "{page}");
        if metric(&page, "tcp_autotune_growths_total", &["verdict=\"exact\""]) >= 2.0 {
            break page;
        }
        assert!(start.elapsed() < PATIENCE, "no growths: {page}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(metric(&page, "tcp_autotune_growths_total", &["verdict=\"divergent\""]), 0.0);
    assert!(metric(&page, "tcp_autotune_samples_total", &["kind=\"grow\""]) >= 2.0);
    assert_eq!(metric(&page, "tcp_autotune_samples_lost_total", &[]), 0.0);
    assert!(metric(&page, "tcp_autotune_map_memory_bytes", &[]) > 4_000_000.0);
    let release = autotune::kernel::running::release();
    let release = format!("release=\"{release}\"");
    assert_eq!(metric(&page, "tcp_autotune_kernel_info", &[&release]), 1.0);

    for address in &daemon.addresses {
        assert_eq!(get(*address, "/healthz"), (200, "ok\n".to_owned()));
        assert_eq!(get(*address, "/readyz"), (200, "ready\n".to_owned()));
        assert_eq!(get(*address, "/").0, 200);
        assert_eq!(get(*address, "/no-such-page").0, 404);
    }

    let bpftool = Command::new("bpftool").arg("version").output().is_ok();
    if bpftool {
        assert!(programs.iter().all(|program| is_loaded(*program)));
    } else {
        harness::skipped("whether the programs are gone: needs bpftool");
    }
    assert_eq!(daemon.stop(Signal::SIGTERM).code(), Some(0));
    if bpftool {
        let start = Instant::now();
        while programs.iter().any(|program| is_loaded(*program)) {
            assert!(start.elapsed() < PATIENCE, "programs stay loaded: {programs:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn the_daemon_ends_well_on_sigint() {
    let Some(_turn) = harness::turn() else { return };
    let mut daemon = Daemon::start(&["127.0.0.1:0"]);
    assert_eq!(daemon.stop(Signal::SIGINT).code(), Some(0));
}
