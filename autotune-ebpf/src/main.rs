//! The probes: one program a tracepoint, as small as they can be, no policy.
//!
//! - `tcp_rcvbuf_grow`: a grow sample per event, always
//! - `tcp_rcv_space_adjust`: runs at every read on the host; an outcome sample when a grow sample waits
//!   for one, else at most one periodic sample per socket and interval
//! - `tcp_destroy_sock`: the last sample of a socket that was sampled before

//!

#![no_std]
#![no_main]

mod fill;
mod maps;
mod member;

use autotune_common::{ProbeCounter, Sample, SampleKind};
use aya_ebpf::{
    bindings::BPF_RB_FORCE_WAKEUP, helpers::generated::bpf_skc_to_tcp_sock, macros::btf_tracepoint,
    programs::BtfTracePointContext,
};

use crate::{
    fill::{Socket, fill},
    maps::{
        INTERVAL_TICKS, SAMPLES, SHED_ABOVE, SockState, count, is_skipped, now_ticks, ring_used,
        skip_until, sock_state,
    },
    member::{Base, is_laid_out},
};

/// `tcp_rcvbuf_grow(struct sock *sk, int time)`: before the buffer is grown.
#[btf_tracepoint(function = "tcp_rcvbuf_grow")]
#[inline(always)]
fn tcp_rcvbuf_grow(ctx: BtfTracePointContext) -> i32 {
    let sk = ctx.arg(0);
    let (Some(socket), Some(state)) = (socket(sk), sock_state(sk, true)) else {
        return warn(&ctx, lost(SampleKind::Grow));
    };
    state.growths = state.growths.wrapping_add(1);
    state.waiting = 1;
    skip_until(sk, 0);
    warn(&ctx, emit(SampleKind::Grow, socket, state, 0))
}

/// `tcp_rcv_space_adjust(struct sock *sk)`: at each read, before anything is changed.
///
/// The common read ends here: a program of its own in a few cache lines, for big reads leave the caches
/// cold.
#[btf_tracepoint(function = "tcp_rcv_space_adjust")]
#[inline(always)]
fn tcp_rcv_space_adjust(ctx: BtfTracePointContext) -> i32 {
    let sk = ctx.arg(0);
    let now = now_ticks();
    if is_skipped(sk, now) {
        count(ProbeCounter::ReadNotSampled);
        return 0;
    }
    warn(&ctx, look(&ctx, now))
}

/// A read of a socket that may have to be sampled. What [`emit`] returns.
#[inline(never)]
fn look(ctx: &BtfTracePointContext, now: u64) -> u64 {
    let sk = ctx.arg(0);
    let (Some(socket), Some(state)) = (socket(sk), sock_state(sk, true)) else {
        return lost(SampleKind::Periodic);
    };
    let waiting = state.waiting != 0;
    if !waiting && now < state.due {
        skip_until(sk, state.due);
        count(ProbeCounter::ReadNotSampled);
        return 0;
    }
    state.due = now.wrapping_add(INTERVAL_TICKS.load());
    let (mut kind, mut flags) = (SampleKind::Outcome, 0);
    if !waiting {
        skip_until(sk, state.due);
        let used = ring_used();
        if used > SHED_ABOVE.load() {
            count(ProbeCounter::Shed);
            return 0;
        }
        (kind, flags) = (SampleKind::Periodic, wake_up(used));
    }
    emit(kind, socket, state, flags)
}

/// `tcp_destroy_sock(struct sock *sk)`: the socket's end.
#[btf_tracepoint(function = "tcp_destroy_sock")]
#[inline(always)]
fn tcp_destroy_sock(ctx: BtfTracePointContext) -> i32 {
    let sk = ctx.arg(0);
    // The next socket may get the same address.
    skip_until(sk, 0);
    let Some(state) = sock_state(sk, false) else {
        count(ProbeCounter::CloseNotSampled);
        return 0;
    };
    let lost = match socket(sk) {
        Some(socket) => emit(SampleKind::Close, socket, state, 0),
        None => lost(SampleKind::Close),
    };
    warn(&ctx, lost)
}

/// The tracepoint's socket, unless it is not a full TCP socket.
#[inline(always)]
fn socket(sk: *const u8) -> Option<Socket> {
    // SAFETY: `sk` is the tracepoint's own socket; the helper returns null or the same socket.
    let tp = unsafe { bpf_skc_to_tcp_sock(sk.cast_mut().cast()) };
    if tp.is_null() { None } else { Some(Socket { sk: Base(sk), tp: Base(tp.cast()) }) }
}

/// Sends a sample and returns 0, or counts it as lost and returns how many were on this CPU. A lost
/// outcome sample is tried again at the next read.
#[inline(always)]
fn emit(kind: SampleKind, socket: Socket, state: &mut SockState, submit_flags: u64) -> u64 {
    // Without a layout, as other tools load the object, nothing can be read.
    if !is_laid_out() {
        return 0;
    }
    state.seq = state.seq.wrapping_add(1);
    let Some(mut record) = SAMPLES.reserve_untyped::<Sample>(0) else {
        return lost(kind);
    };
    fill(record.as_mut_ptr(), kind, socket, state);
    if matches!(kind, SampleKind::Outcome) {
        state.waiting = 0;
    }
    record.submit(submit_flags);
    count(ProbeCounter::Submitted(kind));
    0
}

/// Flags for a submit at this fill. By default the kernel wakes the reader if it had caught up, and as
/// the reader rests after each wake-up that is cheap. Once more where the ring is getting full: near
/// the threshold, not at each sample.
#[inline(always)]
fn wake_up(used: u64) -> u64 {
    const BAND: u64 = 4 * Sample::SIZE as u64;
    let below = SHED_ABOVE.load().wrapping_sub(used);
    if below < BAND { BPF_RB_FORCE_WAKEUP.into() } else { 0 }
}

/// Counts a lost sample, and returns how many of its kind were on this CPU.
#[inline(always)]
fn lost(kind: SampleKind) -> u64 {
    count(ProbeCounter::Lost(kind))
}

/// Warns of the first, second, fourth, eighth lost sample; of 0 never.
#[inline(always)]
fn warn(ctx: &BtfTracePointContext, lost: u64) -> i32 {
    #[cfg(feature = "log")]
    if lost.is_power_of_two() {
        warn_lost(ctx, lost);
    }
    #[cfg(not(feature = "log"))]
    let _ = (ctx, lost);
    0
}

// Not `cold`: that puts it into a section of its own, and aya 0.14 resolves a call into a second text
// section to the first function of the first.
#[cfg(feature = "log")]
#[inline(never)]
fn warn_lost(ctx: &BtfTracePointContext, lost: u64) {
    aya_log_ebpf::warn!(
        ctx,
        "{} samples of one kind lost on this CPU so far: see samples_lost_total, and --ring.size",
        lost
    );
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

// The helpers that the probes call are for GPL-compatible programs.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
