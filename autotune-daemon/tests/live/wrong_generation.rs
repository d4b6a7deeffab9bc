//! The check can fail: the same samples, judged by the formula of another kernel.

use autotune::observe::Verdict;
use autotune_common::Generation;

use crate::{
    harness::{self, growths, kernel, replay, tally, watch},
    traffic::{Flow, run_at_once},
};

#[test]
fn only_the_formula_of_this_kernel_fits_its_samples() {
    let Some(_turn) = harness::turn() else { return };
    let detected = kernel().detected.generation.expect("this kernel's formula is known");
    let (cookies, watched) = watch(|_| {
        let flow = |v6, read| Flow { v6, read, bytes: 64 << 20, ..Flow::default() };
        (0..8)
            .flat_map(|_| {
                run_at_once(&[
                    flow(false, 4 << 10),
                    flow(true, 64 << 10),
                    flow(false, 1 << 20),
                    flow(true, 256 << 10),
                ])
            })
            .collect()
    });
    let samples = watched.samples(&cookies);
    watched.all_accounted_for(&cookies);

    let right = replay(detected, &samples);
    let right = growths(&right, &cookies);
    assert!(right.len() > 100, "{} growths", right.len());
    assert!(right.iter().all(|growth| growth.judgement.verdict != Verdict::Divergent));

    let mut told_apart = 0;
    for wrong in Generation::ALL.into_iter().filter(|generation| *generation != detected) {
        let findings = replay(wrong, &samples);
        let judged = growths(&findings, &cookies);
        assert_eq!(judged.len(), right.len());
        // Where the kernel did what its own formula says, and this one says something else.
        let differing: Vec<_> = judged
            .iter()
            .zip(&right)
            .filter(|(_, right)| right.judgement.verdict == Verdict::Exact)
            .filter_map(|(judged, right)| {
                let (wrong, right) = (judged.judgement.expected?, right.judgement.expected?);
                (wrong.rcvbuf != right.rcvbuf).then_some(*judged)
            })
            .collect();
        println!("{wrong}: of {} that differ: {}", judged.len(), tally(&differing));
        for growth in &differing {
            assert_eq!(
                growth.judgement.verdict,
                Verdict::Divergent,
                "{wrong}: {}",
                harness::shown(growth)
            );
        }
        // The neighbours differ by a byte now and then, the others nearly always.
        if differing.len() * 2 > right.iter().filter(|growth| grew(growth)).count() {
            told_apart += 1;
        }
    }
    assert!(told_apart >= 2, "{told_apart} other formulas were told from {detected}");
}

/// Whether the kernel raised the buffer.
fn grew(growth: &autotune::observe::Growth) -> bool {
    growth.judgement.expected.is_some_and(|expected| expected.rcvbuf > growth.grow.rcvbuf)
}
