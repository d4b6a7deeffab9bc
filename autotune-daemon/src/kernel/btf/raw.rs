//! Types as they lie in BTF: a header of 12 bytes and, by kind, what follows it.

/// A type's header.
#[derive(Clone, Copy)]
pub(super) struct Type {
    pub(super) id: u32,
    pub(super) kind: Kind,
    /// Offset of its name in the string section.
    pub(super) name: u32,
    /// Number of members, parameters or the like.
    pub(super) vlen: u32,
    pub(super) flag: bool,
    /// Its size, or the type that it refers to.
    pub(super) value: u32,
    /// Where what follows the header starts in the type section.
    pub(super) tail: u32,
}

impl Type {
    pub(super) const VOID: Self =
        Self { id: 0, kind: Kind::Void, name: 0, vlen: 0, flag: false, value: 0, tail: TYPE_LEN };

    pub(super) fn read(types: &[u8], id: u32, start: u32) -> Option<Self> {
        let word = |at: u32| word(types, start.checked_add(at)? as usize);
        let (name, info, value) = (word(0)?, word(4)?, word(8)?);
        Some(Self {
            id,
            // Older kernels use 5 bits for the kind and 16 for the number, and leave the rest 0.
            kind: Kind::from_u32((info >> 24) & 0x7f)?,
            name,
            vlen: info & 0xff_ffff,
            flag: info >> 31 != 0,
            value,
            tail: start.checked_add(TYPE_LEN)?,
        })
    }
}

macro_rules! kinds {
    ($( $number:literal $kind:ident $what:literal, )*) => {
        /// `BTF_KIND_*` (include/uapi/linux/btf.h). Void is type 0 and never written.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Kind { Void, $( $kind, )* }

        impl Kind {
            pub(super) const fn from_u32(number: u32) -> Option<Self> {
                match number { $( $number => Some(Self::$kind), )* _ => None }
            }

            pub(super) const fn describe(self) -> &'static str {
                match self { Self::Void => "void", $( Self::$kind => $what, )* }
            }
        }
    };
}

kinds! {
    1 Int "an integer", 2 Ptr "a pointer", 3 Array "an array", 4 Struct "a struct",
    5 Union "a union", 6 Enum "an enum", 7 Fwd "a struct without definition",
    8 Typedef "a typedef", 9 Volatile "a volatile type", 10 Const "a const type",
    11 Restrict "a restrict type", 12 Func "a function", 13 FuncProto "a function's type",
    14 Var "a variable", 15 DataSec "a data section", 16 Float "a floating-point number",
    17 DeclTag "a tag", 18 TypeTag "a tagged type", 19 Enum64 "an enum of 64 bits",
}

impl Kind {
    pub(super) const fn is_modifier(self) -> bool {
        use Kind::{Const, DeclTag, Restrict, TypeTag, Typedef, Volatile};
        matches!(self, Typedef | Volatile | Const | Restrict | DeclTag | TypeTag)
    }

    /// How many bytes follow the header.
    pub(super) const fn tail(self, vlen: u32) -> Option<u32> {
        match self {
            Self::Int | Self::Var | Self::DeclTag => Some(4),
            Self::Array => Some(12),
            Self::Struct | Self::Union | Self::DataSec | Self::Enum64 => vlen.checked_mul(12),
            Self::Enum | Self::FuncProto => vlen.checked_mul(8),
            _ => Some(0),
        }
    }
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    take(bytes, at).map(u32::from_ne_bytes)
}

pub(super) fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Bytes of a type's header.
pub(super) const TYPE_LEN: u32 = 12;
