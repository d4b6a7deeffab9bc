//! Each input counts: real samples with one field altered do not pass.

use std::collections::BTreeMap;

use autotune::observe::{Explanation, Verdict, verdict::Setting};
use autotune_common::{Expected, Generation, Sample, SampleKind, sample::SOCK_RCVBUF_LOCK};

use crate::{
    harness::{self, Watched, growths, kernel, replay, watch},
    netns::Namespace,
    traffic::{Flow, run_at_once},
};

/// A field of a pair of samples, and how one bit of it is flipped.
struct Field {
    name: &'static str,
    bits: u32,
    flip: fn(&mut Sample, &mut Sample, u32),
}

/// What the formula reads, in the grow sample. What only someone else could have changed in between is
/// altered in both samples: a change between them would be a cause of its own.
const INPUTS: [Field; 9] = [
    Field { name: "copied", bits: 32, flip: |grow, _, bit| grow.copied ^= 1 << bit },
    Field { name: "inq", bits: 32, flip: |grow, _, bit| grow.inq ^= 1 << bit },
    Field { name: "space", bits: 32, flip: |grow, _, bit| grow.space ^= 1 << bit },
    Field { name: "ooo", bits: 32, flip: |grow, _, bit| grow.ooo ^= 1 << bit },
    Field {
        name: "scaling_ratio",
        bits: 8,
        flip: |grow, next, bit| {
            grow.scaling_ratio ^= 1 << bit;
            next.scaling_ratio ^= 1 << bit;
        },
    },
    Field { name: "rcvbuf", bits: 32, flip: |grow, _, bit| grow.rcvbuf ^= 1 << bit },
    Field {
        name: "rmem_max",
        bits: 32,
        flip: |grow, next, bit| {
            grow.tcp_rmem[2] ^= 1 << bit;
            next.tcp_rmem[2] ^= 1 << bit;
        },
    },
    Field {
        name: "locked",
        bits: 1,
        flip: |grow, next, _| {
            grow.userlocks ^= SOCK_RCVBUF_LOCK;
            next.userlocks ^= SOCK_RCVBUF_LOCK;
        },
    },
    Field {
        name: "tcp_moderate_rcvbuf",
        bits: 1,
        flip: |grow, next, _| {
            grow.tcp_moderate_rcvbuf ^= 1;
            next.tcp_moderate_rcvbuf ^= 1;
        },
    },
];

/// What the kernel made of it, in the next sample.
const RESULTS: [Field; 2] = [
    Field { name: "rcvbuf", bits: 32, flip: |_, next, bit| next.rcvbuf ^= 1 << bit },
    Field { name: "window_clamp", bits: 32, flip: |_, next, bit| next.window_clamp ^= 1 << bit },
];

/// A grow sample and the sample that settled it exactly.
struct Exact {
    grow: Sample,
    next: Sample,
    expected: Expected,
}

