//! Where the running kernel keeps the members that the probes read.

use std::fmt;

use autotune_common::layout::{MemberSlot, Need, SockLayout, SockMember};

use super::btf::{Btf, BtfError, Member};

/// What the probes are told about the running kernel's structs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedLayout {
    /// A slot for every [`SockMember`].
    pub slots: SockLayout,
    /// The optional members that the kernel lacks, in the order of [`SockMember::ALL`]. Their slots
    /// are [`MemberSlot::ABSENT`], and the probes read them as 0.
    pub absent: Vec<SockMember>,
}

/// Why the probes cannot read the running kernel's sockets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Members that every supported kernel has are missing: all of them.
    #[error("this kernel's BTF lacks {}", Missing(.0))]
    MissingMember(Vec<SockMember>),
    /// The probes read whole words, and bitfields that lie within a byte.
    #[error(
        "the probes cannot read {}: {} bits at bit {} of the struct",
        Path(*.member), .at.bit_width, .at.bit_offset
    )]
    Unencodable {
        /// The member.
        member: SockMember,
        /// Where it lies.
        at: Member,
    },
    /// The member is wider or narrower than the probes load it.
    #[error(
        "{} has {} bits where the probes know {}",
        Path(*.member), .at.bit_width, .member.width()
    )]
    Width {
        /// The member.
        member: SockMember,
        /// Where it lies.
        at: Member,
    },
    /// The kernel has the member in another shape, or its BTF is damaged.
    #[error("cannot find {}", Path(*.member))]
    Btf {
        /// The member looked up.
        member: SockMember,
        /// What is wrong.
        source: BtfError,
    },
}

/// Finds every [`SockMember`] in the kernel's BTF.
///
/// # Errors
/// Names all required members that are missing, the member that the probes could not read, or says
/// what is wrong with the BTF.
pub fn resolve(btf: &Btf<'_>) -> Result<ResolvedLayout, LayoutError> {
    let mut slots = [MemberSlot::ABSENT.0; SockMember::COUNT];
    let mut absent = Vec::new();
    let mut missing = Vec::new();
    for (slot, &member) in slots.iter_mut().zip(SockMember::ALL) {
        let (root, path) = member.path();
        match (btf.member(root, path), member.need()) {
            (Ok(at), _) => {
                // The probes load it with this width, whatever the kernel's own is.
                if member.width() != 0 && member.width() != at.bit_width {
                    return Err(LayoutError::Width { member, at });
                }
                let encoded = MemberSlot::new(at.bit_offset / 8, at.bit_offset % 8, at.bit_width);
                *slot = encoded.ok_or(LayoutError::Unencodable { member, at })?.0;
            }
            (Err(BtfError::MissingStruct(_) | BtfError::MissingMember { .. }), need) => {
                match need {
                    Need::Required => missing.push(member),
                    Need::Optional => absent.push(member),
                }
            }
            (Err(source), _) => return Err(LayoutError::Btf { member, source }),
        }
    }
    if missing.is_empty() {
        Ok(ResolvedLayout { slots, absent })
    } else {
        Err(LayoutError::MissingMember(missing))
    }
}

/// A member as `struct.path`.
struct Path(SockMember);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (root, path) = self.0.path();
        write!(f, "{root}.{path}")
    }
}

