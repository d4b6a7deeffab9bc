//! Others that move the buffer between a growth and the next read, each caused for real.

use std::{path::Path, time::Duration};

use autotune::observe::{Cause, Finding, Growth, Verdict};
use autotune_common::{Sample, SampleKind};
use nix::libc;
use socket2::Socket;

use crate::{
    harness::{self, Setup, Watch, Watched, shown, tally, watch},
    netns::Namespace,
    traffic::{Flow, set_option},
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
    std::thread::sleep(Duration::from_millis(200));
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

/// Carries a flow, and does this to the reader once, when the kernel has grown its buffer and before the
/// next read. Returns the reader and what was seen.
fn after_first_growth(act: impl Fn(&Socket, usize) + Send) -> (u64, Watched) {
    let (cookies, watched) = watch(|_| {
        let (mut rcvbuf, mut acted) = (None, false);
        let flow = Flow { bytes: 2 << 20, read: 16 << 10, ..Flow::default() };
        vec![flow.run_with(|reader, _| {
            let now = reader.recv_buffer_size().expect("SO_RCVBUF");
            if !acted && rcvbuf.is_some_and(|before| now > before) {
                act(reader, now);
                acted = true;
            }
            rcvbuf = Some(now);
        })]
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
