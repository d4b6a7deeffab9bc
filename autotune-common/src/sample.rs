//! [`Sample`]: one reading of one socket's state at a tracepoint.
//!
//! The probes write a sample straight into its ring-buffer record and the daemon decodes it field by
//! field, so the layout is the contract between two separately compiled programs: `repr(C)`, every
//! byte owned by a field (no padding), asserted at compile time, and versioned by [`SAMPLE_VERSION`].
//!
//! Field names are the kernel's. A member that the running kernel lacks reads as 0.

use core::net::{Ipv6Addr, SocketAddr};

use crate::formula::GrowthInput;

/// Version of the layout below. Raise it with every change of a field, its order or its meaning.
pub const SAMPLE_VERSION: u8 = 1;

/// `SOCK_RCVBUF_LOCK` in `sk_userlocks`: the application set `SO_RCVBUF` (`include/net/sock.h`).
pub const SOCK_RCVBUF_LOCK: u8 = 2;

/// The connection negotiated TCP timestamps (`rx_opt.tstamp_ok`).
pub const FLAG_TIMESTAMPS: u8 = 1 << 0;
/// Its timestamps tick in microseconds, not milliseconds (`tcp_usec_ts`).
pub const FLAG_USEC_TS: u8 = 1 << 1;
/// The connection negotiated window scaling (`rx_opt.wscale_ok`).
pub const FLAG_WSCALE: u8 = 1 << 2;
/// A subflow of an MPTCP connection (`is_mptcp`): the MPTCP socket drives its receive buffer.
pub const FLAG_MPTCP: u8 = 1 << 3;
/// `pid` and `comm` name the task that read from the socket, not a bystander of a softirq.
pub const FLAG_READER: u8 = 1 << 4;

/// Declares a `repr(C)` struct without padding, whose bytes can be read back without `unsafe`.
macro_rules! wire_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* pub $field:ident: $kind:ty, )*
        }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $kind, )*
        }

        // A gap between fields would leave bytes that nobody wrote.
        const _: () = assert!(
            core::mem::size_of::<$name>() == 0 $( + core::mem::size_of::<$kind>() )*
        );

        impl $name {
            /// Size of the record in bytes.
            pub const SIZE: usize = core::mem::size_of::<Self>();

            /// Every field with its offset and size in bytes, in order: the layout as data, for
            /// whoever describes or checks it.
            pub const FIELDS: &[(&str, usize, usize)] = &[
                $( (
                    stringify!($field),
                    core::mem::offset_of!($name, $field),
                    core::mem::size_of::<$kind>(),
                ), )*
            ];

            /// All fields zero.
            pub const ZERO: Self = Self { $( $field: <$kind as Wire>::ZERO, )* };

            /// Reads the fields from a record in this machine's byte order, whatever they hold.
            #[must_use]
            pub fn from_ne_bytes(bytes: &[u8; Self::SIZE]) -> Self {
                let mut rest: &[u8] = bytes;
                Self { $( $field: <$kind as Wire>::take(&mut rest), )* }
            }

            /// The record's bytes in this machine's byte order.
            #[must_use]
            pub fn to_ne_bytes(&self) -> [u8; Self::SIZE] {
                let mut bytes = [0; Self::SIZE];
                let mut rest: &mut [u8] = &mut bytes;
                $( self.$field.put(&mut rest); )*
                bytes
            }
        }
    };
}

