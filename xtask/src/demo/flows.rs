//! The TCP flows: real sockets, a sending and a reading thread each.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use socket2::{Domain, SockRef, Socket, Type};

const KIB: usize = 1024;

/// What the sender hands to the kernel at once.
const WRITE: usize = 256 * KIB;

/// How long a sender or reader waits for its peer before it gives up.
const STALLED: Duration = Duration::from_secs(30);

/// How an application uses its socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowSpec {
    /// Also the name of the reading thread, at most 15 bytes.
    pub(super) name: &'static str,
    ipv6: bool,
    read: usize,
    /// `SO_RCVBUF`, bytes.
    rcvbuf: Option<usize>,
    /// Between two reads.
    pause: Duration,
}

/// One connection that is ready to carry data.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) spec: FlowSpec,
    /// Local and remote address of the reader.
    pub(super) addresses: (SocketAddr, SocketAddr),
    reader: TcpStream,
    sender: TcpStream,
}

/// Flows under way.
#[derive(Debug)]
pub(super) struct Running {
    readers: Vec<JoinHandle<anyhow::Result<Totals>>>,
    senders: Vec<JoinHandle<anyhow::Result<()>>>,
}

/// What came of a flow, as its reader saw it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Totals {
    pub(super) bytes: u64,
    pub(super) elapsed: Duration,
    /// `SO_RCVBUF` as the kernel tells it before the first read.
    pub(super) first_rcvbuf: usize,
    /// The same after the last read.
    pub(super) final_rcvbuf: usize,
}

impl FlowSpec {
    /// The demo's flows, half of them over IPv6 where the host has it.
    pub(super) fn all(ipv6: bool) -> Vec<Self> {
        let base =
            Self { name: "", ipv6: false, read: 64 * KIB, rcvbuf: None, pause: Duration::ZERO };
        let slow = Duration::from_millis(20);
        vec![
            Self { name: "v4 4 KiB", read: 4 * KIB, ..base },
            Self { name: "v4 64 KiB", ..base },
            Self { name: "v4 1 MiB", read: KIB * KIB, ..base },
            Self { name: "v6 4 KiB", ipv6, read: 4 * KIB, ..base },
            Self { name: "v6 64 KiB", ipv6, ..base },
            Self { name: "v6 1 MiB", ipv6, read: KIB * KIB, ..base },
            Self { name: "v4 SO_RCVBUF", rcvbuf: Some(256 * KIB), ..base },
            Self { name: "v4 slow reader", pause: slow, ..base },
            Self { name: "v6 slow reader", ipv6, read: KIB * KIB, pause: slow, ..base },
        ]
        .into_iter()
        .map(|spec| Self { name: if ipv6 { spec.name } else { as_ipv4(spec.name) }, ..spec })
        .collect()
    }
}

