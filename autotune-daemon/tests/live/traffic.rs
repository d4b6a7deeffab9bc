//! Real TCP traffic. Every call is bounded in time.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::AsRawFd as _,
    time::Duration,
};

use nix::libc;
use socket2::{Domain, Protocol, Socket, Type};

use crate::harness::PATIENCE;

/// A flow over loopback, of the namespace that the calling thread is in.
#[derive(Clone, Copy)]
pub(crate) struct Flow {
    pub(crate) v6: bool,
    pub(crate) mptcp: bool,
    /// Bytes to send.
    pub(crate) bytes: u64,
    /// Bytes to read at a time.
    pub(crate) read: usize,
    /// `SO_RCVBUF`, set before the connection begins.
    pub(crate) rcvbuf: Option<usize>,
    /// What the reader waits after each read.
    pub(crate) rest: Duration,
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            v6: false,
            mptcp: false,
            bytes: 64 << 20,
            read: 64 << 10,
            rcvbuf: None,
            rest: Duration::ZERO,
        }
    }
}

/// The two ends of a connection.
pub(crate) struct Pair {
    pub(crate) reader: Socket,
    pub(crate) sender: Socket,
}

impl Flow {
    /// Carries it to its end. Returns the cookie of the socket that read.
    pub(crate) fn run(self) -> u64 {
        self.run_with(|_, _| {})
    }

    /// Carries it to its end, and tells after each read how many bytes were read so far.
    pub(crate) fn run_with(self, mut at: impl FnMut(&Socket, u64)) -> u64 {
        let Pair { mut reader, sender } = self.connect();
        let cookie = reader.cookie().expect("a cookie");
        let sending = std::thread::spawn(move || send(sender, self.bytes));
        let mut buffer = vec![0; self.read];
        let mut done = 0;
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => done += length as u64,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("reading after {done} bytes: {error}"),
            }
            at(&reader, done);
            if !self.rest.is_zero() {
                std::thread::sleep(self.rest);
            }
        }
        sending.join().expect("the sender ends");
        assert_eq!(done, self.bytes, "all that was sent is read");
        cookie
    }

    /// A connection over loopback.
    pub(crate) fn connect(self) -> Pair {
        let address: SocketAddr =
            if self.v6 { (Ipv6Addr::LOCALHOST, 0).into() } else { (Ipv4Addr::LOCALHOST, 0).into() };
        let listener = self.listen(address);
        let sender = self.socket();
        let address = listener.local_addr().expect("an address");
        sender.connect_timeout(&address, PATIENCE).expect("connected");
        let (reader, _) = listener.accept().expect("a connection");
        reader.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        Pair { reader, sender }
    }

    /// A socket that listens on this address, with the flow's receive buffer.
    pub(crate) fn listen(self, address: SocketAddr) -> Socket {
        let listener = self.socket();
        if let Some(rcvbuf) = self.rcvbuf {
            listener.set_recv_buffer_size(rcvbuf).expect("SO_RCVBUF");
        }
        listener.bind(&address.into()).expect("bound");
        listener.listen(16).expect("listening");
        listener
    }

    /// A socket of the flow's kind.
    pub(crate) fn socket(self) -> Socket {
        let domain = if self.v6 { Domain::IPV6 } else { Domain::IPV4 };
        let protocol = if self.mptcp { Protocol::MPTCP } else { Protocol::TCP };
        let socket = Socket::new(domain, Type::STREAM, Some(protocol)).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        socket.set_write_timeout(Some(PATIENCE)).expect("a time limit");
        socket
    }
}

/// Sends that many bytes and closes.
pub(crate) fn send(mut socket: Socket, bytes: u64) {
    let buffer = vec![0x5a; 256 << 10];
    let mut left = bytes;
    while left > 0 {
        let length = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        socket.write_all(&buffer[..length]).expect("the reader reads");
        left -= length as u64;
    }
}

/// Runs flows at once, each in threads of its own. Returns the readers' cookies in their order.
pub(crate) fn run_at_once(flows: &[Flow]) -> Vec<u64> {
    std::thread::scope(|scope| {
        let running: Vec<_> = flows.iter().map(|flow| scope.spawn(|| flow.run())).collect();
        running.into_iter().map(|flow| flow.join().expect("the flow ends")).collect()
    })
}

/// Sets an option that is an `int`.
pub(crate) fn set_option(socket: &Socket, level: i32, name: i32, value: i32) {
    // SAFETY: the descriptor is open, and the value is an int of the length given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            libc::socklen_t::try_from(size_of::<i32>()).expect("small"),
        )
    };
    assert_eq!(result, 0, "option {level}/{name}: {}", std::io::Error::last_os_error());
}