wire_struct! {
    /// One reading of one socket. Sizes in bytes and times in microseconds where a field says no other.
    pub struct Sample {
        /// When the sample was taken: `CLOCK_MONOTONIC`, nanoseconds.
        pub time_ns: u64,
        /// The socket's cookie (`sk_cookie`): unique on this host since boot, never reused.
        pub cookie: u64,
        /// Cgroup id of the reader.
        pub cgroup_id: u64,
        /// Payload bytes received in order since the connection began.
        pub bytes_received: u64,
        /// Number of this sample among all that the probes tried to send for this socket, the lost
        /// ones included; the first is 1.
        pub seq: u32,
        /// Growth events of this socket so far, this one included in a grow sample.
        pub growths: u32,
        /// Inode number of the socket's network namespace.
        pub netns_inum: u32,
        /// Process id (thread group) of the reader, in the initial pid namespace.
        pub pid: u32,
        /// `tcp_mstamp - rcvq_space.time`: since the current measurement began.
        pub time_us: i32,
        /// Receiver's round-trip estimate, `rcv_rtt_est.rtt_us >> 3`. 0: no estimate yet.
        pub rtt_us: u32,
        /// Sender-side smoothed round trip, `srtt_us >> 3`. 0: none yet.
        pub srtt_us: u32,
        /// Smallest round trip of the sender-side filter (`rtt_min`). `u32::MAX`: none yet.
        pub min_rtt_us: u32,
        /// `copied_seq - rcvq_space.seq`: copied to the application since the measurement began,
        /// before `inq` is taken off.
        pub copied: u32,
        /// `rcv_nxt - copied_seq`: received in order and not yet read.
        pub inq: u32,
        /// `rcvq_space.space`: copied per round trip as last measured (the old value in a grow sample).
        pub space: i32,
        /// Span of the out-of-order queue, `ooo_last_skb.end_seq - rcv_nxt`; 0 when it is empty.
        pub ooo: u32,
        /// `rcv_nxt`: the next sequence number expected.
        pub rcv_nxt: u32,
        /// Segments that ever arrived out of order (`rcv_ooopack`).
        pub rcv_ooopack: u32,
        /// `sk_rcvbuf`: the receive buffer's limit.
        pub rcvbuf: i32,
        /// Largest window that may be advertised.
        pub window_clamp: u32,
        /// Current window threshold (`rcv_ssthresh`).
        pub rcv_ssthresh: u32,
        /// Current receive window (`rcv_wnd`).
        pub rcv_wnd: u32,
        /// Memory charged for queued data, overhead included (`sk_rmem_alloc`).
        pub rmem_alloc: i32,
        /// Bytes in the backlog, processed when the reader lets go of the socket (`sk_backlog.len`).
        pub backlog_len: i32,
        /// `SO_RCVLOWAT` (`sk_rcvlowat`); 1 unless the application set it.
        pub rcvlowat: i32,
        /// `net.ipv4.tcp_rmem` of the socket's namespace: minimum, default, maximum.
        pub tcp_rmem: [i32; 3],
        /// `net.ipv4.tcp_rcvbuf_low_rtt` of the socket's namespace, generation v6.19 only.
        pub tcp_rcvbuf_low_rtt: i32,
        /// `net.ipv4.tcp_adv_win_scale` of the socket's namespace.
        pub tcp_adv_win_scale: i32,
        /// Maximum segment size advertised to the peer, timestamps taken off.
        pub advmss: u16,
        /// Estimated size of received segments (`icsk_ack.rcv_mss`).
        pub rcv_mss: u16,
        /// `AF_INET` (2) or `AF_INET6` (10).
        pub family: u16,
        /// Local port, host order.
        pub local_port: u16,
        /// Remote port, host order.
        pub remote_port: u16,
        /// Layout version, [`SAMPLE_VERSION`].
        pub version: u8,
        /// Which tracepoint took it and why, a [`SampleKind`].
        pub kind: u8,
        /// Payload per charged memory, in 1/256.
        pub scaling_ratio: u8,
        /// `sk_userlocks`: [`SOCK_RCVBUF_LOCK`] and others.
        pub userlocks: u8,
        /// Window scale that we announced; meaningful with [`FLAG_WSCALE`].
        pub rcv_wscale: u8,
        /// TCP state (`skc_state`): 1 is ESTABLISHED.
        pub state: u8,
        /// `net.ipv4.tcp_moderate_rcvbuf` of the socket's namespace.
        pub tcp_moderate_rcvbuf: u8,
        /// `net.ipv4.tcp_shrink_window` of the socket's namespace.
        pub tcp_shrink_window: u8,
        /// `FLAG_*` bits.
        pub flags: u8,
        /// Unused, 0.
        pub reserved: [u8; 5],
        /// Local address; IPv4 as an IPv4-mapped IPv6 address.
        pub local_addr: [u8; 16],
        /// Remote address; IPv4 as an IPv4-mapped IPv6 address.
        pub remote_addr: [u8; 16],
        /// Name of the reading thread, padded with NUL bytes.
        pub comm: [u8; 16],
    }
}

// The ring buffer aligns records to 8 bytes; the probes write 4 bytes of an address and of the unused
// bytes at a time, and 8 of the name.
const _: () = assert!(Sample::SIZE == 208 && align_of::<Sample>() == 8);
const _: () = assert!(core::mem::offset_of!(Sample, local_addr) % 4 == 0);
const _: () = assert!(core::mem::offset_of!(Sample, remote_addr) % 4 == 0);
const _: () = assert!(core::mem::offset_of!(Sample, reserved) % 4 == 3);
const _: () = assert!(core::mem::offset_of!(Sample, comm) % 8 == 0);

