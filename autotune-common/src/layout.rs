//! Which kernel struct members the probes read, by BTF path, and where the running kernel keeps them.
//!
//! The daemon resolves each [`SockMember`]'s path in the running kernel's BTF and hands the probes a
//! [`SockLayout`], one word a member, as a constant set before load. The verifier folds it, so that a
//! read costs one load, and the code for a member that this kernel lacks is dead.

/// A member as the probes find it: its offset and, for what is narrower than its storage, its bits.
///
/// ```text
/// bits  0..=15  byte offset from the struct that the path starts in
/// bits 16..=18  lowest bit, within the byte at that offset (bitfields only)
/// bits 24..=30  width in bits
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberSlot(pub u32);

impl MemberSlot {
    /// The running kernel lacks the member.
    pub const ABSENT: Self = Self(u32::MAX);

    /// A member of `width` bits at `shift` bits into the byte at `offset`.
    ///
    /// `None` when it does not fit the encoding: an offset of 64 KiB and more, a width above 64, a
    /// bitfield that crosses a byte boundary.
    #[must_use]
    pub const fn new(offset: u32, shift: u32, width: u32) -> Option<Self> {
        let whole = shift == 0 && matches!(width, 8 | 16 | 32 | 64);
        let within_byte = width > 0 && width <= 8 && shift < 8 && shift + width <= 8;
        if offset > 0xffff || !(whole || within_byte) {
            return None;
        }
        Some(Self(offset | (shift << 16) | (width << 24)))
    }

    /// Byte offset.
    #[must_use]
    #[inline(always)]
    pub const fn offset(self) -> u32 {
        self.0 & 0xffff
    }

    /// Lowest bit within the byte at the offset.
    #[must_use]
    #[inline(always)]
    pub const fn shift(self) -> u32 {
        (self.0 >> 16) & 7
    }

    /// Width in bits.
    #[must_use]
    #[inline(always)]
    pub const fn width(self) -> u32 {
        (self.0 >> 24) & 0x7f
    }

    /// Whether the running kernel has the member.
    #[must_use]
    #[inline(always)]
    pub const fn is_present(self) -> bool {
        self.0 != Self::ABSENT.0
    }
}

/// Where the running kernel keeps each [`SockMember`], indexed by it.
pub type SockLayout = [u32; SockMember::COUNT];

/// What the daemon does when the kernel lacks a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Every supported kernel has it: refuse to start, and name it.
    Required,
    /// Some kernels or configurations lack it: it reads as 0.
    Optional,
}

