//! Programs that do nothing, at the tracepoints of the probes: what the benchmark measures the probes
//! against. The daemon never loads them.

#![no_std]
#![no_main]

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

/// Nothing at `tcp_rcvbuf_grow`.
#[btf_tracepoint(function = "tcp_rcvbuf_grow")]
fn tcp_rcvbuf_grow(_: BtfTracePointContext) -> i32 {
    0
}

/// Nothing at `tcp_rcv_space_adjust`.
#[btf_tracepoint(function = "tcp_rcv_space_adjust")]
fn tcp_rcv_space_adjust(_: BtfTracePointContext) -> i32 {
    0
}

/// Nothing at `tcp_destroy_sock`.
#[btf_tracepoint(function = "tcp_destroy_sock")]
fn tcp_destroy_sock(_: BtfTracePointContext) -> i32 {
    0
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
