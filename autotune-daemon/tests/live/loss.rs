//! A ring that is too small: what is lost is counted, and never taken for a divergence.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use autotune::{
    observe::{Finding, Unverified, Verdict},
    probe,
};
use autotune_common::{ProbeCounter, Sample, SampleKind};

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
    // Long enough that a flow outlasts the times when samples are lost.
    let flow = |v6, read| Flow { v6, read, bytes: 128 << 20, ..Flow::default() };
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
                std::thread::sleep(Duration::from_millis(20));
                watch.pause(false);
                std::thread::sleep(Duration::from_millis(60));
            }
        });
        for _ in 0..5 {
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
    let all = growths_of_last_samples(&watched.samples);
    let (judged, missed) = judged_and_missed(&watched.findings);
    println!("{growths_seen} growths of ours, {all} in all: {judged} judged, {missed} missed");
    assert_eq!(all, judged + missed);
}

#[test]
fn no_sample_that_drops_out_of_a_recording_makes_a_divergence() {
    let Some(_turn) = harness::turn() else { return };
    let generation = harness::kernel().detected.generation.expect("this kernel's formula is known");
    let (cookies, watched) = harness::watch(|_| {
        let flow = |v6, read| Flow { v6, read, bytes: 64 << 20, ..Flow::default() };
        let flows = [flow(false, 4 << 10), flow(true, 64 << 10), flow(false, 256 << 10)];
        (0..8).flat_map(|_| run_at_once(&flows)).collect()
    });
    watched.all_accounted_for(&cookies);
    let samples = watched.samples(&cookies);

    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut settled_late = 0;
    for drop_one_in in [2, 3, 5, 9].into_iter().cycle().take(100) {
        let mut keep = || {
            // xorshift
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            !state.is_multiple_of(drop_one_in)
        };
        let kept: Vec<Sample> = samples.iter().filter(|_| keep()).copied().collect();
        let findings = harness::replay(generation, &kept);
        for growth in harness::growths(&findings, &cookies) {
            match &growth.judgement.verdict {
                Verdict::Exact
                | Verdict::Explained(_)
                | Verdict::Unverified(Unverified::Stopped) => {}
                Verdict::Unverified(Unverified::SamplesLost) => settled_late += 1,
                verdict => panic!("{verdict:?}: {}", harness::shown(growth)),
            }
        }
        let (judged, missed) = judged_and_missed(&findings);
        assert_eq!(growths_of_last_samples(&kept), judged + missed);
    }
    println!("{settled_late} growths settled by a sample past a growth that was lost");
    assert!(settled_late > 100);
}

/// The growths that the probes had seen by each socket's last sample, on the whole host.
fn growths_of_last_samples(samples: &[Sample]) -> u64 {
    let last: BTreeMap<u64, u32> =
        samples.iter().map(|sample| (sample.cookie, sample.growths)).collect();
    last.into_values().map(u64::from).sum()
}

/// How many growths were judged, and how many are known by their number alone.
fn judged_and_missed(findings: &[Finding]) -> (u64, u64) {
    findings.iter().fold((0, 0), |(judged, missed), finding| match finding {
        Finding::Growth(_) => (judged + 1, missed),
        Finding::GrowthsMissed { count } => (judged, missed + u64::from(*count)),
        Finding::Closed(_) => (judged, missed),
    })
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