/// Members in a sentence, with what is known about why.
struct Missing<'a>(&'a [SockMember]);

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, member) in self.0.iter().enumerate() {
            let separator = if nth == 0 { "" } else { ", " };
            write!(f, "{separator}{}", Path(*member))?;
            match member {
                SockMember::ScalingRatio => f.write_str(" (Linux 6.6 and later have it)")?,
                SockMember::SkcNet => f.write_str(" (CONFIG_NET_NS)")?,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use btfparse::{Offset, Readable, TypeInformation, TypeVariant};

    use super::*;
    use crate::kernel::synthetic::{Builder, Kernel};

    #[test]
    fn every_member_of_a_complete_kernel_has_a_slot_of_its_own() {
        let bytes = Kernel::default().btf();
        let layout = resolve(&Btf::parse(&bytes).unwrap()).unwrap();
        assert_eq!(layout.absent, []);
        let mut seen = HashSet::new();
        for (slot, member) in layout.slots.iter().zip(SockMember::ALL) {
            assert!(MemberSlot(*slot).is_present(), "{member:?}");
            assert!(seen.insert((member.path().0, *slot)), "{member:?} shares a slot");
        }
        assert_agrees_with_btfparse(&bytes);
    }

    #[test]
    fn missing_optional_members_are_absent() {
        let optional = |member: &SockMember| member.need() == Need::Optional;
        let kernel = Kernel { lacks: optional, ..Kernel::default() };
        let layout = resolve(&Btf::parse(&kernel.btf()).unwrap()).unwrap();
        let expected: Vec<_> = SockMember::ALL.iter().copied().filter(optional).collect();
        assert_eq!(layout.absent, expected);
        for (slot, member) in layout.slots.iter().zip(SockMember::ALL) {
            assert_eq!(MemberSlot(*slot).is_present(), !optional(member), "{member:?}");
        }
    }

    #[test]
    fn all_missing_required_members_are_named() {
        let kernel = Kernel {
            lacks: |member| {
                matches!(
                    member,
                    SockMember::SkRcvbuf | SockMember::CbEndSeq | SockMember::TcpUsecTs
                )
            },
            ..Kernel::default()
        };
        let error = resolve(&Btf::parse(&kernel.btf()).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "this kernel's BTF lacks sock.sk_rcvbuf, tcp_skb_cb.end_seq");
    }

    #[test]
    fn a_kernel_before_6_6_is_refused_with_the_version_it_takes() {
        let kernel =
            Kernel { lacks: |member| *member == SockMember::ScalingRatio, ..Kernel::default() };
        let error = resolve(&Btf::parse(&kernel.btf()).unwrap()).unwrap_err();
        assert_eq!(error, LayoutError::MissingMember(vec![SockMember::ScalingRatio]));
        assert_eq!(
            error.to_string(),
            "this kernel's BTF lacks tcp_sock.scaling_ratio (Linux 6.6 and later have it)"
        );
    }

    #[test]
    fn a_bitfield_becomes_byte_and_shift() {
        // 6.1: u8 sk_padding : 1, ..., sk_userlocks : 4
        let resolved = with_userlocks(512 * 8 + 4, 4).unwrap();
        let slot = MemberSlot(resolved.slots[SockMember::SkUserlocks as usize]);
        assert_eq!((slot.offset(), slot.shift(), slot.width()), (512, 4, 4));
    }

    #[test]
    fn a_bitfield_across_bytes_is_refused_by_name() {
        let error = with_userlocks(512 * 8 + 6, 4).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the probes cannot read sock.sk_userlocks: 4 bits at bit 4102 of the struct"
        );
    }

    #[test]
    fn a_member_of_another_width_is_refused_by_name() {
        let mut builder = Builder::new();
        Kernel { lacks: |member| member.path().0 == "sock", ..Kernel::default() }
            .add_to(&mut builder);
        let long = builder.int("long", 8, 1);
        let mut members = Kernel::default().members(&mut builder, "sock");
        members.retain(|(name, ..)| *name != "sk_rcvbuf");
        members.push(("sk_rcvbuf", long, 512 * 8));
        builder.plain_struct("sock", 1024, &members);
        let error = resolve(&Btf::parse(&builder.build()).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "sock.sk_rcvbuf has 64 bits where the probes know 32");
    }

    #[test]
    fn a_member_of_another_shape_is_named_with_the_reason() {
        let kernel = Kernel { rmem_len: 2, ..Kernel::default() };
        let error = resolve(&Btf::parse(&kernel.btf()).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "cannot find net.ipv4.sysctl_tcp_rmem[2]");
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(
            source,
            "net.ipv4.sysctl_tcp_rmem[2]: sysctl_tcp_rmem[2] is out of bounds, as the array has 2 elements"
        );
    }

    #[test]
    fn the_running_kernel_resolves_as_an_independent_reader_says() {
        let path = "/sys/kernel/btf/vmlinux";
        let Ok(bytes) = std::fs::read(path) else {
            println!(
                "SKIPPED: no {path} on this machine, so no layout of a real kernel was checked"
            );
            return;
        };
        assert_agrees_with_btfparse(&bytes);
        match resolve(&Btf::parse(&bytes).unwrap()) {
            Ok(layout) => assert!(layout.absent.len() < SockMember::COUNT / 4, "{layout:?}"),
            Err(error) => println!("SKIPPED: {error}"),
        }
    }

    /// A complete kernel whose `sk_userlocks` is a bitfield.
    fn with_userlocks(bit_offset: u32, bits: u32) -> Result<ResolvedLayout, LayoutError> {
        let mut builder = Builder::new();
        Kernel { lacks: |member| member.path().0 == "sock", ..Kernel::default() }
            .add_to(&mut builder);
        let byte = builder.int("u8", 1, 0);
        let mut members = Kernel::default().members(&mut builder, "sock");
        members.retain(|(name, ..)| *name != "sk_userlocks");
        members.push(("sk_userlocks", byte, bits << 24 | bit_offset));
        builder.bitfield_struct("sock", 1024, &members);
        resolve(&Btf::parse(&builder.build()).unwrap())
    }

    /// Every member, present or not, lies where the `btfparse` crate finds it.
    #[track_caller]
    fn assert_agrees_with_btfparse(bytes: &[u8]) {
        let ours = Btf::parse(bytes).unwrap();
        let theirs =
            TypeInformation::new(&Bytes(bytes)).map_err(|e| e.message().to_owned()).unwrap();
        for member in SockMember::ALL {
            let (root, path) = member.path();
            let mut structs = theirs.get().iter().filter_map(|(id, ty)| match ty {
                TypeVariant::Struct(ty) if ty.name().as_deref() == Some(root) => Some(*id),
                _ => None,
            });
            let expected = structs.next().and_then(|id| theirs.offset_of(id, path).ok());
            let found = match ours.member(root, path) {
                Ok(found) => Some(found),
                Err(BtfError::MissingStruct(_) | BtfError::MissingMember { .. }) => None,
                Err(error) => panic!("{error}"),
            };
            let expected = expected.map(|(ty, offset)| match offset {
                Offset::ByteOffset(offset) => (offset * 8, scalar_bits(&theirs, ty)),
                Offset::BitOffsetAndSize(offset, width) => (offset, width),
            });
            let found = found.map(|found| (found.bit_offset, found.bit_width));
            assert_eq!(found, expected, "{root}.{path}");
        }
    }

    /// Size of a type, or of an array's elements, as `btfparse` says.
    fn scalar_bits(types: &TypeInformation, ty: u32) -> u32 {
        let element = match types.from_id(ty) {
            Some(TypeVariant::Array(array)) => *array.element_tid(),
            _ => ty,
        };
        let size = types.size_of(element).map_err(|error| error.message().to_owned()).unwrap();
        u32::try_from(size).unwrap() * 8
    }

    struct Bytes<'a>(&'a [u8]);

    impl Readable for Bytes<'_> {
        fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), btfparse::Error> {
            let start = usize::try_from(offset).unwrap();
            let read = self.0.get(start..start + buffer.len()).ok_or_else(|| {
                btfparse::Error::new(btfparse::ErrorKind::IOError, "read over the end")
            })?;
            buffer.copy_from_slice(read);
            Ok(())
        }
    }
}
