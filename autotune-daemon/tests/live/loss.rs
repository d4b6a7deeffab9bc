//! A ring that is too small: what is lost is counted, and never taken for a divergence.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use autotune::{
    observe::{Finding, Verdict},
    probe,
};
use autotune_common::{ProbeCounter, SampleKind};

use crate::{
    harness::{self, Setup, Watch, tally},
    traffic::{Flow, run_at_once},
};

#[test]
fn lost_samples_are_counted_and_never_divergent() {
    let Some(_turn) = harness::turn() else { return };
    let _counting = probe::count_runs().expect("run counting");
    let watch = Watch::start(Setup {
        ring_bytes: 4096,
        interval: Duration::from_millis(1),
        ..Setup::default()
    });
    let flow = |v6, read| Flow { v6, read, bytes: 16 << 20, ..Flow::default() };
    let flows = [flow(false, 4 << 10), flow(true, 16 << 10), flow(false, 64 << 10)].repeat(4);
    let mut cookies = Vec::new();
    let mut growths_seen = 0;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (watch, done) = (&watch, &done);
        // A reader that is held up again and again.
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                watch.pause(true);
                std::thread::sleep(Duration::from_millis(100));
                watch.pause(false);
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        for _ in 0..8 {
            cookies.extend(run_at_once(&flows));
        }
        done.store(true, Ordering::Relaxed);
    });
    std::thread::sleep(Duration::from_millis(300));
    let watched = watch.finish();

    watched.assert_books_balance();
    let lost = watched.lost();
    println!(
        "{:?} delivered, {lost} lost, {} missed",
        watched.delivered, watched.stats.samples_missed
    );
    assert!(lost > 0, "the ring was too small");
    assert!(watched.counters.get(ProbeCounter::Shed) > 0, "periodic samples were shed first");
    let growths = watched.growths(&cookies);
    println!("{}", tally(&growths));
    for growth in &growths {
        assert_ne!(growth.judgement.verdict, Verdict::Divergent, "{}", harness::shown(growth));
    }

    // Each socket's last sample tells how many growths it had: those are judged, or known to be missed.
    for cookie in &cookies {
        let samples = watched.samples(&[*cookie]);
        let Some(last) = samples.last() else { continue };
        growths_seen += last.growths;
        let judged = growths.iter().filter(|growth| growth.grow.cookie == *cookie).count();
        let delivered = samples.iter().filter(|sample| sample.kind() == SampleKind::Grow).count();
        assert_eq!(judged, delivered, "each grow sample is judged once");
        assert!(judged as u32 <= last.growths);
    }
    // GrowthsMissed carries no socket, so the sum is over all that were sampled, on the whole host.
    let missed: u32 = watched
        .findings
        .iter()
        .map(|finding| if let Finding::GrowthsMissed { count } = finding { *count } else { 0 })
        .sum();
    let all_judged =
        watched.findings.iter().filter(|finding| matches!(finding, Finding::Growth(_))).count();
    let mut last_growths = std::collections::BTreeMap::new();
    for sample in &watched.samples {
        last_growths.insert(sample.cookie, sample.growths);
    }
    let all: u32 = last_growths.values().sum();
    println!("{growths_seen} growths of ours, {all} in all: {all_judged} judged, {missed} missed");
    assert_eq!(all as usize, all_judged + missed as usize);
}

#[test]
fn memory_does_not_grow_with_the_samples() {
    let Some(_turn) = harness::turn() else { return };
    let watch = Watch::start(Setup {
        interval: Duration::from_millis(1),
        keep_samples: false,
        ..Setup::default()
    });
    let flow = Flow { bytes: 256 << 20, read: 4 << 10, ..Flow::default() };
    // Threads and buffers of the traffic itself come with the first round.
    run_at_once(&[flow; 4]);
    let (before, taken_before) = (resident(), taken(&watch));
    for _ in 0..4 {
        run_at_once(&[flow; 4]);
    }
    let (after, taken) = (resident(), taken(&watch) - taken_before);
    watch.finish();
    println!("{taken} samples: resident set from {before} to {after} bytes");
    assert!(taken > 1000);
    assert!(after < before + (4 << 20), "{before} to {after} bytes");
}

fn taken(watch: &Watch) -> u64 {
    watch.seen().delivered.iter().sum()
}

/// This process's resident set, bytes.
fn resident() -> u64 {
    let me = procfs::process::Process::myself().expect("/proc");
    me.stat().expect("/proc/self/stat").rss * procfs::page_size()
}
