//! Tests of the observer on samples made from a recorded growth: linux-6.18.15, second growth of the
//! trace's first socket, whose outcome the kernel shows as rcvbuf 160035 and `window_clamp` 156909.

use autotune_common::{
    Generation::V6_18,
    Outcome, Sample, SampleKind,
    sample::{FLAG_MPTCP, SAMPLE_VERSION, SOCK_RCVBUF_LOCK},
};
use proptest::prelude::*;

use super::{
    Cause, Explanation, Field, Finding, Growth, Observer, Unverified, Verdict, verdict::Setting,
};

const EXPECTED_RCVBUF: i32 = 160_035;
const EXPECTED_CLAMP: u32 = 156_909;

/// The grow sample.
fn grow() -> Sample {
    Sample {
        version: SAMPLE_VERSION,
        kind: SampleKind::Grow as u8,
        time_ns: 3_432_082_000,
        cookie: 1,
        seq: 2,
        growths: 1,
        bytes_received: 192_512,
        time_us: 5037,
        rtt_us: 1484,
        copied: 131_072,
        inq: 61_440,
        space: 65_483,
        scaling_ratio: 251,
        rcvbuf: 131_072,
        rcv_ssthresh: 95_232,
        window_clamp: 128_512,
        rcv_wnd: 95_232,
        rcv_wscale: 7,
        rcvlowat: 1,
        advmss: 65_483,
        tcp_rmem: [4096, 131_072, 33_554_432],
        tcp_moderate_rcvbuf: 1,
        ..Sample::ZERO
    }
}

/// The outcome sample: the kernel did what the formula says, and nothing else happened.
fn outcome() -> Sample {
    Sample {
        kind: SampleKind::Outcome as u8,
        time_ns: 3_432_900_000,
        seq: 3,
        space: 69_632,
        copied: 0,
        rcvbuf: EXPECTED_RCVBUF,
        window_clamp: EXPECTED_CLAMP,
        ..grow()
    }
}

fn judge(grow: &Sample, next: &Sample) -> Growth {
    Growth::settled(Some(V6_18), grow, next)
}

fn verdict(next: &Sample) -> Verdict {
    judge(&grow(), next).judgement.verdict
}

fn cause(next: &Sample) -> Option<Cause> {
    verdict(next).cause()
}

fn findings(observer: &mut Observer) -> Vec<Finding> {
    std::iter::from_fn(|| observer.poll()).collect()
}

fn verdicts(observer: &mut Observer) -> Vec<Verdict> {
    findings(observer)
        .into_iter()
        .filter_map(|finding| match finding {
            Finding::Growth(growth) => Some(growth.judgement.verdict),
            _ => None,
        })
        .collect()
}

// Verdicts

#[test]
fn the_recorded_growth_is_exact() {
    let growth = judge(&grow(), &outcome());
    assert_eq!(growth.judgement.verdict, Verdict::Exact);
    assert_eq!(growth.judgement.outcome(), Some(Outcome::Grow));
    assert_eq!(growth.judgement.divergence(), Some(0));
}

#[test]
fn one_byte_off_is_divergent() {
    // With the clamp that a growth to that buffer leaves.
    for (rcvbuf, window_clamp) in
        [(EXPECTED_RCVBUF + 1, EXPECTED_CLAMP + 1), (EXPECTED_RCVBUF - 1, EXPECTED_CLAMP - 1)]
    {
        let growth = judge(&grow(), &Sample { rcvbuf, window_clamp, ..outcome() });
        assert_eq!(growth.judgement.verdict, Verdict::Divergent, "{rcvbuf} {window_clamp}");
        assert_eq!(growth.judgement.divergence(), Some(i64::from(rcvbuf - EXPECTED_RCVBUF)));
    }
}

#[test]
fn what_moved_alone_was_not_moved_by_growth() {
    let rcvbuf = Sample { rcvbuf: EXPECTED_RCVBUF + 1000, ..outcome() };
    assert_eq!(verdict(&rcvbuf), Verdict::Unverified(Unverified::MovedAlone(Field::Rcvbuf)));
    let clamp = Sample { window_clamp: EXPECTED_CLAMP - 1000, rcv_ssthresh: 95_232, ..outcome() };
    assert_eq!(verdict(&clamp), Verdict::Unverified(Unverified::MovedAlone(Field::WindowClamp)));
}

