//! A second implementation of every modelled generation, in wide integers, compared with
//! [`Generation::grow`] on plausible, random and extreme inputs; and what must hold of any growth.
//!
//! The twin is written from the description of the kernel's arithmetic and shares no code with `src/`:
//! it computes in `i128`, and every truncation of the kernel is an explicit modulo.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use autotune_common::window::win_from_space;
use autotune_common::{Expected, Generation, GrowError, GrowthInput, Outcome};
use proptest::prelude::*;

const MODELLED: [Generation; 5] = [
    Generation::V6_6,
    Generation::V6_12_35,
    Generation::V6_16,
    Generation::V6_18,
    Generation::V6_19,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn every_generation_agrees_with_its_twin(input in any_input()) {
        for generation in MODELLED {
            prop_assert_eq!(generation.grow(&input), twin::grow(generation, &input), "{}", generation);
        }
    }

    #[test]
    fn growth_for_reordering_agrees_with_the_twin(input in any_input()) {
        for generation in MODELLED {
            let twin = twin::grow_ooo(generation, &input);
            prop_assert_eq!(generation.grow_ooo(&input), twin, "{}", generation);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn rcvbuf_never_shrinks_and_stays_below_the_limit(input in sane_input()) {
        for expected in grown(&input) {
            prop_assert!(expected.rcvbuf >= input.rcvbuf);
            prop_assert!(expected.rcvbuf <= input.rcvbuf.max(input.rmem_max));
        }
    }

    #[test]
    fn a_capped_target_is_rmem_max(input in sane_input()) {
        for expected in grown(&input) {
            match expected.outcome {
                Outcome::Capped => {
                    prop_assert_eq!(expected.rcvbuf, input.rcvbuf.max(input.rmem_max));
                }
                Outcome::Grow => {
                    prop_assert!(expected.rcvbuf > input.rcvbuf);
                    prop_assert!(expected.rcvbuf <= input.rmem_max);
                }
                _ => prop_assert_eq!(expected.rcvbuf, input.rcvbuf),
            }
        }
    }

    #[test]
    fn window_clamp_moves_with_rcvbuf_and_only_with_it(input in any_input()) {
        for expected in grown(&input) {
            let clamp = if expected.rcvbuf == input.rcvbuf {
                input.window_clamp
            } else {
                win_from_space(expected.rcvbuf, input.scaling_ratio).cast_unsigned()
            };
            prop_assert_eq!(expected.window_clamp, clamp);
        }
    }

    #[test]
    fn a_closed_gate_changes_nothing_but_space(input in any_input(), locked: bool) {
        let open = GrowthInput { moderate_rcvbuf: true, locked: false, ..input };
        let closed = GrowthInput { moderate_rcvbuf: locked, locked, ..input };
        let outcome = if locked { Outcome::Locked } else { Outcome::ModerationOff };
        for generation in MODELLED {
            let Ok(would) = generation.grow(&open) else { continue };
            let GrowthInput { rcvbuf, window_clamp, .. } = input;
            let expected = Expected { outcome, rcvbuf, window_clamp, ..would };
            prop_assert_eq!(generation.grow(&closed), Ok(expected));
        }
    }

    #[test]
    fn moderation_off_is_told_before_the_lock(input in any_input()) {
        let input = GrowthInput { moderate_rcvbuf: false, locked: true, ..input };
        for expected in grown(&input) {
            prop_assert_eq!(expected.outcome, Outcome::ModerationOff);
        }
    }

    #[test]
    fn space_becomes_what_was_copied(input in any_input()) {
        let newval = input.copied.wrapping_sub(input.inq).cast_signed();
        for generation in MODELLED {
            if let Ok(expected) = generation.grow(&input) {
                let v6_6 = generation == Generation::V6_6;
                let space = if v6_6 { input.copied.cast_signed() } else { newval };
                prop_assert_eq!(expected.space, space);
            }
        }
    }

    #[test]
    fn a_space_of_zero_is_refused_where_the_kernel_divides_by_it(input in any_input()) {
        // Not below space in any generation, and above the threshold of v6.19.
        let input = GrowthInput { space: 0, copied: input.copied >> 1, inq: 0, low_rtt: 0, ..input };
        for generation in MODELLED {
            let refused = generation.grow(&input) == Err(GrowError::SpaceZero);
            prop_assert_eq!(refused, generation != Generation::V6_16, "{}", generation);
        }
    }

    #[test]
    fn a_ratio_of_zero_is_refused_where_the_kernel_divides_by_it(input in any_input()) {
        let open = GrowthInput { moderate_rcvbuf: true, locked: false, ..input };
        let input = GrowthInput { scaling_ratio: 0, ..open };
        for generation in MODELLED {
            match generation.grow(&GrowthInput { scaling_ratio: 1, ..open }) {
                Ok(_) => prop_assert_eq!(generation.grow(&input), Err(GrowError::ScalingRatioZero)),
                error => prop_assert_eq!(generation.grow(&input), error),
            }
        }
    }

    #[test]
    fn v4_16_is_never_guessed(input in any_input()) {
        prop_assert_eq!(Generation::V4_16.grow(&input), Err(GrowError::NotModelled));
        prop_assert_eq!(Generation::V4_16.grow_ooo(&input), Ok(None));
    }

    #[test]
    fn more_copied_never_asks_for_less(input in plausible_input(), more in 0_u32..1 << 16) {
        let larger = GrowthInput { copied: input.copied + more, ..input };
        for generation in MODELLED {
            let pair = (generation.grow(&input).unwrap(), generation.grow(&larger).unwrap());
            prop_assert!(pair.0.rcvwin <= pair.1.rcvwin, "{}: {:?}", generation, pair);
        }
    }
}

/// What every generation that can tell makes of `input`.
fn grown(input: &GrowthInput) -> impl Iterator<Item = Expected> {
    MODELLED.into_iter().filter_map(|generation| generation.grow(input).ok())
}

/// The values at which a width ends or a branch turns, and anything.
fn edge_u32() -> impl Strategy<Value = u32> {
    prop_oneof![
        prop::sample::select(vec![
            0,
            1,
            2,
            (1 << 30) - 1,
            1 << 30,
            (1 << 31) - 1,
            1 << 31,
            (1 << 31) + 1,
            u32::MAX - 1,
            u32::MAX,
        ]),
        0_u32..1 << 24,
        any::<u32>(),
    ]
}

fn edge_i32() -> impl Strategy<Value = i32> {
    edge_u32().prop_map(u32::cast_signed)
}

fn edge_ratio() -> impl Strategy<Value = u8> {
    prop_oneof![prop::sample::select(vec![0, 1, 2, 127, 128, 254, 255]), any::<u8>()]
}

prop_compose! {
    /// Anything that the types allow, weighted towards the edges.
    fn extreme_input()(
        sizes in (edge_u32(), edge_u32(), edge_i32(), edge_u32(), edge_i32(), edge_u32()),
        // v6.19 turns where rtt_us reaches the threshold.
        rtt in (edge_u32(), prop_oneof![
            prop::sample::select(vec![0, 1, 999, 1000, 1001, i32::MAX, i32::MIN, -1]),
            any::<i32>(),
        ]),
        near_threshold in prop::option::of(-1_i32..=1),
        rmem_max in prop_oneof![
            prop::sample::select(vec![0, 1, 6_291_456, 33_554_432, i32::MAX, -1, i32::MIN]),
            any::<i32>(),
        ],
        advmss in prop_oneof![prop::sample::select(vec![0, 1, 1448, u16::MAX]), any::<u16>()],
        scaling_ratio in edge_ratio(),
        moderate_rcvbuf in prop::bool::weighted(0.9),
        locked in prop::bool::weighted(0.1),
    ) -> GrowthInput {
        let (copied, inq, space, ooo, rcvbuf, window_clamp) = sizes;
        let (rtt_us, low_rtt) = rtt;
        let rtt_us = near_threshold.map_or(rtt_us, |by| low_rtt.wrapping_add(by).cast_unsigned());
        GrowthInput {
            copied, inq, space, ooo, rtt_us, advmss, scaling_ratio, rcvbuf, window_clamp, rmem_max,
            low_rtt, moderate_rcvbuf, locked,
        }
    }
}

prop_compose! {
    /// A socket as it is met: a little more copied than last time, with everything far from wrapping.
    fn plausible_input()(
        space in 4096_i32..1 << 22,
        above in 1_u32..1 << 18,
        inq in 0_u32..1 << 18,
        ooo in prop_oneof![Just(0), 0_u32..1 << 22],
        rtt in (1_u32..2000, prop::sample::select(vec![0, 1000])),
        advmss in prop::sample::select(vec![536, 1448, 4096, 8948]),
        scaling_ratio in 32_u8..=255,
        rcvbuf in 2304_i32..1 << 25,
        rmem_max in prop::sample::select(vec![6_291_456, 33_554_432]),
    ) -> GrowthInput {
        GrowthInput {
            copied: space.cast_unsigned() + above + inq,
            inq, space, ooo, rtt_us: rtt.0, advmss, scaling_ratio, rcvbuf,
            window_clamp: 65_535,
            rmem_max,
            low_rtt: rtt.1,
            moderate_rcvbuf: true,
            locked: false,
        }
    }
}

fn any_input() -> impl Strategy<Value = GrowthInput> {
    prop_oneof![plausible_input(), extreme_input()]
}

/// No negative buffer and no negative limit, which the kernel never stores.
fn sane_input() -> impl Strategy<Value = GrowthInput> {
    any_input().prop_map(|input| GrowthInput {
        rcvbuf: input.rcvbuf & i32::MAX,
        rmem_max: input.rmem_max & i32::MAX,
        ..input
    })
}

/// The kernel's arithmetic with unlimited integers and explicit truncation.
mod twin {
    use super::{Expected, Generation, GrowError, GrowthInput, Outcome};

    /// As the kernel's `u32`.
    fn u32_(value: i128) -> i128 {
        value.rem_euclid(1 << 32)
    }

    /// As the kernel's `u64`.
    fn u64_(value: i128) -> i128 {
        value.rem_euclid(1 << 64)
    }

    /// As the kernel's `int`.
    fn int(value: i128) -> i128 {
        let low = u32_(value);
        if low < 1 << 31 { low } else { low - (1 << 32) }
    }

    /// What the generation measures: its base, and the window that it asks room for.
    fn window(generation: Generation, input: &GrowthInput) -> Result<(i128, i128), GrowError> {
        let copied = i128::from(input.copied);
        let newval = int(copied - i128::from(input.inq));
        match generation {
            Generation::V4_16 => Err(GrowError::NotModelled),
            // copied and space are u32; nothing keeps the difference from wrapping.
            Generation::V6_6 => {
                let above = u32_(copied - i128::from(input.space));
                Ok((int(copied), smooth(copied, above, input)?))
            }
            // copied and space are int, extended with their sign to u64.
            Generation::V6_12_35 => {
                above_space(newval, input)?;
                let above = u64_(int(newval - i128::from(input.space)));
                Ok((newval, smooth(u64_(newval), above, input)?))
            }
            Generation::V6_16 => Ok((newval, int(2 * newval) + i128::from(input.ooo))),
            Generation::V6_18 | Generation::V6_19 => {
                above_space(newval, input)?;
                Ok((newval, newval_window(generation, newval, input)?))
            }
        }
    }

    fn above_space(newval: i128, input: &GrowthInput) -> Result<(), GrowError> {
        if newval < i128::from(input.space) { Err(GrowError::NotAboveSpace) } else { Ok(()) }
    }

    /// The window of v6.6 and v6.12.35: `base` and `above` are u64.
    fn smooth(base: i128, above: i128, input: &GrowthInput) -> Result<i128, GrowError> {
        let window = u64_(2 * base + 16 * i128::from(input.advmss));
        let growth = divided(u64_(window * above), u32_(i128::from(input.space)))?;
        Ok(u64_(window + 2 * growth))
    }

    /// The window of v6.18 and v6.19, which both take newval as u32.
    fn newval_window(
        generation: Generation,
        newval: i128,
        input: &GrowthInput,
    ) -> Result<i128, GrowError> {
        let space = i128::from(input.space);
        let window = u32_(2 * newval);
        let above = u32_(newval - space);
        let rtt_us = i128::from(input.rtt_us);
        let low_rtt = u32_(i128::from(input.low_rtt));
        let growth = if generation == Generation::V6_18 {
            2 * divided(window * above, u32_(space))?
        } else if rtt_us < low_rtt {
            window * rtt_us / low_rtt
        } else {
            divided(u64_(2 * window * above), u32_(space))?
        };
        Ok(u32_(window + growth) + i128::from(input.ooo))
    }

    fn divided(value: i128, space: i128) -> Result<i128, GrowError> {
        if space == 0 { Err(GrowError::SpaceZero) } else { Ok(value / space) }
    }

    /// The buffer asked for, limited, and whether the limit was the smaller.
    fn target(
        generation: Generation,
        window: i128,
        input: &GrowthInput,
    ) -> Result<(i128, bool), GrowError> {
        if input.scaling_ratio == 0 {
            return Err(GrowError::ScalingRatioZero);
        }
        let space = int(u64_(u64_(int(window)) * 256) / i128::from(input.scaling_ratio));
        let limit = i128::from(input.rmem_max);
        let unsigned = match generation {
            Generation::V4_16 | Generation::V6_6 | Generation::V6_12_35 => u64_,
            Generation::V6_16 | Generation::V6_18 | Generation::V6_19 => u32_,
        };
        let capped = unsigned(space) > unsigned(limit);
        Ok((if capped { limit } else { space }, capped))
    }

    pub(super) fn grow(generation: Generation, input: &GrowthInput) -> Result<Expected, GrowError> {
        let (space, window) = window(generation, input)?;
        let mut expected = Expected {
            outcome: Outcome::Enough,
            rcvbuf: input.rcvbuf,
            window_clamp: input.window_clamp,
            space: space.try_into().unwrap(),
            rcvwin: u32_(window).try_into().unwrap(),
        };
        if !input.moderate_rcvbuf {
            expected.outcome = Outcome::ModerationOff;
            return Ok(expected);
        }
        if input.locked {
            expected.outcome = Outcome::Locked;
            return Ok(expected);
        }
        let (rcvbuf, capped) = target(generation, window, input)?;
        let rcvbuf_before = i128::from(input.rcvbuf);
        let raised = match generation {
            Generation::V6_18 | Generation::V6_19 => u32_(rcvbuf) > u32_(rcvbuf_before),
            _ => rcvbuf > rcvbuf_before,
        };
        if raised {
            expected.outcome = Outcome::Grow;
            expected.rcvbuf = rcvbuf.try_into().unwrap();
            let win = (rcvbuf * i128::from(input.scaling_ratio)).div_euclid(256);
            expected.window_clamp = u32_(win).try_into().unwrap();
        }
        if capped {
            expected.outcome = Outcome::Capped;
        }
        Ok(expected)
    }

    /// Growth for an out-of-order segment: newval and oldval are both the stored space.
    pub(super) fn grow_ooo(
        generation: Generation,
        input: &GrowthInput,
    ) -> Result<Option<i32>, GrowError> {
        let space = i128::from(input.space);
        let window = match generation {
            Generation::V4_16 | Generation::V6_6 | Generation::V6_12_35 => return Ok(None),
            Generation::V6_16 => int(2 * space) + i128::from(input.ooo),
            Generation::V6_18 | Generation::V6_19 => newval_window(generation, space, input)?,
        };
        Ok(Some(target(generation, window, input)?.0.try_into().unwrap()))
    }
}