impl Sample {
    /// The sample of a ring-buffer or capture record.
    ///
    /// # Errors
    /// Says what is wrong with a record of another length or version, or of an unknown kind.
    pub fn decode(record: &[u8]) -> Result<Self, DecodeError> {
        let bytes = record.try_into().map_err(|_| DecodeError::Length(record.len()))?;
        let sample = Self::from_ne_bytes(bytes);
        if sample.version != SAMPLE_VERSION {
            return Err(DecodeError::Version(sample.version));
        }
        match SampleKind::from_u8(sample.kind) {
            Some(_) => Ok(sample),
            None => Err(DecodeError::Kind(sample.kind)),
        }
    }

    /// What the sample is. Only [`Sample::decode`] and the probes make samples, so that `kind` is valid;
    /// anything else counts as periodic, of which nothing is concluded.
    #[must_use]
    pub fn kind(&self) -> SampleKind {
        SampleKind::from_u8(self.kind).unwrap_or(SampleKind::Periodic)
    }

    /// Whether the application fixed the buffer with `SO_RCVBUF`.
    #[must_use]
    pub const fn is_locked(&self) -> bool {
        self.userlocks & SOCK_RCVBUF_LOCK != 0
    }

    /// Whether a `FLAG_*` bit is set.
    #[must_use]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// `tcp_rmem[2]` of the socket's namespace, the limit of automatic growth.
    #[must_use]
    pub const fn rmem_max(&self) -> i32 {
        self.tcp_rmem[2]
    }

    /// Local address and port. IPv4-mapped IPv6 is IPv4 here; `family` tells the socket's own.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        SocketAddr::new(Ipv6Addr::from_octets(self.local_addr).to_canonical(), self.local_port)
    }

    /// Remote address and port, as [`Sample::local`].
    #[must_use]
    pub const fn remote(&self) -> SocketAddr {
        SocketAddr::new(Ipv6Addr::from_octets(self.remote_addr).to_canonical(), self.remote_port)
    }

    /// The formula's inputs, as this sample saw them.
    #[must_use]
    pub const fn growth_input(&self) -> GrowthInput {
        GrowthInput {
            copied: self.copied,
            inq: self.inq,
            space: self.space,
            ooo: self.ooo,
            rtt_us: self.rtt_us,
            advmss: self.advmss,
            scaling_ratio: self.scaling_ratio,
            rcvbuf: self.rcvbuf,
            window_clamp: self.window_clamp,
            rmem_max: self.rmem_max(),
            low_rtt: self.tcp_rcvbuf_low_rtt,
            moderate_rcvbuf: self.tcp_moderate_rcvbuf != 0,
            locked: self.is_locked(),
        }
    }
}

/// Why a sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SampleKind {
    /// At `tcp_rcvbuf_grow`: the formula's inputs, before the change.
    Grow = 1,
    /// At the first `tcp_rcv_space_adjust` after a grow sample: what the kernel made of it.
    Outcome = 2,
    /// At `tcp_rcv_space_adjust`, at most one per socket and interval.
    Periodic = 3,
    /// At `tcp_destroy_sock`: the socket's last state.
    Close = 4,
}

impl SampleKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Grow, Self::Outcome, Self::Periodic, Self::Close];

    /// Its name in metrics, JSON and docs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grow => "grow",
            Self::Outcome => "outcome",
            Self::Periodic => "periodic",
            Self::Close => "close",
        }
    }

    /// Its place in [`SampleKind::ALL`], for tables indexed by kind.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Grow => 0,
            Self::Outcome => 1,
            Self::Periodic => 2,
            Self::Close => 3,
        }
    }

    /// The kind of that number, if there is one.
    #[must_use]
    pub const fn from_u8(kind: u8) -> Option<Self> {
        match kind {
            1 => Some(Self::Grow),
            2 => Some(Self::Outcome),
            3 => Some(Self::Periodic),
            4 => Some(Self::Close),
            _ => None,
        }
    }
}