#[test]
fn a_growth_that_no_probe_saw_is_told_by_the_space_it_left() {
    // Recorded on a 7.3 kernel whose probe was skipped for the second growth: space was 127973 after
    // the first, whose rcvbuf was 284383.
    let first = Sample {
        copied: 127_973,
        inq: 0,
        space: 65_483,
        rtt_us: 9375,
        scaling_ratio: 252,
        window_clamp: 129_024,
        tcp_rcvbuf_low_rtt: 100_000,
        ..grow()
    };
    let next = Sample { rcvbuf: 584_963, window_clamp: 575_822, space: 287_320, ..outcome() };
    let judged = |next: &Sample| {
        let v6_19 = Some(autotune_common::Generation::V6_19);
        Growth::settled(v6_19, &first, next).judgement.verdict
    };
    assert_eq!(judged(&next), Verdict::Unverified(Unverified::EventMissed));
    let exact = Sample { rcvbuf: 284_383, window_clamp: 279_939, space: 127_973, ..next };
    assert_eq!(judged(&exact), Verdict::Exact);
    assert_eq!(judged(&Sample { space: 127_973, ..next }), Verdict::Divergent);
}

#[test]
fn a_disconnected_socket_is_judged_by_its_buffer_alone() {
    let next = Sample { bytes_received: 0, window_clamp: 0, ..outcome() };
    assert_eq!(verdict(&next), Verdict::Exact);
    assert_eq!(verdict(&Sample { rcvbuf: 170_000, ..next }), Verdict::Divergent);
}

#[test]
fn a_growth_that_the_kernel_did_not_do_is_divergent() {
    let next = Sample { rcvbuf: 131_072, window_clamp: 128_512, ..outcome() };
    assert_eq!(verdict(&next), Verdict::Divergent);
}

#[test]
fn a_window_clamp_derived_anew_from_a_changed_ratio_is_exact() {
    // win_from_space(160035, 252) = 157534
    let next =
        Sample { scaling_ratio: 252, window_clamp: 157_534, bytes_received: 300_000, ..outcome() };
    assert_eq!(verdict(&next), Verdict::Exact);
}

#[test]
fn the_grow_sample_of_the_next_growth_shows_the_outcome_too() {
    let next = Sample { kind: SampleKind::Grow as u8, growths: 2, ..outcome() };
    assert_eq!(verdict(&next), Verdict::Exact);
}

#[test]
fn a_growth_lost_in_between_leaves_it_unverified() {
    for (kind, growths) in [(SampleKind::Outcome, 2), (SampleKind::Grow, 3), (SampleKind::Close, 9)]
    {
        let next = Sample { kind: kind as u8, growths, ..outcome() };
        assert_eq!(verdict(&next), Verdict::Unverified(Unverified::SamplesLost));
    }
}

#[test]
fn without_a_generation_nothing_is_verified() {
    let growth = Growth::settled(None, &grow(), &outcome());
    assert_eq!(growth.judgement.verdict, Verdict::Unverified(Unverified::GenerationUnknown));
    assert_eq!(growth.judgement.expected, None);
}

#[test]
fn a_space_of_zero_is_not_modelled() {
    let growth = judge(&Sample { space: 0, ..grow() }, &outcome());
    assert_eq!(growth.judgement.verdict.cause(), Some(Cause::NotModelled));
}

// Causes

#[test]
fn growth_for_an_out_of_order_segment_is_explained_by_the_span_it_implies() {
    // rcvwin = 2 * 69632 + 65536 = 204800, which takes 208879 at ratio 251, which holds 204799.
    let next = Sample {
        rcvbuf: 208_879,
        window_clamp: 204_799,
        rcv_ooopack: 3,
        rcv_wnd: 131_072,
        ..outcome()
    };
    let Verdict::Explained(Explanation::OooGrowth { ooo, offered, segments }) = verdict(&next)
    else {
        panic!("{:?}", verdict(&next));
    };
    assert_eq!((ooo, segments), (65_536, 3));
    assert_eq!(offered, EXPECTED_CLAMP.next_multiple_of(128));
}

