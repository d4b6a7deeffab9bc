//! The daemon as a child process: its log, its growths, its end.

use std::{
    io::{BufRead as _, BufReader, Read},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::Growth;

/// Reading the kernel's types and having the programs verified takes a part of this.
const START: Duration = Duration::from_secs(30);

/// From SIGTERM to the end.
const STOP: Duration = Duration::from_secs(10);

/// A running daemon. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
    events: Receiver<Event>,
    address: SocketAddr,
}

/// What the daemon said.
#[derive(Debug)]
pub(super) enum Event {
    /// A line of its log.
    Log(String),
    /// A growth that it judged.
    Growth(Box<Growth>),
}

impl Daemon {
    /// Starts it on a free port and waits until it serves, which it does when the probes are attached.
    pub(super) fn start(binary: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(binary)
            .args(["daemon", "--growths", "json", "--web.listen-address", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let (sender, events) = mpsc::channel();
        if let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) {
            forward(stdout, sender.clone(), growth_event);
            forward(stderr, sender, Event::Log);
        }
        let mut daemon = Self { child, events, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        daemon.address = daemon.wait_until_serving()?;
        Ok(daemon)
    }

    /// Where it serves.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it says next, unless nothing comes for so long.
    pub(super) fn next_event(&self, patience: Duration) -> Option<Event> {
        self.events.recv_timeout(patience).ok()
    }

    /// Asks it to stop, hands out all that it still says, and returns how it ended.
    pub(super) fn stop(&mut self, mut show: impl FnMut(Event)) -> anyhow::Result<ExitStatus> {
        let pid = Pid::from_raw(self.child.id().try_into().context("an odd process id")?);
        kill(pid, Signal::SIGTERM).context("cannot send SIGTERM to the daemon")?;
        let deadline = Instant::now() + STOP;
        loop {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) => show(event),
                // Both pipes are closed: it has ended or is about to.
                Err(RecvTimeoutError::Disconnected) => {
                    return self.child.wait().context("cannot wait for the daemon");
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the daemon still ran {} s after SIGTERM", STOP.as_secs());
                }
            }
        }
    }

    fn wait_until_serving(&mut self) -> anyhow::Result<SocketAddr> {
        let deadline = Instant::now() + START;
        let mut last = String::from("it said nothing");
        loop {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Event::Log(line)) => {
                    println!("autotune: {line}");
                    if let Some(address) = serving_on(&line) {
                        return Ok(address);
                    }
                    last = line;
                }
                Ok(Event::Growth(_)) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().context("cannot wait for the daemon")?;
                    bail!("the daemon did not start ({status}): {last}");
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the daemon did not serve within {} s: {last}", START.as_secs());
                }
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail if it has ended, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn forward(
    pipe: impl Read + Send + 'static,
    events: Sender<Event>,
    event: impl Fn(String) -> Event + Send + 'static,
) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            // Either end may have gone: the daemon's or ours.
            let Ok(line) = line else { return };
            if events.send(event(line)).is_err() {
                return;
            }
        }
    });
}

/// A line of stdout; what is no growth is shown like the log, and missed in the counts.
fn growth_event(line: String) -> Event {
    match Growth::parse(&line) {
        Ok(growth) => Event::Growth(Box::new(growth)),
        Err(error) => Event::Log(format!("not a growth ({error}): {line}")),
    }
}

/// The address in the log line that says where the daemon serves.
fn serving_on(line: &str) -> Option<SocketAddr> {
    line.split_once("serving on http://")?.1.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_the_log() {
        let line = "2026-01-02T03:04:05.678901Z  INFO serving on http://127.0.0.1:37917";
        assert_eq!(serving_on(line), Some(SocketAddr::from(([127, 0, 0, 1], 37917))));
        assert_eq!(serving_on("2026-01-02T03:04:05.678901Z  INFO observing kernel 6.18"), None);
    }
}
