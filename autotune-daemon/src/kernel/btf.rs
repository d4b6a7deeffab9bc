//! A reader for the kernel's type information (Documentation/bpf/btf.rst) that holds little memory.
//!
//! [`Btf`] borrows the raw bytes and keeps one `u32` a type: about half a megabyte for the 130,000
//! types of a distribution kernel. It looks up what the daemon asks for and decodes nothing else.
//!
//! The bytes count as hostile: every read is bounded, every sum checked, and searches end after
//! `MAX_DEPTH` levels or `MAX_VISITS` members, so that cycles do too.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod error;
mod raw;
#[cfg(test)]
mod tests;

use std::fmt;

pub use self::error::BtfError;
use self::raw::{Kind, TYPE_LEN, Type, take, word};

/// Type information of a kernel, borrowed.
#[derive(Clone)]
pub struct Btf<'a> {
    /// The type section.
    types: &'a [u8],
    /// Where the type section starts in the whole, for error messages.
    types_at: usize,
    /// The string section; ends with a NUL.
    strings: &'a [u8],
    /// Where each type starts in the type section; type 1 comes first.
    index: Vec<u32>,
}

/// Where a member lies in its struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Bits from the start of the struct, lowest bit of a byte first.
    pub bit_offset: u32,
    /// Width in bits. An array stands for its first element, as in C.
    pub bit_width: u32,
    /// Whether it is a signed integer.
    pub signed: bool,
}

