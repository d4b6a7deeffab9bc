//! A path between two namespaces that delivers segments out of order.
//!
//! Each namespace has a TUN device, and the test carries the packets between them.

use std::{
    fs::File,
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr},
    os::fd::AsRawFd as _,
    os::unix::fs::OpenOptionsExt as _,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use autotune::observe::{Cause, Verdict};
use nix::libc;

use crate::{
    harness::{self, PATIENCE, watch},
    netns::{Namespace, ip},
    traffic::Flow,
};

const SENDER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const READER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const MTU: usize = 9000;

nix::ioctl_write_ptr_bad!(tun_set_interface, libc::TUNSETIFF, libc::ifreq);

/// One way over the path, and how much longer a packet takes that is held up.
const DELAY: Duration = Duration::from_millis(1);
const HELD_UP: Duration = Duration::from_millis(5);

#[test]
fn growth_for_segments_out_of_order_is_told_apart() {
    let Some(_turn) = harness::turn() else { return };
    let (cookies, watched) = watch(|watch| {
        let (from, to) = (Namespace::new(), Namespace::new());
        let near = from.run(|| tun(SENDER));
        let far = to.run(|| tun(READER));
        let (done, hold, never) = Default::default();
        std::thread::scope(|scope| {
            let (near, far, done, hold, never) = (&near, &far, &done, &hold, &never);
            scope.spawn(move || carry(near, far, done, hold));
            scope.spawn(move || carry(far, near, done, never));
            let cookies = vec![bursts(&from, &to, hold), bursts(&from, &to, hold)];
            // The last acknowledgements want to be carried too.
            watch.until_closed(&cookies);
            done.store(true, Ordering::Relaxed);
            cookies
        })
    });
    let growths = watched.all_accounted_for(&cookies);
    let explained: Vec<_> = growths
        .iter()
        .filter(|growth| growth.judgement.verdict.cause() == Some(Cause::OooGrowth))
        .collect();
    assert!(
        !explained.is_empty(),
        "a segment out of order came between a growth and the next read"
    );
    let exact = growths.iter().filter(|growth| growth.judgement.verdict == Verdict::Exact).count();
    assert_eq!(exact + explained.len(), growths.len(), "nothing else happened");
}

/// Sends bursts, each a little larger than the one before and read as it arrives. The first segment of a
/// burst ends the measurement of the one before, so that its read makes the kernel grow the buffer a
/// little. The second is held up, so that the others queue out of order before the next read. Returns the
/// reader's cookie.
fn bursts(from: &Namespace, to: &Namespace, hold: &AtomicUsize) -> u64 {
    let flow = Flow::default();
    let listener = to.run(|| flow.listen(SocketAddr::from((READER, 0))));
    let address = listener.local_addr().expect("an address");
    let mut sender = from.run(|| flow.socket());
    sender.connect_timeout(&address, PATIENCE).expect("connected");
    let (mut reader, _) = listener.accept().expect("a connection");
    reader.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    let cookie = reader.cookie().expect("a cookie");
    let (orders, bursts) = mpsc::channel::<usize>();
    let sending = std::thread::spawn(move || {
        for length in bursts {
            sender.write_all(&vec![0x5a; length]).expect("the reader reads");
        }
    });
    let mut buffer = vec![0; 256 << 10];
    let opening = [20_000; 8].into_iter();
    for length in opening.chain((60_000..110_000).step_by(2000)) {
        hold.store(if length > 20_000 { 2 } else { 0 }, Ordering::Relaxed);
        orders.send(length).expect("the sender sends");
        let mut left = length;
        while left > 0 {
            left -= reader.read(&mut buffer).expect("data");
        }
        std::thread::sleep(4 * DELAY);
    }
    drop(orders);
    sending.join().expect("the sender ends");
    assert_eq!(reader.read(&mut buffer).expect("the end"), 0);
    cookie
}

/// A TUN device of the calling thread's namespace with this address.
fn tun(address: Ipv4Addr) -> File {
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .expect("/dev/net/tun");
    // SAFETY: all zero is a valid ifreq: no name, so that the kernel chooses one, and no flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..3].copy_from_slice(&[b't' as _, b'u' as _, b'n' as _]);
    let flags = libc::IFF_TUN | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags = flags.try_into().expect("16 bits");
    // SAFETY: the descriptor is open, and the request has a name and flags.
    unsafe { tun_set_interface(file.as_raw_fd(), &raw const request) }.expect("TUNSETIFF");
    ip(&format!("address add {address}/24 dev tun"));
    ip(&format!("link set tun mtu {MTU} txqueuelen 10000 up"));
    file
}

/// Carries packets from one device to the other until it is done, each with the delay of the path. One
/// with data takes longer when it is the one to hold up, counted from 1.
fn carry(mut from: &File, mut to: &File, done: &AtomicBool, hold: &AtomicUsize) {
    let mut underway: Vec<(Instant, Vec<u8>)> = Vec::new();
    let mut buffer = vec![0; MTU + 100];
    while !done.load(Ordering::Relaxed) {
        match from.read(&mut buffer) {
            Ok(length) => {
                let count_down = |left: usize| left.checked_sub(1);
                let held_up = length > MTU / 2
                    && hold.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count_down) == Ok(1);
                let delay = if held_up { DELAY + HELD_UP } else { DELAY };
                underway.push((Instant::now() + delay, buffer[..length].to_vec()));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_micros(50));
            }
            Err(error) => panic!("reading from a TUN device: {error}"),
        }
        let now = Instant::now();
        for (_, packet) in underway.extract_if(.., |(due, _)| *due <= now) {
            // A device that is down takes nothing.
            let _ = to.write(&packet);
        }
    }
}
