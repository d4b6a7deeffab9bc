//! Others that move the buffer between a growth and the next read, each caused for real.

use std::{
    io::{Read as _, Write as _},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use autotune::observe::{Cause, Finding, Growth, Verdict};
use autotune_common::{Sample, SampleKind};
use nix::libc;
use socket2::Socket;

use crate::{
    harness::{self, PATIENCE, Setup, Watch, Watched, growths, shown, tally, watch},
    netns::Namespace,
    traffic::{Flow, Pair, set_option},
};

#[test]
fn a_buffer_that_the_application_sets_after_a_growth_is_told_apart() {
    let Some(_turn) = harness::turn() else { return };
    let (cookie, watched) = after_first_growth(|reader, now| {
        reader.set_recv_buffer_size(now / 4 + 1).expect("SO_RCVBUF");
    });
    for growth in explained_by(Cause::SetByApplication, cookie, &watched) {
        assert!(!growth.grow.is_locked());
    }
    let locked: Vec<_> = watched.samples(&[cookie]).into_iter().filter(Sample::is_locked).collect();
    assert!(locked.iter().any(|sample| sample.kind() == SampleKind::Outcome));
}

#[test]
fn a_low_water_mark_that_raises_the_buffer_is_told_apart() {
    let Some(_turn) = harness::turn() else { return };
    let (cookie, watched) = after_first_growth(|reader, now| {
        let value = i32::try_from(now + 100_000).expect("fits");
        set_option(reader, libc::SOL_SOCKET, libc::SO_RCVLOWAT, value);
    });
    explained_by(Cause::Rcvlowat, cookie, &watched);
}

#[test]
fn a_window_clamp_that_the_application_sets_after_a_growth_is_told_apart() {
    let Some(_turn) = harness::turn() else { return };
    let (cookie, watched) = after_first_growth(|reader, _| {
        set_option(reader, libc::SOL_TCP, libc::TCP_WINDOW_CLAMP, 40_000);
    });
    for growth in explained_by(Cause::SetByApplication, cookie, &watched) {
        let observed = growth.judgement.observed.expect("an outcome sample");
        assert_eq!(observed.window_clamp, 40_000);
    }
}

#[test]
fn a_buffer_that_small_segments_overrun_is_told_apart() {
    let Some(_turn) = harness::turn() else { return };
    let clamped = |growth: &&Growth| growth.judgement.verdict.cause() == Some(Cause::MemoryClamp);
    let (cookies, watched) = watch(|watch| {
        let namespace = Namespace::new();
        let start = Instant::now();
        let mut cookies = Vec::new();
        // Whether memory runs out before the window closes depends on who runs when.
        while start.elapsed() < PATIENCE / 2 {
            cookies.push(namespace.run(overrun));
            watch.until_closed(&cookies);
            if growths(&watch.seen().findings, &cookies).iter().any(clamped) {
                break;
            }
        }
        cookies
    });
    let growths = watched.all_accounted_for(&cookies);
    if !growths.iter().any(clamped) {
        harness::skipped("receive memory did not run out between a growth and the next read");
    }
}

/// Large segments until the buffer has grown, and then, while nobody reads, small ones that take more
/// memory than the window accounts for. Returns the reader's cookie.
fn overrun() -> u64 {
    let Pair { mut reader, mut sender } = Flow::default().connect();
    sender.set_tcp_nodelay(true).expect("TCP_NODELAY");
    // Little that is large is still to come once the buffer has grown.
    sender.set_send_buffer_size(16 << 10).expect("SO_SNDBUF");
    let cookie = reader.cookie().expect("a cookie");
    let grown = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let grown = &grown;
        scope.spawn(move || {
            let large = vec![0x5a; 64 << 10];
            let mut left = 64 << 20;
            while !grown.load(Ordering::Relaxed) && left > 0 {
                sender.write_all(&large).expect("sent");
                left -= large.len();
            }
            for _ in 0..20_000 {
                sender.write_all(&[0x5a; 50]).expect("sent");
            }
        });
        let mut buffer = vec![0; 16 << 10];
        let before = reader.recv_buffer_size().expect("SO_RCVBUF");
        while reader.read(&mut buffer).expect("data") > 0 {
            if !grown.load(Ordering::Relaxed)
                && reader.recv_buffer_size().expect("SO_RCVBUF") > before
            {
                grown.store(true, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    });
    cookie
}

#[test]
fn an_mptcp_connection_causes_no_divergence() {
    let Some(_turn) = harness::turn() else { return };
    let enabled = std::fs::read_to_string("/proc/sys/net/mptcp/enabled");
    if enabled.is_ok_and(|value| value.trim() != "1") || !Path::new("/proc/sys/net/mptcp").exists()
    {
        harness::skipped("needs net.mptcp.enabled = 1");
        return;
    }
    let namespace = Namespace::new();
    let watch = Watch::start(Setup::default());
    let flow = Flow { mptcp: true, bytes: 256 << 20, ..Flow::default() };
    namespace.run(|| flow.run());
    // The cookie of the connection is not that of its subflows, which close when they like.
    std::thread::sleep(Duration::from_millis(100));
    let watched = watch.finish();
    let ours = |sample: &Sample| sample.netns_inum == namespace.inum;
    let growths: Vec<_> = watched
        .findings
        .iter()
        .filter_map(|finding| match finding {
            Finding::Growth(growth) if ours(&growth.grow) => Some(&**growth),
            _ => None,
        })
        .collect();
    println!("MPTCP subflows: {}", tally(&growths));
    for growth in growths {
        assert_ne!(growth.judgement.verdict, Verdict::Divergent, "{}", shown(growth));
    }
}

/// Carries flows until one grows, and then does this to its reader, once and before the next read. Returns
/// that reader and what was seen.
fn after_first_growth(act: impl Fn(&Socket, usize) + Send) -> (u64, Watched) {
    let (cookies, watched) = watch(|_| {
        let flow = Flow { bytes: 2 << 20, read: 16 << 10, ..Flow::default() };
        let mut acted = false;
        for _ in 0..100 {
            let mut rcvbuf = None;
            let cookie = flow.run_with(|reader, _| {
                let now = reader.recv_buffer_size().expect("SO_RCVBUF");
                if !acted && rcvbuf.is_some_and(|before| now > before) {
                    act(reader, now);
                    acted = true;
                }
                rcvbuf = Some(now);
            });
            if acted {
                return vec![cookie];
            }
        }
        panic!("no flow grew");
    });
    (cookies[0], watched)
}

/// The growths of the socket that were not exact; each of them must have this cause.
fn explained_by(cause: Cause, cookie: u64, watched: &Watched) -> Vec<&Growth> {
    let growths = watched.all_accounted_for(&[cookie]);
    let explained: Vec<_> =
        growths.into_iter().filter(|growth| growth.judgement.verdict != Verdict::Exact).collect();
    assert!(!explained.is_empty(), "something was set right after a growth");
    for growth in &explained {
        assert_eq!(growth.judgement.verdict.cause(), Some(cause), "{}", shown(growth));
    }
    explained
}
