//! Fills a sample in place in its ring-buffer record: every field, every time.

use autotune_common::{
    Sample, SampleKind,
    SockMember::{self, *},
    sample::{FLAG_MPTCP, FLAG_READER, FLAG_TIMESTAMPS, FLAG_USEC_TS, FLAG_WSCALE, SAMPLE_VERSION},
};
use aya_ebpf::helpers::{
    bpf_get_current_cgroup_id, bpf_get_current_pid_tgid, bpf_get_socket_cookie, bpf_ktime_get_ns,
    generated::bpf_get_current_comm,
};

use crate::{
    maps::SockState,
    member::{Base, offset},
};

const AF_INET6: u16 = 10;

/// A TCP socket at a tracepoint: `struct sock` and `struct tcp_sock` of the same socket.
#[derive(Clone, Copy)]
pub(crate) struct Socket {
    pub(crate) sk: Base,
    pub(crate) tp: Base,
}

macro_rules! fill {
    ($record:ident, $( $field:ident: $value:expr, )*) => {
        // A sample without one of its fields named here does not compile.
        let _ = |Sample {
                     $( $field: _, )* reserved: _, local_addr: _, remote_addr: _, comm: _
                 }: Sample| ();
        // SAFETY: the record is reserved for a Sample, and each write stays within its field.
        unsafe { $( (&raw mut (*$record).$field).write($value); )* }
    };
}

/// Writes the socket's state to `record`, which has room for a sample and holds anything before.
#[inline(always)]
pub(crate) fn fill(record: *mut Sample, kind: SampleKind, socket: Socket, state: &SockState) {
    let Socket { sk, tp } = socket;
    let net = sk.pointer(SkcNet);
    let copied_seq = tp.u32(CopiedSeq);
    let rcv_nxt = tp.u32(RcvNxt);
    let family = sk.u16(SkcFamily);
    // At tcp_destroy_sock whoever runs is not the reader.
    let reader = !matches!(kind, SampleKind::Close);
    let mut flags = bit(tp, TstampOk, FLAG_TIMESTAMPS)
        | bit(tp, TcpUsecTs, FLAG_USEC_TS)
        | bit(tp, WscaleOk, FLAG_WSCALE)
        | bit(tp, IsMptcp, FLAG_MPTCP);
    let (mut pid, mut cgroup_id) = (0, 0);
    if reader {
        flags |= FLAG_READER;
        pid = (bpf_get_current_pid_tgid() >> 32) as u32;
        // SAFETY: takes no argument.
        cgroup_id = unsafe { bpf_get_current_cgroup_id() };
    }

    fill! { record,
        // SAFETY: takes no argument.
        time_ns: bpf_ktime_get_ns(),
        // SAFETY: `sk` is the tracepoint's own socket.
        cookie: bpf_get_socket_cookie(sk.0.cast_mut().cast()),
        cgroup_id: cgroup_id,
        bytes_received: tp.u64(BytesReceived),
        seq: state.seq,
        growths: state.growths,
        netns_inum: net.u32(NetInum),
        pid: pid,
        time_us: tp.u64(TcpMstamp).wrapping_sub(tp.u64(RcvqTime)) as i32,
        rtt_us: tp.u32(RcvRttEst) >> 3,
        srtt_us: tp.u32(SrttUs) >> 3,
        min_rtt_us: tp.u32(RttMin),
        copied: copied_seq.wrapping_sub(tp.u32(RcvqSeq)),
        inq: rcv_nxt.wrapping_sub(copied_seq),
        space: tp.i32(RcvqSpace),
        ooo: ooo(tp, rcv_nxt),
        rcv_nxt: rcv_nxt,
        rcv_ooopack: tp.u32(RcvOoopack),
        rcvbuf: sk.i32(SkRcvbuf),
        window_clamp: tp.u32(WindowClamp),
        rcv_ssthresh: tp.u32(RcvSsthresh),
        rcv_wnd: tp.u32(RcvWnd),
        rmem_alloc: sk.i32(SkRmemAlloc),
        backlog_len: sk.i32(SkBacklogLen),
        rcvlowat: sk.i32(SkRcvlowat),
        tcp_rmem: [net.i32(TcpRmemMin), net.i32(TcpRmemDefault), net.i32(TcpRmemMax)],
        tcp_rcvbuf_low_rtt: net.i32(TcpRcvbufLowRtt),
        tcp_adv_win_scale: net.i32(TcpAdvWinScale),
        advmss: tp.u16(Advmss),
        rcv_mss: tp.u16(RcvMss),
        family: family,
        local_port: sk.u16(SkcNum),
        remote_port: u16::from_be(sk.u16(SkcDport)),
        version: SAMPLE_VERSION,
        kind: kind as u8,
        scaling_ratio: tp.u8(ScalingRatio),
        userlocks: sk.u8(SkUserlocks),
        rcv_wscale: tp.u8(RcvWscale),
        state: sk.u8(SkcState),
        tcp_moderate_rcvbuf: net.u8(TcpModerateRcvbuf),
        tcp_shrink_window: net.u8(TcpShrinkWindow),
        flags: flags,
    }
    // SAFETY: the record is reserved for a Sample, whose addresses lie at multiples of 4 bytes, as does
    // all but the first of its unused bytes, and whose `comm` lies at a multiple of 8; the helper writes
    // all its 16 bytes (the rest is zeroed).
    unsafe {
        // Five zeros in one go would be a call of memset, a function that libbpf does not load.
        let reserved = (&raw mut (*record).reserved).cast::<u8>();
        reserved.write(0);
        reserved.add(1).cast::<u32>().write(0);
        let local = address(sk, family, SkcV6RcvSaddr, SkcRcvSaddr);
        (&raw mut (*record).local_addr).cast::<[u32; 4]>().write(local);
        let remote = address(sk, family, SkcV6Daddr, SkcDaddr);
        (&raw mut (*record).remote_addr).cast::<[u32; 4]>().write(remote);
        let comm = &raw mut (*record).comm;
        if reader {
            bpf_get_current_comm(comm.cast(), size_of::<[u8; 16]>() as u32);
        } else {
            // Volatile for the same reason.
            comm.cast::<u64>().write_volatile(0);
            comm.cast::<u64>().add(1).write_volatile(0);
        }
    }
}

/// `flag` if the member is not 0.
#[inline(always)]
fn bit(tp: Base, member: SockMember, flag: u8) -> u8 {
    if tp.u8(member) != 0 { flag } else { 0 }
}

/// What the kernel calls `ooo_space`.
#[inline(always)]
fn ooo(tp: Base, rcv_nxt: u32) -> u32 {
    if tp.pointer(OutOfOrderQueue).is_null() {
        return 0;
    }
    let control_block = tp.pointer(OooLastSkb).plus(offset(SkbCb));
    control_block.u32(CbEndSeq).wrapping_sub(rcv_nxt)
}

/// The address as network-order words of IPv6, mapped if the socket is IPv4.
#[inline(always)]
fn address(sk: Base, family: u16, v6: SockMember, v4: SockMember) -> [u32; 4] {
    if family == AF_INET6 {
        if let Some(words) = sk.words(v6) {
            return words;
        }
    }
    [0, 0, 0xffff_u32.to_be(), sk.u32(v4)]
}