impl<'a> Btf<'a> {
    /// Checks the header and finds every type.
    ///
    /// # Errors
    /// Says what is wrong at which byte when these are not the BTF of a kernel, are of the other byte
    /// order, are cut short, or hold a kind of type that is not known.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let cut = |what| move || BtfError::Truncated { what, at: 0, end: bytes.len() };
        let magic = take(bytes, 0).map(u16::from_ne_bytes).ok_or_else(cut("header"))?;
        if magic.swap_bytes() == MAGIC {
            return Err(BtfError::ForeignEndian);
        }
        if magic != MAGIC {
            return Err(BtfError::Magic(magic));
        }
        let [version, flags] = take(bytes, 2).ok_or_else(cut("header"))?;
        if version != 1 || flags != 0 {
            return Err(BtfError::Version { version, flags });
        }
        let word = |at| word(bytes, at).map(|word| word as usize).ok_or_else(cut("header"));
        let (header_len, types_at, types_len) = (word(4)?, word(8)?, word(12)?);
        let (strings_at, strings_len) = (word(16)?, word(20)?);
        let section = |what, at: usize, len: usize| {
            let at = at.saturating_add(header_len);
            let section = bytes.get(at..at.saturating_add(len));
            section.map(|section| (at, section)).ok_or(BtfError::Truncated {
                what,
                at,
                end: bytes.len(),
            })
        };
        let (types_at, types) = section("type section", types_at, types_len)?;
        let (strings_at, strings) = section("string section", strings_at, strings_len)?;
        if strings.first() != Some(&0) || strings.last() != Some(&0) {
            return Err(BtfError::Strings { at: strings_at });
        }
        let mut btf = Self { types, types_at, strings, index: Vec::new() };
        let mut start = 0;
        while (start as usize) < types.len() {
            start = btf.push(start)?;
        }
        btf.index.shrink_to_fit();
        Ok(btf)
    }

    /// Where the member at `path` lies in `struct root` (or `union root`).
    ///
    /// `path` is dotted, and `name[i]` is an element of an array; members of anonymous structs and
    /// unions go by their own name. Of several structs of that name the first that has members counts.
    ///
    /// # Errors
    /// Says which part of the path the kernel lacks or cannot be applied, or what is wrong with the BTF.
    pub fn member(&self, root: &str, path: &str) -> Result<Member, BtfError> {
        let mut visits = MAX_VISITS;
        let mut place = Place { ty: self.root(root)?, bit_offset: 0, bits: 0 };
        for component in path.split('.') {
            let no_entry = |kind: Kind| BtfError::NoEntry {
                root: root.to_owned(),
                path: path.to_owned(),
                component: component.to_owned(),
                kind: kind.describe(),
            };
            let bad_path = || BtfError::Path(path.to_owned());
            let (name, mut indices) =
                component.split_at(component.find('[').unwrap_or(component.len()));
            if name.is_empty() {
                return Err(bad_path());
            }
            if !matches!(place.ty.kind, Kind::Struct | Kind::Union) {
                return Err(no_entry(place.ty.kind));
            }
            let Some(found) = self.find(place.ty, name, 0, &mut visits)? else {
                return Err(BtfError::MissingMember {
                    root: root.to_owned(),
                    path: path.to_owned(),
                    component: component.to_owned(),
                });
            };
            place = self.offset_by(found, place.bit_offset)?;
            while let Some((index, rest)) =
                indices.strip_prefix('[').and_then(|open| open.split_once(']'))
            {
                let index: u32 = index.parse().map_err(|_| bad_path())?;
                if place.ty.kind != Kind::Array {
                    return Err(no_entry(place.ty.kind));
                }
                let (element, len) = self.array(place.ty)?;
                if index >= len {
                    return Err(BtfError::IndexOutOfBounds {
                        root: root.to_owned(),
                        path: path.to_owned(),
                        component: component.to_owned(),
                        len,
                    });
                }
                let skipped = self.bits(element)?.checked_mul(index);
                let skipped = skipped.ok_or_else(|| self.malformed(element, "is too large"))?;
                let element = Place { ty: element, bit_offset: skipped, bits: 0 };
                place = self.offset_by(element, place.bit_offset)?;
                indices = rest;
            }
            if !indices.is_empty() {
                return Err(bad_path());
            }
        }
        self.measure(place)
    }

    /// How many parameters the function takes, `...` counting as one. `None` when BTF has no such
    /// function, as when the compiler inlined it everywhere.
    #[must_use]
    pub fn function_params(&self, name: &str) -> Option<usize> {
        self.named(Kind::Func, name).find_map(|function| {
            let prototype = self.get(function.value).ok()?;
            (prototype.kind == Kind::FuncProto).then_some(prototype.vlen as usize)
        })
    }

    /// Whether there is a typedef of that name. Each tracepoint has one, `btf_trace_<tracepoint>`.
    #[must_use]
    pub fn has_typedef(&self, name: &str) -> bool {
        self.named(Kind::Typedef, name).next().is_some()
    }

    /// Checks the type at `start` and adds it to the index. Returns where the next one starts.
    fn push(&mut self, start: u32) -> Result<u32, BtfError> {
        let id = u32::try_from(self.index.len()).unwrap_or(u32::MAX).saturating_add(1);
        let at = self.types_at.saturating_add(start as usize);
        let cut = || BtfError::Truncated {
            what: "type",
            at,
            end: self.types_at.saturating_add(self.types.len()),
        };
        let info = word(self.types, (start as usize).saturating_add(4)).ok_or_else(cut)?;
        let kind = (info >> 24) & 0x7f;
        if Kind::from_u32(kind).is_none() {
            return Err(BtfError::UnknownKind { id, at, kind });
        }
        let ty = Type::read(self.types, id, start).ok_or_else(cut)?;
        let tail = ty.kind.tail(ty.vlen).and_then(|tail| ty.tail.checked_add(tail));
        let end = tail.filter(|end| *end as usize <= self.types.len()).ok_or_else(cut)?;
        if ty.name as usize >= self.strings.len() {
            let what = "has a name outside the string section";
            return Err(BtfError::Malformed { id, at, what });
        }
        self.index.push(start);
        Ok(end)
    }

    /// The struct or union of that name, preferably one that has members.
    fn root(&self, name: &str) -> Result<Type, BtfError> {
        let candidates = || self.named(Kind::Struct, name).chain(self.named(Kind::Union, name));
        candidates()
            .find(|ty| ty.value > 0 && ty.vlen > 0)
            .or_else(|| candidates().next())
            .ok_or_else(|| BtfError::MissingStruct(name.to_owned()))
    }

    /// The member `name` of `owner`, itself or by way of anonymous structs and unions.
    fn find(
        &self,
        owner: Type,
        name: &str,
        depth: u32,
        visits: &mut u32,
    ) -> Result<Option<Place>, BtfError> {
        for nth in 0..owner.vlen {
            let left = visits.checked_sub(1).filter(|_| depth < MAX_DEPTH);
            *visits = left.ok_or_else(|| self.malformed(owner, "nests too much"))?;
            let at = nth.saturating_mul(12);
            let (member, ty) = (self.tail(owner, at)?, self.tail(owner, at.saturating_add(4))?);
            let offset = self.tail(owner, at.saturating_add(8))?;
            if member as usize >= self.strings.len() {
                return Err(self.malformed(owner, "has a member name outside the string section"));
            }
            // The kind flag says that the offset's upper byte is the width of a bitfield.
            let (bit_offset, bits) =
                if owner.flag { (offset & 0xff_ffff, offset >> 24) } else { (offset, 0) };
            if self.is_named(member, name) {
                return Ok(Some(Place { ty: self.strip(ty)?, bit_offset, bits }));
            }
            if self.is_named(member, "") {
                let inner = self.strip(ty)?;
                if matches!(inner.kind, Kind::Struct | Kind::Union)
                    && let Some(found) = self.find(inner, name, depth.saturating_add(1), visits)?
                {
                    return self.offset_by(found, bit_offset).map(Some);
                }
            }
        }
        Ok(None)
    }

    /// `place`, further on by `bits`.
    fn offset_by(&self, place: Place, bits: u32) -> Result<Place, BtfError> {
        let sum = place.bit_offset.checked_add(bits);
        let bit_offset = sum.ok_or_else(|| self.malformed(place.ty, "lies too far out"))?;
        Ok(Place { bit_offset, ..place })
    }

    /// The bits of a scalar, and whether they are signed.
    fn measure(&self, place: Place) -> Result<Member, BtfError> {
        let Place { mut ty, mut bit_offset, bits } = place;
        let mut depth = MAX_DEPTH;
        while ty.kind == Kind::Array {
            depth = depth.checked_sub(1).ok_or_else(|| self.malformed(ty, "nests too much"))?;
            ty = self.array(ty)?.0;
        }
        let mut bit_width = bits;
        // An enum's kind flag says that it is signed.
        let mut signed = matches!(ty.kind, Kind::Enum | Kind::Enum64) && ty.flag;
        if ty.kind == Kind::Int {
            let encoding = self.tail(ty, 0)?;
            signed = encoding & INT_SIGNED != 0;
            if bits == 0 {
                // Older compilers describe a bitfield by an integer of its own.
                bit_width = encoding & 0xff;
                let within = (encoding >> 16) & 0xff;
                bit_offset = self.offset_by(place, within)?.bit_offset;
            }
        } else if bits == 0 {
            bit_width = self.bits(ty)?;
        }
        Ok(Member { bit_offset, bit_width, signed })
    }

    /// Size in bits.
    fn bits(&self, mut ty: Type) -> Result<u32, BtfError> {
        let mut count = 1_u32;
        for _ in 0..MAX_DEPTH {
            let size = match ty.kind {
                Kind::Ptr => 8,
                Kind::Array => {
                    let (element, len) = self.array(ty)?;
                    let product = count.checked_mul(len);
                    count = product.ok_or_else(|| self.malformed(ty, "is too large"))?;
                    ty = element;
                    continue;
                }
                Kind::Int | Kind::Struct | Kind::Union => ty.value,
                Kind::Enum | Kind::Enum64 | Kind::Float => ty.value,
                _ => return Err(self.malformed(ty, "has no size, but a member is of that type")),
            };
            let bits = size.checked_mul(8).and_then(|bits| bits.checked_mul(count));
            return bits.ok_or_else(|| self.malformed(ty, "is too large"));
        }
        Err(self.malformed(ty, "nests too much"))
    }

    /// An array's element and length.
    fn array(&self, ty: Type) -> Result<(Type, u32), BtfError> {
        Ok((self.strip(self.tail(ty, 0)?)?, self.tail(ty, 8)?))
    }

    /// The type without typedefs, qualifiers and tags.
    fn strip(&self, id: u32) -> Result<Type, BtfError> {
        let mut ty = self.get(id)?;
        for _ in 0..MAX_DEPTH {
            if !ty.kind.is_modifier() {
                return Ok(ty);
            }
            ty = self.get(ty.value)?;
        }
        Err(self.malformed(ty, "nests too much"))
    }

    fn get(&self, id: u32) -> Result<Type, BtfError> {
        if id == 0 {
            return Ok(Type::VOID);
        }
        let start = id.checked_sub(1).and_then(|nth| self.index.get(nth as usize));
        start
            .and_then(|start| Type::read(self.types, id, *start))
            .ok_or(BtfError::NoType { id, count: self.index.len() })
    }

    /// The word `at` bytes into what follows the type's header.
    fn tail(&self, ty: Type, at: u32) -> Result<u32, BtfError> {
        let at = ty.tail.checked_add(at);
        at.and_then(|at| word(self.types, at as usize))
            .ok_or_else(|| self.malformed(ty, "reaches over the end of the type section"))
    }

    fn named(&self, kind: Kind, name: &str) -> impl Iterator<Item = Type> {
        let types = (1..).zip(&self.index);
        types
            .filter_map(|(id, start)| Type::read(self.types, id, *start))
            .filter(move |ty| ty.kind == kind && self.is_named(ty.name, name))
    }

    fn is_named(&self, offset: u32, name: &str) -> bool {
        let string = self.strings.get(offset as usize..);
        let rest = string.and_then(|string| string.strip_prefix(name.as_bytes()));
        rest.and_then(<[u8]>::first) == Some(&0)
    }

    fn malformed(&self, ty: Type, what: &'static str) -> BtfError {
        let start = ty.tail.saturating_sub(TYPE_LEN) as usize;
        BtfError::Malformed { id: ty.id, at: self.types_at.saturating_add(start), what }
    }
}

impl fmt::Debug for Btf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Btf").field("types", &self.index.len()).finish_non_exhaustive()
    }
}

/// A part of a struct on the way to a member.
#[derive(Clone, Copy)]
struct Place {
    /// Its type, without modifiers.
    ty: Type,
    bit_offset: u32,
    /// Width of a bitfield, otherwise 0.
    bits: u32,
}

const MAGIC: u16 = 0xeb9f;

/// `BTF_INT_SIGNED`, where it lies in the word after an integer's header.
const INT_SIGNED: u32 = 1 << 24;

/// How deep types may nest: the kernel's own limit (`MAX_RESOLVE_DEPTH`, kernel/bpf/btf.c).
const MAX_DEPTH: u32 = 32;

/// How many members one path may pass: some hundred in a kernel's structs.
const MAX_VISITS: u32 = 1 << 16;
