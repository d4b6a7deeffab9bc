//! Maps and the constants that the daemon sets before load.

use autotune_common::{ProbeCounter, SockMember};
use aya_ebpf::{
    Global,
    bindings::BPF_SK_STORAGE_GET_F_CREATE,
    btf_maps::{PerCpuArray, RingBuf, SkStorage},
    helpers::generated::{bpf_ringbuf_query, bpf_sk_storage_get},
    macros::btf_map,
};

/// Where the running kernel keeps what the probes read, one word a [`SockMember`].
///
/// One global a member, so that the verifier folds each load to a constant.
#[unsafe(no_mangle)]
pub(crate) static SOCK_LAYOUT: [Global<u32>; SockMember::COUNT] =
    [const { Global::new(u32::MAX) }; SockMember::COUNT];

/// Least time between two periodic samples of a socket, microseconds.
#[unsafe(no_mangle)]
pub(crate) static INTERVAL_US: Global<u64> = Global::new(1_000_000);

/// Fill of the ring buffer above which periodic samples are shed and the reader is woken, bytes.
#[unsafe(no_mangle)]
pub(crate) static SHED_ABOVE: Global<u64> = Global::new(1 << 21);

/// Samples on their way to the daemon, which sets the size. A ring buffer has no values: libbpf, and so
/// bpftool, refuses one that names their type.
#[btf_map]
pub(crate) static SAMPLES: RingBuf<(), { 1 << 22 }> = RingBuf::new();

/// What the probes remember of a socket. The kernel frees it with the socket.
#[btf_map]
static SOCK_STATE: SkStorage<SockState> = SkStorage::new();

#[btf_map]
static COUNTERS: PerCpuArray<[u64; ProbeCounter::COUNT], 1> = PerCpuArray::new();

/// State of one socket; the kernel creates it zeroed.
#[repr(C)]
pub(crate) struct SockState {
    /// When the next periodic sample is due, in `tcp_mstamp` microseconds.
    pub(crate) due_us: u64,
    /// Samples tried so far.
    pub(crate) seq: u32,
    /// Growth events so far.
    pub(crate) growths: u32,
    /// A grow sample waits for its outcome sample.
    pub(crate) waiting: u32,
    pub(crate) reserved: u32,
}

/// The socket's state, created when `create` is set and there is none. None when the kernel has no
/// memory for it, or the socket has none.
#[inline(always)]
pub(crate) fn sock_state(sk: *const u8, create: bool) -> Option<&'static mut SockState> {
    let flags = if create { BPF_SK_STORAGE_GET_F_CREATE.into() } else { 0 };
    // SAFETY: `sk` is the tracepoint's own argument, a live socket. The helper returns null or this
    // socket's value, which outlives the program's run; the tracepoints fire with the socket locked
    // (tcp_rcv_space_adjust, tcp_rcvbuf_grow) or no longer in use (tcp_destroy_sock), so that no
    // second run writes to it.
    unsafe {
        bpf_sk_storage_get(
            core::ptr::from_ref(&SOCK_STATE).cast_mut().cast(),
            sk.cast_mut().cast(),
            core::ptr::null_mut(),
            flags,
        )
        .cast::<SockState>()
        .as_mut()
    }
}

/// Adds one to this CPU's count and returns the new value.
#[inline(always)]
pub(crate) fn count(counter: ProbeCounter) -> u64 {
    let Some(counters) = COUNTERS.get_ptr_mut(0) else { return 0 };
    // SAFETY: the map holds one array of ProbeCounter::COUNT counts for each CPU, and the index is
    // within it. Another probe that interrupts this one counts in a cell of its own, as each cell
    // is written by one program.
    unsafe {
        let cell = counters.cast::<u64>().add(counter.index());
        let value = (*cell).wrapping_add(1);
        *cell = value;
        value
    }
}

/// Bytes of samples that wait in the ring buffer.
#[inline(always)]
pub(crate) fn ring_used() -> u64 {
    const BPF_RB_AVAIL_DATA: u64 = 0;
    // SAFETY: the first argument is a ring-buffer map of this object.
    unsafe { bpf_ringbuf_query(core::ptr::from_ref(&SAMPLES).cast_mut().cast(), BPF_RB_AVAIL_DATA) }
}