impl Flow {
    /// Connects the reader to a sender, as a download does.
    pub(super) fn connect(spec: FlowSpec) -> anyhow::Result<Self> {
        let (domain, address) = if spec.ipv6 {
            (Domain::IPV6, SocketAddr::from((Ipv6Addr::LOCALHOST, 0)))
        } else {
            (Domain::IPV4, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        };
        let connect = || {
            let listener = TcpListener::bind(address)?;
            let reader = Socket::new(domain, Type::STREAM, None)?;
            if let Some(bytes) = spec.rcvbuf {
                reader.set_recv_buffer_size(bytes)?;
            }
            reader.connect(&listener.local_addr()?.into())?;
            let (sender, _) = listener.accept()?;
            sender.set_read_timeout(Some(STALLED))?;
            sender.set_write_timeout(Some(STALLED))?;
            let reader = TcpStream::from(reader);
            reader.set_read_timeout(Some(STALLED))?;
            let addresses = (reader.local_addr()?, reader.peer_addr()?);
            Ok(Self { spec, addresses, reader, sender })
        };
        connect()
            .map_err(|error: std::io::Error| anyhow!("cannot connect to {address}: {error}"))
            .with_context(|| format!("flow {}", spec.name))
    }

    fn send(mut sender: TcpStream, until: Instant) -> std::io::Result<()> {
        let chunk = vec![0x5a; WRITE];
        while Instant::now() < until {
            sender.write_all(&chunk)?;
        }
        sender.shutdown(Shutdown::Write)?;
        // Until the reader has closed, so that its end is the one that is destroyed at once.
        sender.read(&mut [0]).map(|_| ())
    }

    fn receive(spec: FlowSpec, mut reader: TcpStream, until: Instant) -> std::io::Result<Totals> {
        let first_rcvbuf = SockRef::from(&reader).recv_buffer_size()?;
        let mut buffer = vec![0; spec.read];
        let start = Instant::now();
        let mut bytes = 0;
        loop {
            let read = reader.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
            // What is queued at the end is taken without pauses.
            if !spec.pause.is_zero() && Instant::now() < until {
                thread::sleep(spec.pause);
            }
        }
        let final_rcvbuf = SockRef::from(&reader).recv_buffer_size()?;
        Ok(Totals { bytes, elapsed: start.elapsed(), first_rcvbuf, final_rcvbuf })
    }
}

/// Lets all flows send for so long.
pub(super) fn start(flows: Vec<Flow>, duration: Duration) -> anyhow::Result<Running> {
    let until = Instant::now() + duration;
    let mut running = Running { readers: Vec::new(), senders: Vec::new() };
    for Flow { spec, reader, sender, addresses: _ } in flows {
        running.readers.push(thread::Builder::new().name(spec.name.to_owned()).spawn(
            move || {
                Flow::receive(spec, reader, until)
                    .with_context(|| format!("the reader of {} failed", spec.name))
            },
        )?);
        running.senders.push(thread::Builder::new().name("sender".to_owned()).spawn(
            move || {
                Flow::send(sender, until)
                    .with_context(|| format!("the sender of {} failed", spec.name))
            },
        )?);
    }
    Ok(running)
}

impl Running {
    pub(super) fn is_finished(&self) -> bool {
        self.readers.iter().all(JoinHandle::is_finished)
            && self.senders.iter().all(JoinHandle::is_finished)
    }

    /// What came of each flow, in their order.
    pub(super) fn join(self) -> anyhow::Result<Vec<Totals>> {
        let panicked = |_| anyhow!("a thread of a flow panicked");
        let Self { readers, senders } = self;
        for sender in senders {
            sender.join().map_err(panicked)??;
        }
        readers.into_iter().map(|reader| reader.join().map_err(panicked)?).collect()
    }
}

impl Totals {
    pub(super) fn gbit_per_second(&self) -> f64 {
        self.bytes as f64 * 8.0 / 1e9 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Whether this host has IPv6 on its loopback.
pub(super) fn has_ipv6() -> bool {
    TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// The name of a flow that runs over IPv4 because the host has no IPv6.
fn as_ipv4(name: &'static str) -> &'static str {
    match name {
        "v6 4 KiB" => "v4 4 KiB b",
        "v6 64 KiB" => "v4 64 KiB b",
        "v6 1 MiB" => "v4 1 MiB b",
        "v6 slow reader" => "v4 slow b",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn flows_have_names_that_fit_a_thread_and_differ() {
        for ipv6 in [true, false] {
            let specs = FlowSpec::all(ipv6);
            assert!(specs.len() >= 8);
            assert!(specs.iter().all(|spec| spec.name.len() <= 15));
            assert!(ipv6 || specs.iter().all(|spec| !spec.name.starts_with("v6")));
            let names: BTreeSet<_> = specs.iter().map(|spec| spec.name).collect();
            assert_eq!(names.len(), specs.len());
        }
    }

    #[test]
    fn a_flow_carries_what_was_sent() {
        let flows = FlowSpec::all(false).into_iter().take(1).map(Flow::connect);
        let flows = flows.collect::<anyhow::Result<Vec<_>>>().unwrap();
        let totals = start(flows, Duration::from_millis(20)).unwrap().join().unwrap();
        assert!(totals[0].bytes >= WRITE as u64);
        assert_eq!(totals[0].bytes % WRITE as u64, 0);
    }
}