#[test]
fn out_of_order_growth_needs_its_evidence() {
    let explained = Sample {
        rcvbuf: 208_879,
        window_clamp: 204_799,
        rcv_ooopack: 3,
        rcv_wnd: 131_072,
        ..outcome()
    };
    assert_eq!(cause(&explained), Some(Cause::OooGrowth));
    let no_segment = Sample { rcv_ooopack: 0, ..explained };
    assert_eq!(verdict(&no_segment), Verdict::Divergent);
    let clamp_elsewhere = Sample { window_clamp: 204_800, ..explained };
    assert_eq!(verdict(&clamp_elsewhere), Verdict::Divergent);
    // 2 * 69632 + 160000 = 299264 takes 305225: a span beyond any window that was offered.
    let span_too_wide = Sample { rcvbuf: 305_225, window_clamp: 299_263, ..explained };
    assert_eq!(verdict(&span_too_wide), Verdict::Divergent);
}

#[test]
fn so_rcvbuf_between_the_samples_is_set_by_application() {
    let next =
        Sample { userlocks: SOCK_RCVBUF_LOCK, rcvbuf: 65_536, window_clamp: 64_256, ..outcome() };
    assert_eq!(cause(&next), Some(Cause::SetByApplication));
}

#[test]
fn a_locked_buffer_moves_only_by_so_rcvbuf() {
    let locked = Sample { userlocks: SOCK_RCVBUF_LOCK, ..grow() };
    let untouched = Sample { rcvbuf: 131_072, window_clamp: 128_512, ..outcome() };
    let untouched = Sample { userlocks: SOCK_RCVBUF_LOCK, ..untouched };
    let growth = judge(&locked, &untouched);
    assert_eq!(growth.judgement.outcome(), Some(Outcome::Locked));
    assert_eq!(growth.judgement.verdict, Verdict::Exact);

    let growth = judge(&locked, &Sample { rcvbuf: 500_000, ..untouched });
    assert_eq!(
        growth.judgement.verdict,
        Verdict::Explained(Explanation::SetByApplication(Setting::RcvbufAgain {
            before: 131_072,
            after: 500_000
        }))
    );
}

#[test]
fn so_rcvlowat_is_explained_only_by_the_buffer_it_asks_for() {
    // space_from_win(300000, 251) = 305976
    let next = Sample { rcvlowat: 300_000, rcvbuf: 305_976, window_clamp: 300_000, ..outcome() };
    assert_eq!(cause(&next), Some(Cause::Rcvlowat));
    assert_eq!(verdict(&Sample { rcvbuf: 305_977, ..next }), Verdict::Divergent);
    let set_before = judge(&Sample { rcvlowat: 300_000, ..grow() }, &next);
    assert_eq!(set_before.judgement.verdict, Verdict::Divergent);
}

#[test]
fn a_clamp_by_memory_needs_a_threshold_that_fell() {
    let next = Sample { rcvbuf: 250_000, rcv_ssthresh: 2896, ..outcome() };
    assert_eq!(cause(&next), Some(Cause::MemoryClamp));
    let shrunk = Sample { rcvbuf: 100_000, ..next };
    assert_eq!(cause(&shrunk), Some(Cause::MemoryClamp));
    assert_eq!(verdict(&Sample { window_clamp: 200_000, ..next }), Verdict::Divergent);
    // Without the evidence nobody is named, but it was not growth.
    let alone = Verdict::Unverified(Unverified::MovedAlone(Field::Rcvbuf));
    assert_eq!(verdict(&Sample { rcv_ssthresh: 95_232, ..next }), alone);
    assert_eq!(verdict(&Sample { rcvbuf: 33_554_433, ..next }), alone);
}

#[test]
fn a_sysctl_explains_only_what_its_new_value_gives() {
    let capped = Sample {
        tcp_rmem: [4096, 131_072, 150_000],
        rcvbuf: 150_000,
        window_clamp: 147_070,
        ..outcome()
    };
    assert_eq!(
        verdict(&capped),
        Verdict::Explained(Explanation::SysctlChanged {
            name: "tcp_rmem[2]",
            before: 33_554_432,
            after: 150_000
        })
    );
    assert_eq!(verdict(&Sample { rcvbuf: 149_999, ..capped }), Verdict::Divergent);

    let off =
        Sample { tcp_moderate_rcvbuf: 0, rcvbuf: 131_072, window_clamp: 128_512, ..outcome() };
    assert_eq!(cause(&off), Some(Cause::SysctlChanged));
}

