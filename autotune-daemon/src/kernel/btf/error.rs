//! What can be wrong with BTF.

/// What is wrong with the BTF, or what it lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// Another file format.
    #[error("not BTF: byte 0 starts the number {0:#06x}, not 0xeb9f")]
    Magic(u16),
    /// Written for a machine of the other byte order.
    #[error("BTF of a machine of the other byte order")]
    ForeignEndian,
    /// A header of a version or with flags that are not understood.
    #[error(
        "BTF of version {version} with flags {flags:#x}; only version 1 without flags is known"
    )]
    Version {
        /// Byte 2.
        version: u8,
        /// Byte 3.
        flags: u8,
    },
    /// A part reaches over the end of what contains it.
    #[error("BTF is cut short: {what} at byte {at} ends after byte {end}")]
    Truncated {
        /// The part.
        what: &'static str,
        /// Where it starts.
        at: usize,
        /// Where what contains it ends.
        end: usize,
    },
    /// The string section does not start and end with a NUL.
    #[error("BTF string section at byte {at} does not start and end with a NUL")]
    Strings {
        /// Where the section starts.
        at: usize,
    },
    /// A type of a kind that a later kernel introduced, or garbage.
    #[error("BTF type {id} at byte {at} is of unknown kind {kind}")]
    UnknownKind {
        /// The type.
        id: u32,
        /// Where it starts.
        at: usize,
        /// Its kind.
        kind: u32,
    },
    /// A type contradicts itself.
    #[error("malformed BTF: type {id} at byte {at} {what}")]
    Malformed {
        /// The type.
        id: u32,
        /// Where it starts.
        at: usize,
        /// What is wrong with it, as the sentence's end.
        what: &'static str,
    },
    /// A type refers to one that does not exist.
    #[error("malformed BTF: no type {id} among its {count}")]
    NoType {
        /// The type referred to.
        id: u32,
        /// How many types there are.
        count: usize,
    },
    /// No definition of the struct.
    #[error("no struct {0} in BTF")]
    MissingStruct(String),
    /// The struct is there, the member is not.
    #[error("struct {root} has no member {path}: nothing is named {component}")]
    MissingMember {
        /// The struct.
        root: String,
        /// The path asked for.
        path: String,
        /// The part of the path that is missing.
        component: String,
    },
    /// The array is shorter than the path assumes.
    #[error("{root}.{path}: {component} is out of bounds, as the array has {len} elements")]
    IndexOutOfBounds {
        /// The struct.
        root: String,
        /// The path asked for.
        path: String,
        /// The part of the path that is out of bounds.
        component: String,
        /// The array's length.
        len: u32,
    },
    /// The path goes on where there is nothing to go into, such as through a pointer.
    #[error("{root}.{path}: {component} cannot be looked up in {kind}")]
    NoEntry {
        /// The struct.
        root: String,
        /// The path asked for.
        path: String,
        /// The part of the path that does not apply.
        component: String,
        /// What it is applied to.
        kind: &'static str,
    },
    /// The path itself is not one.
    #[error("{0:?} is not a member path")]
    Path(String),
}
