//! BTF made up for tests: single types ([`Builder`]), or what a kernel of some generation has
//! ([`Kernel`]).

use autotune_common::SockMember;

/// A member as BTF writes it: name, type, and offset in bits with the width of a bitfield above.
pub(super) type Field = (&'static str, u32, u32);

/// Writes BTF type by type. Each method returns the number of the type that it adds.
#[derive(Debug)]
pub(super) struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self { types: Vec::new(), strings: vec![0], count: 0 }
    }

    pub(super) fn build(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(0xeb9f_u16.to_ne_bytes());
        bytes.extend([1, 0]);
        let (types, strings) = (len(&self.types), len(&self.strings));
        for word in [24, 0, types, types, strings] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        bytes.extend(&self.types);
        bytes.extend(&self.strings);
        bytes
    }

    /// Any type: kind, kind flag, name, number of entries, size or type, what follows.
    pub(super) fn add(
        &mut self,
        (kind, flag): (u32, bool),
        name: &str,
        vlen: usize,
        value: u32,
        tail: &[u32],
    ) -> u32 {
        let name = self.string(name);
        let info = u32::from(flag) << 31 | kind << 24 | u32::try_from(vlen).unwrap();
        for word in [name, info, value].iter().chain(tail) {
            self.types.extend(word.to_ne_bytes());
        }
        self.count += 1;
        self.count
    }

    /// `encoding` is 1 for a signed integer.
    pub(super) fn int(&mut self, name: &str, size: u32, encoding: u32) -> u32 {
        self.add((1, false), name, 0, size, &[encoding << 24 | (size * 8)])
    }

    /// The integer by which older compilers describe a bitfield.
    pub(super) fn bitfield_int(&mut self, name: &str, size: u32, offset: u32, bits: u32) -> u32 {
        self.add((1, false), name, 0, size, &[offset << 16 | bits])
    }

    pub(super) fn ptr(&mut self, to: u32) -> u32 {
        self.add((2, false), "", 0, to, &[])
    }

    pub(super) fn array(&mut self, element: u32, len: u32) -> u32 {
        self.add((3, false), "", 0, 0, &[element, 1, len])
    }

    pub(super) fn plain_struct(&mut self, name: &str, size: u32, members: &[Field]) -> u32 {
        self.composite((4, false), name, size, members)
    }

    /// A struct whose offsets have the width of a bitfield in their upper byte.
    pub(super) fn bitfield_struct(&mut self, name: &str, size: u32, members: &[Field]) -> u32 {
        self.composite((4, true), name, size, members)
    }

    pub(super) fn union(&mut self, name: &str, size: u32, members: &[Field]) -> u32 {
        self.composite((5, false), name, size, members)
    }

    /// Typedef 8, volatile 9, const 10, restrict 11, declaration tag 17, type tag 18.
    pub(super) fn modifier(&mut self, kind: u32, name: &str, of: u32) -> u32 {
        let tail: &[u32] = if kind == 17 { &[0] } else { &[] };
        self.add((kind, false), name, 0, of, tail)
    }

    pub(super) fn function(&mut self, name: &str, params: usize) -> u32 {
        let tail: Vec<u32> = (0..params).flat_map(|_| [0, 1]).collect();
        let prototype = self.add((13, false), "", params, 0, &tail);
        self.add((12, false), name, 0, prototype, &[])
    }

    fn composite(&mut self, kind: (u32, bool), name: &str, size: u32, members: &[Field]) -> u32 {
        let mut tail = Vec::new();
        for (member, ty, offset) in members {
            tail.extend([self.string(member), *ty, *offset]);
        }
        self.add(kind, name, members.len(), size, &tail)
    }

    fn string(&mut self, string: &str) -> u32 {
        if string.is_empty() {
            return 0;
        }
        let at = len(&self.strings);
        self.strings.extend(string.bytes());
        self.strings.push(0);
        at
    }
}