#[test]
fn a_window_clamp_of_the_application_must_leave_what_the_kernel_leaves() {
    let lowered = Sample { window_clamp: 40_000, rcv_ssthresh: 40_000, ..outcome() };
    assert_eq!(cause(&lowered), Some(Cause::SetByApplication));
    assert_eq!(
        verdict(&Sample { rcv_ssthresh: 95_232, ..lowered }),
        Verdict::Unverified(Unverified::MovedAlone(Field::WindowClamp))
    );
    let raised = Sample { window_clamp: 1 << 20, ..outcome() };
    assert_eq!(cause(&raised), Some(Cause::SetByApplication));
    assert_eq!(
        verdict(&Sample { rcv_ssthresh: 95_231, ..raised }),
        Verdict::Unverified(Unverified::MovedAlone(Field::WindowClamp))
    );
}

#[test]
fn an_mptcp_subflow_is_counted_and_not_judged() {
    let next = Sample { rcvbuf: 12_345_678, window_clamp: 1, flags: FLAG_MPTCP, ..outcome() };
    assert_eq!(cause(&next), Some(Cause::Mptcp));
}

#[test]
fn every_explanation_says_its_numbers() {
    let next = Sample { rcvbuf: 250_000, rcv_ssthresh: 2896, ..outcome() };
    let evidence = verdict(&next).evidence().unwrap();
    assert!(evidence.contains("95232") && evidence.contains("2896"), "{evidence}");
    assert_eq!(Verdict::Exact.evidence(), None);
}

#[test]
fn a_flipped_input_that_changes_the_result_is_never_exact() {
    let good = grow();
    let mut changed = 0;
    for bit in 0..31 {
        let flips = [
            Sample { copied: good.copied ^ (1 << bit), ..good },
            Sample { inq: good.inq ^ (1 << bit), ..good },
            Sample { space: good.space ^ (1 << bit), ..good },
            Sample { ooo: good.ooo ^ (1 << bit), ..good },
            Sample { rcvbuf: good.rcvbuf ^ (1 << bit), ..good },
            Sample { scaling_ratio: good.scaling_ratio ^ (1 << (bit % 8)), ..good },
            Sample { tcp_moderate_rcvbuf: 0, ..good },
            Sample { userlocks: SOCK_RCVBUF_LOCK, ..good },
            Sample { tcp_rmem: [4096, 131_072, good.tcp_rmem[2] ^ (1 << bit)], ..good },
        ];
        for flipped in flips {
            let result = |sample: &Sample| {
                V6_18
                    .grow(&sample.growth_input())
                    .map(|expected| (expected.rcvbuf, expected.window_clamp))
            };
            if result(&flipped) == result(&good) {
                continue;
            }
            changed += 1;
            let growth = judge(&flipped, &outcome());
            assert_ne!(growth.judgement.verdict, Verdict::Exact, "{flipped:?}");
        }
    }
    assert!(changed > 100, "only {changed} flips changed the result");
}

// The flow table

#[test]
fn an_outcome_sample_settles_the_growth_before_it() {
    let mut observer = Observer::new(Some(V6_18), 10);
    observer.handle(&grow());
    assert_eq!(observer.poll(), None);
    observer.handle(&outcome());
    assert_eq!(verdicts(&mut observer), [Verdict::Exact]);
    let flow = observer.flows().iter().next().unwrap();
    assert_eq!((flow.growths, flow.growths_missed, flow.samples_missed), (1, 0, 0));
}

#[test]
fn a_socket_that_ends_without_another_read_is_settled_by_its_last_sample() {
    let mut observer = Observer::new(Some(V6_18), 10);
    observer.handle(&grow());
    observer.handle(&Sample { kind: SampleKind::Close as u8, ..outcome() });
    let findings = findings(&mut observer);
    assert!(matches!(
        findings.as_slice(),
        [Finding::Growth(growth), Finding::Closed(_)] if growth.judgement.verdict == Verdict::Exact
    ));
    assert!(observer.flows().is_empty());
}

#[test]
fn a_lost_periodic_sample_does_not_cost_the_verdict() {
    let mut observer = Observer::new(Some(V6_18), 10);
    observer.handle(&grow());
    observer.handle(&Sample { seq: 5, ..outcome() });
    assert_eq!(verdicts(&mut observer), [Verdict::Exact]);
    assert_eq!(observer.stats().samples_missed, 2);
}

