//! The probes: one program a tracepoint, as small as they can be, no policy.
//!
//! - `tcp_rcvbuf_grow`: a grow sample per event, always
//! - `tcp_rcv_space_adjust`: runs at every read on the host; an outcome sample when a grow sample waits
//!   for one, else at most one periodic sample per socket and interval
//! - `tcp_destroy_sock`: the last sample of a socket that was sampled before

#![no_std]
#![no_main]

mod fill;
mod maps;
mod member;

use autotune_common::{ProbeCounter, Sample, SampleKind, SockMember::TcpMstamp};
use aya_ebpf::{
    bindings::BPF_RB_FORCE_WAKEUP, helpers::generated::bpf_skc_to_tcp_sock, macros::btf_tracepoint,
    programs::BtfTracePointContext,
};

use crate::{
    fill::{Socket, fill},
    maps::{INTERVAL_US, SAMPLES, SHED_ABOVE, SockState, count, ring_used, sock_state},
    member::Base,
};

/// `tcp_rcvbuf_grow(struct sock *sk, int time)`: before the buffer is grown.
#[btf_tracepoint(function = "tcp_rcvbuf_grow")]
fn tcp_rcvbuf_grow(ctx: BtfTracePointContext) -> i32 {
    let (Some(socket), Some(state)) = (socket(&ctx), sock_state(ctx.arg(0), true)) else {
        return lost(&ctx, SampleKind::Grow);
    };
    state.growths = state.growths.wrapping_add(1);
    state.waiting = 1;
    emit(&ctx, SampleKind::Grow, socket, state, ring_used())
}

/// `tcp_rcv_space_adjust(struct sock *sk)`: at each read, before anything is changed.
#[btf_tracepoint(function = "tcp_rcv_space_adjust")]
fn tcp_rcv_space_adjust(ctx: BtfTracePointContext) -> i32 {
    let (Some(socket), Some(state)) = (socket(&ctx), sock_state(ctx.arg(0), true)) else {
        return lost(&ctx, SampleKind::Periodic);
    };
    let now_us = socket.tp.u64(TcpMstamp);
    let waiting = state.waiting != 0;
    if !waiting && now_us < state.due_us {
        count(ProbeCounter::ReadNotSampled);
        return 0;
    }
    state.due_us = now_us.wrapping_add(INTERVAL_US.load());
    let used = ring_used();
    if waiting {
        return emit(&ctx, SampleKind::Outcome, socket, state, used);
    }
    if used > SHED_ABOVE.load() {
        count(ProbeCounter::Shed);
        return 0;
    }
    emit(&ctx, SampleKind::Periodic, socket, state, used)
}

/// `tcp_destroy_sock(struct sock *sk)`: the socket's end.
#[btf_tracepoint(function = "tcp_destroy_sock")]
fn tcp_destroy_sock(ctx: BtfTracePointContext) -> i32 {
    let Some(state) = sock_state(ctx.arg(0), false) else {
        count(ProbeCounter::CloseNotSampled);
        return 0;
    };
    match socket(&ctx) {
        Some(socket) => emit(&ctx, SampleKind::Close, socket, state, ring_used()),
        None => lost(&ctx, SampleKind::Close),
    }
}

/// The tracepoint's socket, unless it is not a full TCP socket.
#[inline(always)]
fn socket(ctx: &BtfTracePointContext) -> Option<Socket> {
    let sk: *const u8 = ctx.arg(0);
    // SAFETY: `sk` is the tracepoint's own socket; the helper returns null or the same socket.
    let tp = unsafe { bpf_skc_to_tcp_sock(sk.cast_mut().cast()) };
    if tp.is_null() { None } else { Some(Socket { sk: Base(sk), tp: Base(tp.cast()) }) }
}

/// Sends a sample, or counts it as lost. A lost outcome sample is tried again at the next read.
#[inline(always)]
fn emit(
    ctx: &BtfTracePointContext,
    kind: SampleKind,
    socket: Socket,
    state: &mut SockState,
    used: u64,
) -> i32 {
    state.seq = state.seq.wrapping_add(1);
    let Some(mut record) = SAMPLES.reserve_untyped::<Sample>(0) else {
        return lost(ctx, kind);
    };
    fill(record.as_mut_ptr(), kind, socket, state);
    if matches!(kind, SampleKind::Outcome) {
        state.waiting = 0;
    }
    record.submit(wake_up(used));
    count(ProbeCounter::Submitted(kind));
    0
}

/// Flags for a submit at this fill: by default the kernel wakes the reader if it had caught up, and
/// as the reader rests after each wake-up that is cheap. Once more when the ring is getting full,
/// where the fill passes the threshold and not at each sample above it.
#[inline(always)]
fn wake_up(used: u64) -> u64 {
    const BAND: u64 = 4 * Sample::SIZE as u64;
    let above = used.wrapping_sub(SHED_ABOVE.load());
    if above < BAND { BPF_RB_FORCE_WAKEUP.into() } else { 0 }
}

/// Counts a lost sample, and warns of the first, second, fourth, eighth of its kind on this CPU.
#[inline(always)]
fn lost(ctx: &BtfTracePointContext, kind: SampleKind) -> i32 {
    let lost = count(ProbeCounter::Lost(kind));
    #[cfg(feature = "log")]
    if lost & lost.wrapping_sub(1) == 0 {
        warn_lost(ctx, lost);
    }
    #[cfg(not(feature = "log"))]
    let _ = (ctx, lost);
    0
}

#[cfg(feature = "log")]
#[cold]
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