/// Why a record is not a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The record has this many bytes and not [`Sample::SIZE`].
    Length(usize),
    /// The record was written with this layout version.
    Version(u8),
    /// No sample kind has this number.
    Kind(u8),
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Length(length) => {
                write!(f, "a sample is {} bytes, not {length}", Sample::SIZE)
            }
            Self::Version(version) => {
                write!(f, "sample layout version {version} where {SAMPLE_VERSION} is known")
            }
            Self::Kind(kind) => write!(f, "unknown sample kind {kind}"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// A field type that can cross the boundary.
trait Wire: Sized {
    const ZERO: Self;
    /// Takes the value from the front of `bytes`, which holds at least its size.
    fn take(bytes: &mut &[u8]) -> Self;
    /// Writes the value to the front of `bytes`, which has room for it.
    fn put(&self, bytes: &mut &mut [u8]);
}

macro_rules! wire_integers {
    ($($kind:ty),*) => { $(
        impl Wire for $kind {
            const ZERO: Self = 0;

            fn take(bytes: &mut &[u8]) -> Self {
                let mut own = [0; size_of::<Self>()];
                // The record's length is the sum of its fields' sizes, asserted above.
                if let Some((front, rest)) = bytes.split_at_checked(own.len()) {
                    own.copy_from_slice(front);
                    *bytes = rest;
                }
                Self::from_ne_bytes(own)
            }

            fn put(&self, bytes: &mut &mut [u8]) {
                let own = self.to_ne_bytes();
                let (front, rest) = core::mem::take(bytes).split_at_mut(own.len());
                front.copy_from_slice(&own);
                *bytes = rest;
            }
        }
    )* };
}

wire_integers!(u8, u16, u32, u64, i32);

impl<T: Wire + Copy, const N: usize> Wire for [T; N] {
    const ZERO: Self = [T::ZERO; N];

    fn take(bytes: &mut &[u8]) -> Self {
        core::array::from_fn(|_| T::take(bytes))
    }

    fn put(&self, bytes: &mut &mut [u8]) {
        self.iter().for_each(|element| element.put(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn fields_follow_each_other_without_a_gap() {
        let mut end = 0;
        for &(name, offset, size) in Sample::FIELDS {
            assert_eq!(offset, end, "{name}");
            end = offset + size;
        }
        assert_eq!(end, Sample::SIZE);
    }

    #[test]
    fn every_kind_has_its_number_name_and_index() {
        for (index, kind) in SampleKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index);
            assert_eq!(SampleKind::from_u8(kind as u8), Some(kind));
        }
        assert_eq!(SampleKind::from_u8(0), None);
        assert_eq!(SampleKind::from_u8(5), None);
    }

    #[test]
    fn a_record_of_another_length_version_or_kind_is_refused() {
        let good = Sample { version: SAMPLE_VERSION, kind: 1, ..Sample::ZERO };
        assert_eq!(Sample::decode(&good.to_ne_bytes()), Ok(good));
        assert_eq!(Sample::decode(&[]), Err(DecodeError::Length(0)));
        assert_eq!(Sample::decode(&[0; 209]), Err(DecodeError::Length(209)));
        let future = Sample { version: 2, ..good };
        assert_eq!(Sample::decode(&future.to_ne_bytes()), Err(DecodeError::Version(2)));
        let odd = Sample { kind: 9, ..good };
        assert_eq!(Sample::decode(&odd.to_ne_bytes()), Err(DecodeError::Kind(9)));
    }

    proptest! {
        #[test]
        fn any_bytes_survive_the_round_trip(bytes in prop::collection::vec(any::<u8>(), Sample::SIZE)) {
            let bytes: [u8; Sample::SIZE] = bytes.try_into().unwrap();
            prop_assert_eq!(Sample::from_ne_bytes(&bytes).to_ne_bytes(), bytes);
        }

        #[test]
        fn no_record_panics(record in prop::collection::vec(any::<u8>(), 0..512)) {
            let _: Result<Sample, _> = Sample::decode(&record);
        }
    }

    #[test]
    fn addresses_are_shown_as_people_know_them() {
        let mut sample = Sample { local_port: 80, remote_port: 5001, ..Sample::ZERO };
        sample.local_addr[10..].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 7]);
        sample.remote_addr[15] = 1;
        assert_eq!(
            std::format!("{} {}", sample.local(), sample.remote()),
            "192.0.2.7:80 [::1]:5001"
        );
    }

    #[test]
    fn bytes_are_read_at_the_offsets_the_layout_states() {
        let mut bytes = Vec::from([0; Sample::SIZE]);
        let at = core::mem::offset_of!(Sample, rcvbuf);
        bytes[at..at + 4].copy_from_slice(&131_072_i32.to_ne_bytes());
        let sample = Sample::from_ne_bytes(&bytes.try_into().unwrap());
        assert_eq!(sample, Sample { rcvbuf: 131_072, ..Sample::ZERO });
    }
}