#[test]
fn a_flipped_bit_of_any_input_or_result_is_noticed() {
    let Some(_turn) = harness::turn() else { return };
    let detected = kernel().detected.generation.expect("this kernel's formula is known");
    let (cookies, watched) = watch(|_| {
        let limited = Namespace::new();
        limited.sysctl("ipv4/tcp_rmem", "4096 131072 300000");
        let flow = |v6, read| Flow { v6, read, bytes: 64 << 20, ..Flow::default() };
        let flows = [
            flow(false, 4 << 10),
            flow(true, 64 << 10),
            flow(false, 1 << 20),
            Flow { rcvbuf: Some(200_000), ..flow(false, 64 << 10) },
        ];
        let mut cookies = limited.run(|| run_at_once(&flows));
        for _ in 0..4 {
            cookies.extend(run_at_once(&flows));
        }
        cookies
    });
    watched.all_accounted_for(&cookies);
    let pairs = exact_pairs(detected, &watched, &cookies);
    assert!(pairs.len() > 30, "{} exact growths", pairs.len());

    let mut tally = BTreeMap::<_, usize>::new();
    let mut escaped = Vec::new();
    for (side, fields) in [("input", &INPUTS[..]), ("result", &RESULTS[..])] {
        for field in fields {
            for pair in &pairs {
                for bit in 0..field.bits {
                    let Some(verdict) = altered(detected, pair, field, bit) else { continue };
                    let cause = verdict.cause().map_or("none", autotune::observe::Cause::as_str);
                    *tally.entry((side, field.name, verdict.as_str(), cause)).or_default() += 1;
                    if !matches!(verdict, Verdict::Divergent | Verdict::Unverified(_))
                        && !looks_set(&verdict, pair, field, bit)
                    {
                        escaped.push(format!(
                            "{side} {} bit {bit}: {verdict:?} {:?}\n{:?}\n{:?}",
                            field.name, pair.expected, pair.grow, pair.next
                        ));
                    }
                }
            }
        }
    }
    for (key, count) in &tally {
        println!("{key:?}: {count}");
    }
    assert!(escaped.is_empty(), "{} escaped, one of them {}", escaped.len(), escaped[0]);
}

/// Whether the altered pair looks just as if the application had set the buffer of a locked socket again,
/// or the window clamp: nothing else in the samples could tell.
fn looks_set(verdict: &Verdict, pair: &Exact, field: &Field, bit: u32) -> bool {
    let (mut grow, mut next) = (pair.grow, pair.next);
    (field.flip)(&mut grow, &mut next, bit);
    match verdict {
        Verdict::Explained(Explanation::SetByApplication(Setting::RcvbufAgain {
            before,
            after,
        })) => grow.is_locked() && next.is_locked() && before != after && after % 2 == 0,
        Verdict::Explained(Explanation::SetByApplication(Setting::WindowClamp {
            window_clamp,
        })) => {
            let brought_down =
                next.rcv_ssthresh <= *window_clamp && grow.rcv_ssthresh >= *window_clamp;
            let at_its_limit = next.rcv_ssthresh == *window_clamp;
            let beyond_the_buffer = i64::from(*window_clamp) >= i64::from(next.rcvbuf) * 255 / 256;
            brought_down || at_its_limit || beyond_the_buffer
        }
        _ => false,
    }
}

/// The pairs of samples of which the kernel did exactly what its formula says.
fn exact_pairs(generation: Generation, watched: &Watched, cookies: &[u64]) -> Vec<Exact> {
    let mut last = BTreeMap::new();
    let mut pairs = Vec::new();
    for next in watched.samples(cookies) {
        if let Some(grow) = last.insert(next.cookie, next)
            && grow.kind() == SampleKind::Grow
            && judged(generation, &grow, &next) == Verdict::Exact
            && let Ok(expected) = generation.grow(&grow.growth_input())
        {
            pairs.push(Exact { grow, next, expected });
        }
    }
    pairs
}

/// The verdict of the pair with a bit flipped; none where the flip makes no difference to what is
/// expected or observed.
fn altered(generation: Generation, pair: &Exact, field: &Field, bit: u32) -> Option<Verdict> {
    let (mut grow, mut next) = (pair.grow, pair.next);
    (field.flip)(&mut grow, &mut next, bit);
    let same_result = |expected: Expected| {
        (expected.rcvbuf, expected.window_clamp)
            == (pair.expected.rcvbuf, pair.expected.window_clamp)
    };
    let same_observed =
        (next.rcvbuf, next.window_clamp) == (pair.next.rcvbuf, pair.next.window_clamp);
    if same_observed && generation.grow(&grow.growth_input()).is_ok_and(same_result) {
        return None;
    }
    Some(judged(generation, &grow, &next))
}

fn judged(generation: Generation, grow: &Sample, next: &Sample) -> Verdict {
    let findings = replay(generation, &[*grow, *next]);
    growths(&findings, &[grow.cookie])[0].judgement.verdict.clone()
}
