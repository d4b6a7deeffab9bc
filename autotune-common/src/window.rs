//! Conversions between receive-buffer space and window, as kernels 6.6 and later do them.
//!
//! `scaling_ratio` is the payload per charged memory in 1/256, measured from the segments that arrive
//! (`include/net/tcp.h`, commit dfa2f0483360).

/// `TCP_RMEM_TO_WIN_SCALE`: the ratio's fixed point.
const RMEM_TO_WIN_SCALE: u32 = 8;

/// Window that `space` bytes of receive buffer can hold (`tcp_win_from_space`).
///
/// ```text
/// (int)(((s64)space * scaling_ratio) >> 8)
/// ```
#[must_use]
pub const fn win_from_space(space: i32, scaling_ratio: u8) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "the kernel returns int")]
    let win = ((space as i64 * scaling_ratio as i64) >> RMEM_TO_WIN_SCALE) as i32;
    win
}

/// Receive-buffer space that a window of `win` bytes takes (`tcp_space_from_win`).
///
/// `None` for a ratio of 0, which the kernel never stores and would divide by.
///
/// ```text
/// (int)(((u64)win << 8) / scaling_ratio)
/// ```
///
/// `win` is signed: above 2^31 - 1 the caller's unsigned window turns negative on the way in, and the
/// sign is extended to the 64 bits of the division.
#[must_use]
pub const fn space_from_win(win: i32, scaling_ratio: u8) -> Option<i32> {
    #[expect(clippy::cast_sign_loss, reason = "the kernel converts int to u64, sign extended")]
    let scaled = (win as i64 as u64) << RMEM_TO_WIN_SCALE;
    #[expect(clippy::cast_possible_truncation, reason = "the kernel returns int")]
    match scaled.checked_div(scaling_ratio as u64) {
        Some(space) => Some(space as i32),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_recorded_from_kernels() {
        // linux-6.18.15: rcvbuf 131072, ratio 251 shows window_clamp 128512.
        assert_eq!(win_from_space(131_072, 251), 128_512);
        // linux-6.18.15: rcvbuf 309631, ratio 252 shows window_clamp 304793.
        assert_eq!(win_from_space(309_631, 252), 304_793);
        // SO_RCVLOWAT 300000 on kernel 6.18 gave rcvbuf 305976 at ratio 251.
        assert_eq!(space_from_win(300_000, 251), Some(305_976));
    }

    #[test]
    fn a_window_above_2_gib_turns_negative_on_the_way_in() {
        // (0xffffffff_ffffffff << 8) / 255 = 72340172838076672 = 0x0101010101010100, low half as int.
        assert_eq!(space_from_win(-1, 255), Some(0x0101_0100));
        assert_eq!(space_from_win(i32::MIN, 128), Some(0));
    }

    #[test]
    fn a_ratio_of_zero_is_refused() {
        assert_eq!(space_from_win(1, 0), None);
    }

    proptest! {
        #[test]
        fn they_agree_with_wide_arithmetic(space: i32, win: i32, ratio in 1..=255_u8) {
            let wide = (i128::from(space) * i128::from(ratio)).div_euclid(256);
            prop_assert_eq!(i128::from(win_from_space(space, ratio)), wide);
            let extended = i128::from(win).rem_euclid(1 << 64) * 256 % (1 << 64) / i128::from(ratio);
            let low = (extended.rem_euclid(1 << 32) + (1 << 31)).rem_euclid(1 << 32) - (1 << 31);
            prop_assert_eq!(space_from_win(win, ratio).map(i128::from), Some((low + (1 << 32) + (1 << 31)).rem_euclid(1 << 32) - (1 << 31)));
        }

        #[test]
        fn the_way_back_never_gains(win in 0..(i32::MAX >> 8), ratio in 1..=255_u8) {
            let space = space_from_win(win, ratio).unwrap();
            prop_assert!(win_from_space(space, ratio) <= win);
        }
    }
}