/// A kernel's BTF as far as this program looks at it; complete and as of 6.19 by default.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    pub(super) lacks: fn(&SockMember) -> bool,
    pub(super) rmem_len: u32,
    pub(super) signed_space: bool,
    pub(super) grow_params: Option<usize>,
    pub(super) grow_tracepoint: bool,
    pub(super) space_adjust_tracepoint: bool,
    pub(super) destroy_tracepoint: bool,
}

impl Default for Kernel {
    fn default() -> Self {
        Self {
            lacks: |_| false,
            rmem_len: 3,
            signed_space: true,
            grow_params: Some(2),
            grow_tracepoint: true,
            space_adjust_tracepoint: true,
            destroy_tracepoint: true,
        }
    }
}

impl Kernel {
    pub(super) fn btf(&self) -> Vec<u8> {
        let mut builder = Builder::new();
        self.add_to(&mut builder);
        builder.build()
    }

    pub(super) fn add_to(&self, builder: &mut Builder) {
        for root in ["sock", "tcp_sock", "sk_buff", "tcp_skb_cb", "net"] {
            let members = self.members(builder, root);
            if !members.is_empty() {
                builder.plain_struct(root, 4096, &members);
            }
        }
        if let Some(params) = self.grow_params {
            builder.function("tcp_rcvbuf_grow", params);
        }
        for (has, name) in [
            (self.grow_tracepoint, "btf_trace_tcp_rcvbuf_grow"),
            (self.space_adjust_tracepoint, "btf_trace_tcp_rcv_space_adjust"),
            (self.destroy_tracepoint, "btf_trace_tcp_destroy_sock"),
        ] {
            if has {
                builder.modifier(8, name, 0);
            }
        }
    }

    /// Adds the types of the members of one struct and returns the members.
    pub(super) fn members(&self, builder: &mut Builder, root: &str) -> Vec<Field> {
        let paths = SockMember::ALL.iter().filter(|member| !(self.lacks)(member));
        let paths = paths.filter(|member| member.path().0 == root);
        let paths: Vec<_> = paths.map(|member| (member.path().1, member.width())).collect();
        self.emit(builder, &paths).0
    }

    /// Lays out one level of the paths, each with its width in bits: its members and their size in
    /// bytes.
    fn emit(&self, builder: &mut Builder, paths: &[(&'static str, u32)]) -> (Vec<Field>, u32) {
        let (mut members, mut size) = (Vec::new(), 0);
        let mut names: Vec<&str> = Vec::new();
        for (path, bits) in paths {
            let name = path.split(['.', '[']).next().unwrap();
            if names.contains(&name) {
                continue;
            }
            names.push(name);
            let rests: Vec<_> = paths
                .iter()
                .filter_map(|(path, bits)| Some((path.strip_prefix(name)?, *bits)))
                .filter(|(rest, _)| rest.starts_with(['.', '[']))
                .collect();
            let indexed = rests.iter().any(|(rest, _)| rest.starts_with('['));
            let below: Vec<_> = rests
                .iter()
                .filter_map(|(rest, bits)| Some((rest.split_once('.')?.1, *bits)))
                .collect();
            let (mut ty, mut width) = if below.is_empty() {
                let bytes = if *bits == 0 { 4 } else { bits / 8 };
                let signed = u32::from(name != "space" || self.signed_space);
                (builder.int("int", bytes, signed), bytes)
            } else {
                let (inner, size) = self.emit(builder, &below);
                // As in the kernel: the sysctls' struct has a name.
                let name = if name == "ipv4" { "netns_ipv4" } else { "" };
                (builder.plain_struct(name, size, &inner), size)
            };
            if indexed {
                ty = builder.array(ty, self.rmem_len);
                width *= self.rmem_len;
            }
            members.push((name, ty, size * 8));
            size += width;
        }
        (members, size)
    }
}

fn len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap()
}