macro_rules! sock_members {
    ($(
        $(#[$meta:meta])*
        $variant:ident = $root:literal $path:literal $need:ident $width:literal,
    )*) => {
        /// A kernel struct member that the probes read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum SockMember {
            $( $(#[$meta])* $variant, )*
        }

        impl SockMember {
            /// Every member, in the order of a [`SockLayout`].
            pub const ALL: &[Self] = &[$( Self::$variant, )*];

            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The struct that the path starts in and the path, as BTF spells them. `name[i]` is an
            /// element of an array.
            #[must_use]
            pub const fn path(self) -> (&'static str, &'static str) {
                match self { $( Self::$variant => ($root, $path), )* }
            }

            /// Width in bits that the probes load it with; 0 where they go by what the slot says, or
            /// need the low byte or the address alone.
            #[must_use]
            pub const fn width(self) -> u32 {
                match self { $( Self::$variant => $width, )* }
            }

            /// Whether the probes can do without it.
            #[must_use]
            pub const fn need(self) -> Need {
                match self { $( Self::$variant => Need::$need, )* }
            }
        }
    };
}

sock_members! {
    // struct sock
    /// `AF_INET` or `AF_INET6`.
    SkcFamily = "sock" "__sk_common.skc_family" Required 16,
    /// TCP state.
    SkcState = "sock" "__sk_common.skc_state" Required 8,
    /// Local port, host order.
    SkcNum = "sock" "__sk_common.skc_num" Required 16,
    /// Remote port, network order.
    SkcDport = "sock" "__sk_common.skc_dport" Required 16,
    /// Local IPv4 address.
    SkcRcvSaddr = "sock" "__sk_common.skc_rcv_saddr" Required 32,
    /// Remote IPv4 address.
    SkcDaddr = "sock" "__sk_common.skc_daddr" Required 32,
    /// Local IPv6 address, its first word (absent without `CONFIG_IPV6`).
    SkcV6RcvSaddr = "sock" "__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[0]" Optional 32,
    /// Remote IPv6 address, its first word (absent without `CONFIG_IPV6`).
    SkcV6Daddr = "sock" "__sk_common.skc_v6_daddr.in6_u.u6_addr32[0]" Optional 32,
    /// The network namespace (absent without `CONFIG_NET_NS`, and then so are all its sysctls).
    SkcNet = "sock" "__sk_common.skc_net.net" Required 64,
    /// The cookie; 0 until someone asks the kernel for it.
    SkcCookie = "sock" "__sk_common.skc_cookie.counter" Required 64,
    /// Receive buffer limit.
    SkRcvbuf = "sock" "sk_rcvbuf" Required 32,
    /// Locks that `SO_RCVBUF` sets; a bitfield before 6.9.
    SkUserlocks = "sock" "sk_userlocks" Required 0,
    /// `SO_RCVLOWAT`.
    SkRcvlowat = "sock" "sk_rcvlowat" Required 32,
    /// Memory charged for queued data.
    SkRmemAlloc = "sock" "sk_backlog.rmem_alloc.counter" Required 32,
    /// Bytes in the backlog.
    SkBacklogLen = "sock" "sk_backlog.len" Required 32,

    // struct tcp_sock
    /// Window threshold.
    RcvSsthresh = "tcp_sock" "rcv_ssthresh" Required 32,
    /// Payload per charged memory; absent before 6.6.
    ScalingRatio = "tcp_sock" "scaling_ratio" Required 8,
    /// Microsecond timestamps; absent before 6.7.
    TcpUsecTs = "tcp_sock" "tcp_usec_ts" Optional 0,
    /// Head of what the application has not read.
    CopiedSeq = "tcp_sock" "copied_seq" Required 32,
    /// Next sequence number expected.
    RcvNxt = "tcp_sock" "rcv_nxt" Required 32,
    /// Advertised maximum segment size.
    Advmss = "tcp_sock" "advmss" Required 16,
    /// Root of the out-of-order tree; null when it is empty.
    OutOfOrderQueue = "tcp_sock" "out_of_order_queue.rb_node" Required 64,
    /// Last buffer of the out-of-order queue.
    OooLastSkb = "tcp_sock" "ooo_last_skb" Required 64,
    /// Segments that arrived out of order.
    RcvOoopack = "tcp_sock" "rcv_ooopack" Required 32,
    /// Most recent packet time, microseconds.
    TcpMstamp = "tcp_sock" "tcp_mstamp" Required 64,
    /// Largest window to advertise.
    WindowClamp = "tcp_sock" "window_clamp" Required 32,
    /// Current receive window.
    RcvWnd = "tcp_sock" "rcv_wnd" Required 32,
    /// Timestamps negotiated.
    TstampOk = "tcp_sock" "rx_opt.tstamp_ok" Required 0,
    /// Window scaling negotiated.
    WscaleOk = "tcp_sock" "rx_opt.wscale_ok" Required 0,
    /// Window scale that we announced.
    RcvWscale = "tcp_sock" "rx_opt.rcv_wscale" Required 0,
    /// Receiver's round-trip estimate, times 8.
    RcvRttEst = "tcp_sock" "rcv_rtt_est.rtt_us" Required 32,
    /// Copied per round trip as last measured.
    RcvqSpace = "tcp_sock" "rcvq_space.space" Required 32,
    /// Sequence number at which the measurement began.
    RcvqSeq = "tcp_sock" "rcvq_space.seq" Required 32,
    /// When the measurement began, microseconds.
    RcvqTime = "tcp_sock" "rcvq_space.time" Required 64,
    /// Sender-side smoothed round trip, times 8.
    SrttUs = "tcp_sock" "srtt_us" Required 32,
    /// Sender-side smallest round trip.
    RttMin = "tcp_sock" "rtt_min.s[0].v" Required 32,
    /// Payload received in order.
    BytesReceived = "tcp_sock" "bytes_received" Required 64,
    /// Subflow of an MPTCP connection (absent without `CONFIG_MPTCP`).
    IsMptcp = "tcp_sock" "is_mptcp" Optional 0,
    /// Estimated size of received segments.
    RcvMss = "tcp_sock" "inet_conn.icsk_ack.rcv_mss" Required 16,

    // struct sk_buff and its TCP control block
    /// The control block within a socket buffer.
    SkbCb = "sk_buff" "cb" Required 0,
    /// Sequence number after the buffer's last byte.
    CbEndSeq = "tcp_skb_cb" "end_seq" Required 32,

    // struct net
    /// Inode number of the namespace.
    NetInum = "net" "ns.inum" Required 32,
    /// Minimum receive buffer.
    TcpRmemMin = "net" "ipv4.sysctl_tcp_rmem[0]" Required 32,
    /// Default receive buffer.
    TcpRmemDefault = "net" "ipv4.sysctl_tcp_rmem[1]" Required 32,
    /// Limit of automatic growth.
    TcpRmemMax = "net" "ipv4.sysctl_tcp_rmem[2]" Required 32,
    /// Whether automatic growth is on.
    TcpModerateRcvbuf = "net" "ipv4.sysctl_tcp_moderate_rcvbuf" Required 0,
    /// Round trip below which growth is damped, microseconds; absent before 6.19.
    TcpRcvbufLowRtt = "net" "ipv4.sysctl_tcp_rcvbuf_low_rtt" Optional 32,
    /// Whether an offered window may shrink.
    TcpShrinkWindow = "net" "ipv4.sysctl_tcp_shrink_window" Optional 0,
    /// Share of the buffer kept from the window, used before 6.6.
    TcpAdvWinScale = "net" "ipv4.sysctl_tcp_adv_win_scale" Optional 0,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_gives_back_what_was_put_in() {
        let slot = MemberSlot::new(1745, 4, 4).unwrap();
        assert_eq!((slot.offset(), slot.shift(), slot.width()), (1745, 4, 4));
        let slot = MemberSlot::new(65_535, 0, 64).unwrap();
        assert_eq!((slot.offset(), slot.shift(), slot.width()), (65_535, 0, 64));
        assert!(slot.is_present());
        assert!(!MemberSlot::ABSENT.is_present());
    }

    #[test]
    fn what_the_probes_could_not_read_is_not_a_slot() {
        assert_eq!(MemberSlot::new(65_536, 0, 32), None, "offset too large");
        assert_eq!(MemberSlot::new(0, 6, 4), None, "crosses a byte boundary");
        assert_eq!(MemberSlot::new(0, 1, 32), None, "shifted word");
        assert_eq!(MemberSlot::new(0, 0, 24), None, "odd width");
        assert_eq!(MemberSlot::new(0, 0, 0), None, "no width");
    }

    #[test]
    fn members_are_numbered_in_order() {
        for (index, member) in SockMember::ALL.iter().enumerate() {
            assert_eq!(*member as usize, index);
        }
    }
}
