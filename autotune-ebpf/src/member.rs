//! The one kind of kernel memory read: a base pointer and a member's slot.

use autotune_common::{SockMember, layout::MemberSlot};

use crate::maps::SOCK_LAYOUT;

/// A kernel struct that the verifier knows by type.
#[derive(Clone, Copy)]
pub(crate) struct Base(pub(crate) *const u8);

impl Base {
    /// A member of 32 bits that every supported kernel has.
    #[inline(always)]
    pub(crate) fn u32(self, member: SockMember) -> u32 {
        self.load(slot(member))
    }

    /// A member of 32 bits, signed, that every supported kernel has.
    #[inline(always)]
    pub(crate) fn i32(self, member: SockMember) -> i32 {
        self.load(slot(member))
    }

    /// A member of 32 bits, signed; 0 if this kernel lacks it.
    #[inline(always)]
    pub(crate) fn i32_or_zero(self, member: SockMember) -> i32 {
        if slot(member).is_present() { self.load(slot(member)) } else { 0 }
    }

    /// A member of 16 bits that every supported kernel has.
    #[inline(always)]
    pub(crate) fn u16(self, member: SockMember) -> u16 {
        self.load(slot(member))
    }

    /// A member of 64 bits that every supported kernel has.
    #[inline(always)]
    pub(crate) fn u64(self, member: SockMember) -> u64 {
        self.load(slot(member))
    }

    /// The low byte of a member; 0 if this kernel lacks it.
    #[inline(always)]
    pub(crate) fn low_byte(self, member: SockMember) -> u8 {
        if slot(member).is_present() { self.load(slot(member)) } else { 0 }
    }

    /// A member of up to 8 bits, a bitfield on some kernels; 0 if this kernel lacks it.
    #[inline(always)]
    pub(crate) fn bits(self, member: SockMember) -> u8 {
        let slot = slot(member);
        if !slot.is_present() {
            return 0;
        }
        let mask = ((1_u32 << slot.width()) - 1) as u8;
        (self.load::<u8>(slot) >> slot.shift()) & mask
    }

    /// The struct that the member points to.
    #[inline(always)]
    pub(crate) fn pointer(self, member: SockMember) -> Self {
        Self(self.load(slot(member)))
    }

    /// 16 bytes that begin at the member, an IPv6 address, if it is present.
    #[inline(always)]
    pub(crate) fn words(self, member: SockMember) -> Option<[u32; 4]> {
        let slot = slot(member);
        if !slot.is_present() {
            return None;
        }
        let first = self.plus(slot.offset());
        let word = |index: u32| first.plus(index * 4).at::<u32>();
        Some([word(0), word(1), word(2), word(3)])
    }

    /// The struct `offset` bytes into this one.
    #[inline(always)]
    pub(crate) fn plus(self, offset: u32) -> Self {
        Self(self.0.wrapping_add(offset as usize))
    }

    /// Whether it is the null pointer.
    #[inline(always)]
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    #[inline(always)]
    fn load<T: Copy>(self, slot: MemberSlot) -> T {
        self.plus(slot.offset()).at()
    }

    #[inline(always)]
    fn at<T: Copy>(self) -> T {
        // SAFETY: the verifier proves that the pointer is one it knows by type and that the offset,
        // a constant from this kernel's BTF, is within that struct; the kernel makes a load through
        // a stale or null pointer read 0.
        unsafe { self.0.cast::<T>().read() }
    }
}

/// Byte offset of a member that every supported kernel has.
#[inline(always)]
pub(crate) fn offset(member: SockMember) -> u32 {
    slot(member).offset()
}

/// Whether the daemon has said where the members are. A constant to the verifier.
#[inline(always)]
pub(crate) fn is_laid_out() -> bool {
    slot(SockMember::SkcNet).is_present()
}

#[inline(always)]
fn slot(member: SockMember) -> MemberSlot {
    MemberSlot(SOCK_LAYOUT[member as usize].load())
}
