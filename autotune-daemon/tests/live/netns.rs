//! Sysctls are those of the socket's own network namespace, at the moment of the growth.

use std::{
    fs::File,
    os::unix::fs::MetadataExt as _,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use autotune::observe::{Explanation, Growth, Verdict};
use autotune_common::Outcome;
use nix::sched::{CloneFlags, setns, unshare};

use crate::{
    harness::{self, tally, watch},
    traffic::{Flow, run_at_once},
};

/// A network namespace of its own, with loopback up. It ends with its last socket.
pub(crate) struct Namespace {
    file: File,
    /// Inode number, as samples carry it.
    pub(crate) inum: u32,
}

impl Namespace {
    pub(crate) fn new() -> Self {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            ip("link set lo up");
            File::open("/proc/thread-self/ns/net").expect("the namespace")
        });
        let file = made.join().expect("a network namespace");
        let inum = file.metadata().expect("an inode").ino().try_into().expect("32 bits");
        Self { file, inum }
    }

    /// Does this in the namespace, in a thread of its own; so do the threads that it starts.
    pub(crate) fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(&self.file, CloneFlags::CLONE_NEWNET).expect("entered");
                what()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Sets a sysctl below `net` in the namespace.
    pub(crate) fn sysctl(&self, name: &str, value: &str) {
        self.run(|| sysctl(name, value));
    }
}

/// Sets a sysctl below `net` of the calling thread's namespace.
fn sysctl(name: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{name}"), value).expect(name);
}

/// Runs `ip` in the calling thread's namespace.
pub(crate) fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("ip (iproute2)");
    assert!(status.success(), "ip {arguments}");
}

fn outcome(growth: &&Growth) -> Option<Outcome> {
    growth.judgement.outcome()
}

#[test]
fn each_namespace_is_judged_by_its_own_sysctls() {
    const LIMIT: i32 = 300_000;
    let Some(_turn) = harness::turn() else { return };
    let limited = Namespace::new();
    limited.sysctl("ipv4/tcp_rmem", &format!("4096 131072 {LIMIT}"));
    let off = Namespace::new();
    off.sysctl("ipv4/tcp_moderate_rcvbuf", "0");

    let flow = Flow { bytes: 512 << 20, ..Flow::default() };
    let both = [flow, Flow { v6: true, ..flow }];
    let (cookies, watched) = watch(|_| {
        std::thread::scope(|scope| {
            let here = scope.spawn(|| run_at_once(&both));
            let limited = scope.spawn(|| limited.run(|| run_at_once(&both)));
            let off = scope.spawn(|| off.run(|| run_at_once(&both)));
            [here, limited, off].map(|flows| flows.join().expect("the flows end")).concat()
        })
    });
    let growths = watched.all_accounted_for(&cookies);
    let of = |inum| -> Vec<&Growth> {
        growths.iter().filter(|growth| growth.grow.netns_inum == inum).copied().collect()
    };

    let of_limited = of(limited.inum);
    println!("limited: {}", tally(&of_limited));
    assert!(of_limited.iter().any(|growth| outcome(growth) == Some(Outcome::Capped)));
    for growth in &of_limited {
        assert_eq!(growth.grow.rmem_max(), LIMIT);
        let expected = growth.judgement.expected.expect("an expectation");
        assert!(expected.rcvbuf <= LIMIT, "{}", harness::shown(growth));
    }

    let of_off = of(off.inum);
    println!("off: {}", tally(&of_off));
    assert!(!of_off.is_empty());
    for growth in &of_off {
        assert_eq!(outcome(growth), Some(Outcome::ModerationOff), "{}", harness::shown(growth));
        assert_eq!(growth.judgement.verdict, Verdict::Exact);
    }

    let here: Vec<_> = growths
        .iter()
        .filter(|growth| ![limited.inum, off.inum].contains(&growth.grow.netns_inum))
        .copied()
        .collect();
    println!("here: {}", tally(&here));
    assert!(here.iter().any(|growth| outcome(growth) == Some(Outcome::Grow)));
    for growth in here {
        assert_ne!(outcome(&growth), Some(Outcome::ModerationOff), "{}", harness::shown(growth));
        assert_ne!(growth.grow.rmem_max(), LIMIT);
        if outcome(&growth) == Some(Outcome::Capped) {
            let expected = growth.judgement.expected.expect("an expectation");
            assert_eq!(expected.rcvbuf, growth.grow.rmem_max());
        }
    }
}

#[test]
fn a_buffer_set_by_the_application_is_locked_and_stays() {
    let Some(_turn) = harness::turn() else { return };
    let flow =
        |(rcvbuf, v6)| Flow { rcvbuf: Some(rcvbuf), v6, bytes: 128 << 20, ..Flow::default() };
    let set = [100_000, 400_000, 2_000_000];
    let flows: Vec<Flow> = set.into_iter().zip([false, true, false]).map(flow).collect();
    let (cookies, watched) = watch(|_| (0..4).flat_map(|_| run_at_once(&flows)).collect());
    let growths = watched.all_accounted_for(&cookies);
    assert!(!growths.is_empty(), "the event fires for locked sockets too");
    for growth in growths {
        assert_eq!(growth.judgement.outcome(), Some(Outcome::Locked));
        assert_eq!(growth.judgement.verdict, Verdict::Exact);
        let of_flow = cookies.iter().position(|cookie| *cookie == growth.grow.cookie);
        let set = set[of_flow.expect("one of ours") % set.len()];
        assert_eq!(usize::try_from(growth.grow.rcvbuf), Ok(2 * set));
    }
}

#[test]
fn a_limit_that_changes_while_data_flows_leaves_nothing_unexplained() {
    let Some(_turn) = harness::turn() else { return };
    let namespace = Namespace::new();
    let (cookies, watched) = watch(|_| {
        namespace.run(|| {
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for max in [200_000, 6_000_000, 131_072, 33_554_432, 900_000].iter().cycle() {
                        if done.load(Ordering::Relaxed) {
                            return;
                        }
                        sysctl("ipv4/tcp_rmem", &format!("4096 131072 {max}"));
                        std::thread::sleep(Duration::from_micros(200));
                    }
                });
                let flow = Flow { bytes: 8 << 20, read: 16 << 10, ..Flow::default() };
                let cookies = (0..100)
                    .flat_map(|_| run_at_once(&[flow, Flow { v6: true, ..flow }, flow]))
                    .collect();
                done.store(true, Ordering::Relaxed);
                cookies
            })
        })
    });
    let growths = watched.all_accounted_for(&cookies);
    let limits: std::collections::BTreeSet<i32> =
        growths.iter().map(|growth| growth.grow.rmem_max()).collect();
    assert!(limits.len() >= 4, "growths under {limits:?}");
    for growth in growths {
        if let Verdict::Explained(explanation) = &growth.judgement.verdict {
            assert!(
                matches!(explanation, Explanation::SysctlChanged { name: "tcp_rmem[2]", .. }),
                "{}",
                harness::shown(growth)
            );
        }
    }
}