#[test]
fn growths_whose_samples_were_lost_are_counted() {
    let mut observer = Observer::new(Some(V6_18), 10);
    observer.handle(&grow());
    observer.handle(&Sample { seq: 7, growths: 4, ..outcome() });
    let findings = findings(&mut observer);
    assert!(matches!(
        findings.as_slice(),
        [Finding::Growth(growth), Finding::GrowthsMissed { count: 3 }]
            if growth.judgement.verdict == Verdict::Unverified(Unverified::SamplesLost)
    ));
}

#[test]
fn growths_lost_before_the_first_sample_are_counted() {
    let mut observer = Observer::new(Some(V6_18), 10);
    observer.handle(&Sample { growths: 3, ..outcome() });
    observer.handle(&Sample { cookie: 2, growths: 2, ..grow() });
    assert_eq!(
        findings(&mut observer),
        [Finding::GrowthsMissed { count: 3 }, Finding::GrowthsMissed { count: 1 }]
    );
}

#[test]
fn the_least_recently_sampled_flow_makes_room_and_is_counted() {
    let mut observer = Observer::new(Some(V6_18), 2);
    observer.handle(&grow());
    observer.handle(&Sample { cookie: 2, growths: 0, kind: 3, ..grow() });
    observer.handle(&Sample { cookie: 3, growths: 0, kind: 3, ..grow() });
    assert_eq!(verdicts(&mut observer), [Verdict::Unverified(Unverified::Evicted)]);
    assert_eq!(observer.stats().flows_evicted, 1);
    assert_eq!(observer.flows().len(), 2);
    // Back again with the growth that was judged when it was evicted: not counted twice.
    observer.handle(&outcome());
    assert_eq!(findings(&mut observer), []);
}

#[test]
fn what_waits_when_the_observer_stops_is_unverified() {
    let mut observer = Observer::new(Some(V6_18), 10);
    observer.handle(&grow());
    observer.finish();
    assert_eq!(verdicts(&mut observer), [Verdict::Unverified(Unverified::Stopped)]);
}

#[test]
fn a_sample_out_of_order_is_ignored_and_counted() {
    let mut observer = Observer::new(Some(V6_18), 10);
    observer.handle(&grow());
    observer.handle(&grow());
    observer.handle(&Sample { seq: 1, ..outcome() });
    assert_eq!(observer.stats().samples_out_of_order, 2);
    observer.handle(&outcome());
    assert_eq!(verdicts(&mut observer), [Verdict::Exact]);
}

/// What the probes would send of one socket: `true` is a growth, `false` a read, and which of the
/// samples arrive.
fn history() -> impl Strategy<Value = Vec<(bool, bool)>> {
    prop::collection::vec(any::<(bool, bool)>(), 1..60)
}

proptest! {
    /// However many samples are lost, each growth of a socket whose last sample arrives is accounted
    /// for exactly once: judged, unverified, or missed.
    #[test]
    fn every_growth_is_accounted_for_once(history in history()) {
        let mut observer = Observer::new(Some(V6_18), 10);
        let (mut growths, mut seq) = (0, 0);
        for &(is_growth, arrives) in &history {
            seq += 1;
            growths += u32::from(is_growth);
            let sample = if is_growth { grow() } else { outcome() };
            if arrives {
                observer.handle(&Sample { seq, growths, ..sample });
            }
        }
        seq += 1;
        observer.handle(&Sample { seq, growths, kind: SampleKind::Close as u8, ..outcome() });
        let counted: u32 = findings(&mut observer)
            .iter()
            .map(|finding| match finding {
                Finding::Growth(_) => 1,
                Finding::GrowthsMissed { count } => *count,
                Finding::Closed(_) => 0,
            })
            .sum();
        prop_assert_eq!(counted, growths);
    }

    #[test]
    fn no_pair_of_samples_panics(
        a in prop::collection::vec(any::<u8>(), Sample::SIZE),
        b in prop::collection::vec(any::<u8>(), Sample::SIZE),
    ) {
        let [a, b] = [a, b].map(|bytes| Sample::from_ne_bytes(&bytes.try_into().unwrap()));
        for generation in autotune_common::Generation::ALL {
            let next = Sample { growths: a.growths, kind: 2, ..b };
            let _ = Growth::settled(Some(generation), &a, &next).judgement.verdict.evidence();
            let mut observer = Observer::new(Some(generation), 1);
            observer.handle(&a);
            observer.handle(&b);
            observer.finish();
        }
    }
}
