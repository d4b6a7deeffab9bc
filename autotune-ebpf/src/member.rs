//! The one kind of kernel memory read: a base pointer and a member's slot.

use autotune_common::{SockMember, layout::MemberSlot};

use crate::maps::SOCK_LAYOUT;

/// A kernel struct that the verifier knows by type.
#[derive(Clone, Copy)]
pub(crate) struct Base(pub(crate) *const u8);

impl Base {
    /// The member as an unsigned integer of up to 32 bits, whatever its own width; 0 if absent.
    #[inline(always)]
    pub(crate) fn u32(self, member: SockMember) -> u32 {
        let slot = slot(member);
        match slot.width() {
            32 => self.load(slot),
            16 => self.load::<u16>(slot).into(),
            8 => self.load::<u8>(slot).into(),
            _ if slot.is_present() => self.bits(slot).into(),
            _ => 0,
        }
    }

    /// The member as a signed integer of 32 bits; 0 if absent.
    #[inline(always)]
    pub(crate) fn i32(self, member: SockMember) -> i32 {
        self.u32(member).cast_signed()
    }

    /// The member as an unsigned integer of 16 bits; 0 if absent.
    #[inline(always)]
    pub(crate) fn u16(self, member: SockMember) -> u16 {
        if slot(member).is_present() { self.load(slot(member)) } else { 0 }
    }

    /// The member as an unsigned integer of up to 8 bits, or the low byte of a wider one; 0 if absent.
    #[inline(always)]
    pub(crate) fn u8(self, member: SockMember) -> u8 {
        let slot = slot(member);
        match slot.width() {
            8 | 16 | 32 | 64 => self.load(slot),
            _ if slot.is_present() => self.bits(slot),
            _ => 0,
        }
    }

    /// The member as an unsigned integer of 64 bits; 0 if absent.
    #[inline(always)]
    pub(crate) fn u64(self, member: SockMember) -> u64 {
        if slot(member).is_present() { self.load(slot(member)) } else { 0 }
    }

    /// The struct that the member points to; null if absent.
    #[inline(always)]
    pub(crate) fn pointer(self, member: SockMember) -> Self {
        let slot = slot(member);
        Self(if slot.is_present() { self.load(slot) } else { core::ptr::null() })
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
    fn bits(self, slot: MemberSlot) -> u8 {
        let mask = ((1_u16 << slot.width()) - 1) as u8;
        (self.load::<u8>(slot) >> slot.shift()) & mask
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

#[inline(always)]
fn slot(member: SockMember) -> MemberSlot {
    MemberSlot(SOCK_LAYOUT[member as usize].load())
}
