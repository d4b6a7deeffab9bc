use proptest::prelude::*;

use super::*;
use crate::kernel::synthetic::{Builder, Field, Kernel};
use crate::kernel::{generation, layout};

/// `u32` in a struct `s`, at its start.
fn one_struct() -> Vec<u8> {
    let mut builder = Builder::new();
    let int = builder.int("u32", 4, 0);
    builder.plain_struct("s", 8, &[("first", int, 0), ("second", int, 32)]);
    builder.build()
}

/// The struct `s` of `members`, which may use an `u32`, number 1.
fn members(members: &[Field]) -> Builder {
    let mut builder = Builder::new();
    builder.int("u32", 4, 0);
    builder.plain_struct("s", 64, members);
    builder
}

#[track_caller]
fn find(builder: &Builder, path: &str) -> (u32, u32, bool) {
    let bytes = builder.build();
    let Member { bit_offset, bit_width, signed } =
        Btf::parse(&bytes).unwrap().member("s", path).unwrap();
    (bit_offset, bit_width, signed)
}

#[track_caller]
fn error(builder: &Builder, path: &str) -> String {
    Btf::parse(&builder.build()).unwrap().member("s", path).unwrap_err().to_string()
}

#[test]
fn members_lie_where_the_struct_says() {
    let bytes = one_struct();
    let btf = Btf::parse(&bytes).unwrap();
    let at = |bit_offset| Ok(Member { bit_offset, bit_width: 32, signed: false });
    assert_eq!(btf.member("s", "first"), at(0));
    assert_eq!(btf.member("s", "second"), at(32));
    assert_eq!(format!("{btf:?}"), "Btf { types: 2, .. }");
}

#[test]
fn scalars_of_every_kind_have_their_width_and_sign() {
    let mut builder = Builder::new();
    let short = builder.int("short", 2, 1);
    let pointer = builder.ptr(0);
    let wide = builder.add((19, true), "wide", 1, 8, &[0, 1, 0]);
    let narrow = builder.add((6, false), "narrow", 1, 4, &[0, 1]);
    let float = builder.add((16, false), "double", 0, 8, &[]);
    let fields = [
        ("short", short, 0),
        ("pointer", pointer, 64),
        ("wide", wide, 128),
        ("narrow", narrow, 192),
        ("float", float, 256),
    ];
    builder.plain_struct("s", 64, &fields);
    assert_eq!(find(&builder, "short"), (0, 16, true));
    assert_eq!(find(&builder, "pointer"), (64, 64, false));
    assert_eq!(find(&builder, "wide"), (128, 64, true));
    assert_eq!(find(&builder, "narrow"), (192, 32, false));
    assert_eq!(find(&builder, "float"), (256, 64, false));
}

#[test]
fn types_of_every_kind_are_skipped_by_their_length() {
    let mut builder = Builder::new();
    let int = builder.int("u32", 4, 0);
    builder.ptr(int);
    builder.array(int, 3);
    builder.union("u", 4, &[("a", int, 0), ("b", int, 0)]);
    builder.add((6, false), "enum", 2, 4, &[0, 1, 0, 2]);
    builder.add((7, false), "fwd", 0, 0, &[]);
    for kind in [8, 9, 10, 11, 17, 18] {
        builder.modifier(kind, "m", int);
    }
    builder.function("f", 3);
    builder.add((14, false), "var", 0, int, &[1]);
    builder.add((15, false), "sec", 2, 8, &[int, 0, 4, int, 4, 4]);
    builder.add((16, false), "float", 0, 4, &[]);
    builder.add((19, false), "enum64", 2, 8, &[0, 1, 0, 0, 2, 0]);
    builder.plain_struct("s", 4, &[("last", int, 0)]);
    assert_eq!(find(&builder, "last"), (0, 32, false));
}

#[test]
fn modifiers_are_looked_through() {
    let mut builder = Builder::new();
    let mut ty = builder.int("int", 4, 1);
    for kind in [8, 9, 10, 11, 17, 18] {
        ty = builder.modifier(kind, "m", ty);
    }
    let array = builder.array(ty, 2);
    let array = builder.modifier(10, "", array);
    builder.plain_struct("s", 64, &[("one", ty, 32), ("many", array, 64)]);
    assert_eq!(find(&builder, "one"), (32, 32, true));
    assert_eq!(find(&builder, "many[1]"), (96, 32, true));
}

#[test]
fn anonymous_structs_and_unions_are_looked_through() {
    let mut builder = Builder::new();
    let int = builder.int("u32", 4, 0);
    let inner = builder.plain_struct("", 8, &[("x", int, 0), ("y", int, 32)]);
    let inner = builder.modifier(9, "", inner);
    let either = builder.union("", 8, &[("raw", int, 0), ("", inner, 0)]);
    builder.plain_struct("s", 64, &[("", int, 0), ("", either, 64), ("named", either, 128)]);
    assert_eq!(find(&builder, "raw"), (64, 32, false));
    assert_eq!(find(&builder, "y"), (96, 32, false));
    assert_eq!(find(&builder, "named.y"), (160, 32, false));
}

#[test]
fn a_union_can_be_the_root() {
    let mut builder = Builder::new();
    let int = builder.int("u32", 4, 0);
    builder.union("s", 4, &[("a", int, 0)]);
    assert_eq!(find(&builder, "a"), (0, 32, false));
}

#[test]
fn bitfields_of_the_new_encoding_have_width_and_offset() {
    let mut builder = Builder::new();
    let short = builder.int("u16", 2, 0);
    let int = builder.int("int", 4, 1);
    let fields = [
        ("low", short, 7 << 24 | 8),
        ("high", short, 4 << 24 | 20),
        ("signed", int, 3 << 24 | 32),
        ("whole", short, 64),
    ];
    let nested = builder.bitfield_struct("", 16, &fields);
    builder.plain_struct("s", 64, &[("nested", nested, 256), ("", nested, 0)]);
    assert_eq!(find(&builder, "nested.low"), (264, 7, false));
    assert_eq!(find(&builder, "nested.high"), (276, 4, false));
    assert_eq!(find(&builder, "signed"), (32, 3, true));
    assert_eq!(find(&builder, "whole"), (64, 16, false));
}

#[test]
fn bitfields_of_the_old_encoding_have_an_integer_of_their_own() {
    let mut builder = Builder::new();
    let bits = builder.bitfield_int("u8", 1, 2, 4);
    builder.plain_struct("s", 64, &[("bits", bits, 24)]);
    assert_eq!(find(&builder, "bits"), (26, 4, false));
}

#[test]
fn offsets_without_the_kind_flag_are_32_bits_wide() {
    assert_eq!(find(&members(&[("far", 1, 0x0300_0000)]), "far"), (0x0300_0000, 32, false));
}

#[test]
fn array_elements_are_found_and_bounded() {
    let mut builder = Builder::new();
    let int = builder.int("u32", 4, 0);
    let pair = builder.plain_struct("", 8, &[("t", int, 0), ("v", int, 32)]);
    let row = builder.array(int, 3);
    let fields = [
        ("pairs", builder.array(pair, 3), 64),
        ("grid", builder.array(row, 2), 512),
        ("empty", builder.array(int, 0), 1024),
    ];
    builder.plain_struct("s", 256, &fields);
    assert_eq!(find(&builder, "pairs[0].v"), (96, 32, false));
    assert_eq!(find(&builder, "pairs[2].v"), (64 + 128 + 32, 32, false));
    assert_eq!(find(&builder, "grid[1][2]"), (512 + 96 + 64, 32, false));
    assert_eq!(find(&builder, "grid"), (512, 32, false), "its first element");
    assert_eq!(find(&builder, "empty"), (1024, 32, false));
    assert_eq!(
        error(&builder, "pairs[3].v"),
        "s.pairs[3].v: pairs[3] is out of bounds, as the array has 3 elements"
    );
    assert_eq!(
        error(&builder, "empty[0]"),
        "s.empty[0]: empty[0] is out of bounds, as the array has 0 elements"
    );
    assert_eq!(error(&builder, "pairs.v"), "s.pairs.v: v cannot be looked up in an array");
    assert_eq!(
        error(&builder, "grid[0][0][0]"),
        "s.grid[0][0][0]: grid[0][0][0] cannot be looked up in an integer"
    );
}

#[test]
fn a_path_does_not_go_through_a_pointer() {
    let mut builder = Builder::new();
    let int = builder.int("u32", 4, 0);
    let target = builder.plain_struct("t", 4, &[("x", int, 0)]);
    let pointer = builder.ptr(target);
    builder.plain_struct("s", 8, &[("t", pointer, 0)]);
    assert_eq!(error(&builder, "t.x"), "s.t.x: x cannot be looked up in a pointer");
    assert_eq!(error(&builder, "t[0]"), "s.t[0]: t[0] cannot be looked up in a pointer");
}

#[test]
fn what_is_missing_is_named() {
    let mut builder = Builder::new();
    let int = builder.int("u32", 4, 0);
    let inner = builder.plain_struct("inner", 4, &[("x", int, 0)]);
    builder.plain_struct("s", 4, &[("inner", inner, 0), ("in", int, 0)]);
    let bytes = builder.build();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.member("none", "x"), Err(BtfError::MissingStruct("none".to_owned())));
    assert_eq!(btf.member("u32", "x"), Err(BtfError::MissingStruct("u32".to_owned())));
    let missing = |path: &str, component: &str| {
        Err(BtfError::MissingMember {
            root: "s".to_owned(),
            path: path.to_owned(),
            component: component.to_owned(),
        })
    };
    assert_eq!(btf.member("s", "y"), missing("y", "y"));
    assert_eq!(btf.member("s", "inner.y"), missing("inner.y", "y"));
    assert_eq!(btf.member("s", "inne.x"), missing("inne.x", "inne"));
    assert_eq!(btf.member("s", "inner2"), missing("inner2", "inner2"));
    assert_eq!(error(&builder, "inner.y"), "struct s has no member inner.y: nothing is named y");
}

#[test]
fn what_is_not_a_path_is_refused() {
    let builder = members(&[("x", 1, 0), ("", 1, 32)]);
    for path in ["", ".", "x.", ".x", "[0]", "x[", "x[0", "x[]", "x[-1]", "x[0]y", "x]"] {
        let found = Btf::parse(&builder.build()).unwrap().member("s", path);
        assert!(
            matches!(
                found,
                Err(BtfError::Path(_) | BtfError::NoEntry { .. } | BtfError::MissingMember { .. })
            ),
            "{path}: {found:?}"
        );
    }
    assert_eq!(error(&builder, "x["), "\"x[\" is not a member path");
    assert_eq!(error(&builder, ""), "\"\" is not a member path");
}

#[test]
fn of_several_structs_the_one_with_members_counts() {
    let mut builder = Builder::new();
    let int = builder.int("u32", 4, 0);
    builder.add((7, false), "s", 0, 0, &[]);
    builder.plain_struct("s", 0, &[]);
    builder.plain_struct("s", 8, &[]);
    builder.plain_struct("s", 0, &[("x", int, 64)]);
    builder.plain_struct("s", 64, &[("x", int, 32)]);
    builder.plain_struct("s", 64, &[("x", int, 96)]);
    assert_eq!(find(&builder, "x"), (32, 32, false));
    let mut declared = Builder::new();
    declared.add((7, false), "s", 0, 0, &[]);
    assert_eq!(error(&declared, "x"), "no struct s in BTF");
}

#[test]
fn functions_and_typedefs_are_found_by_kind() {
    let mut builder = Builder::new();
    builder.function("two", 2);
    builder.function("none", 0);
    builder.add((12, false), "odd", 0, 1000, &[]);
    let int = builder.int("u32", 4, 0);
    builder.add((12, false), "untyped", 0, int, &[]);
    builder.modifier(8, "alias", 0);
    let bytes = builder.build();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.function_params("two"), Some(2));
    assert_eq!(btf.function_params("none"), Some(0));
    assert_eq!(btf.function_params("odd"), None, "its type does not exist");
    assert_eq!(btf.function_params("untyped"), None, "its type is not a function's");
    assert_eq!(btf.function_params("alias"), None);
    assert!(btf.has_typedef("alias"));
    assert!(!btf.has_typedef("alia"));
    assert!(!btf.has_typedef("two"));
}

#[test]
fn other_files_are_refused_with_the_reason() {
    let changed = |at: usize, bytes: &[u8]| {
        let mut btf = one_struct();
        btf[at..at + bytes.len()].copy_from_slice(bytes);
        Btf::parse(&btf).unwrap_err().to_string()
    };
    assert_eq!(
        changed(0, &0x457f_u16.to_ne_bytes()),
        "not BTF: byte 0 starts the number 0x457f, not 0xeb9f"
    );
    assert_eq!(
        changed(0, &0xeb9f_u16.swap_bytes().to_ne_bytes()),
        "BTF of a machine of the other byte order"
    );
    assert_eq!(
        changed(2, &[2]),
        "BTF of version 2 with flags 0x0; only version 1 without flags is known"
    );
    assert_eq!(
        changed(3, &[4]),
        "BTF of version 1 with flags 0x4; only version 1 without flags is known"
    );
    assert_eq!(
        changed(24 + 4, &(20_u32 << 24).to_ne_bytes()),
        "BTF type 1 at byte 24 is of unknown kind 20"
    );
    assert_eq!(changed(24 + 4, &0_u32.to_ne_bytes()), "BTF type 1 at byte 24 is of unknown kind 0");
    assert_eq!(
        changed(24 + 16, &u32::MAX.to_ne_bytes()),
        "malformed BTF: type 2 at byte 40 has a name outside the string section"
    );
    assert_eq!(
        changed(24 + 16 + 4, &(4_u32 << 24 | 3).to_ne_bytes()),
        "BTF is cut short: type at byte 40 ends after byte 76"
    );
    assert_eq!(
        changed(12, &1000_u32.to_ne_bytes()),
        "BTF is cut short: type section at byte 24 ends after byte 96"
    );
    assert_eq!(
        changed(4, &u32::MAX.to_ne_bytes()),
        "BTF is cut short: type section at byte 4294967295 ends after byte 96"
    );
    assert_eq!(
        changed(76, b"x"),
        "BTF string section at byte 76 does not start and end with a NUL"
    );
    let mut unended = one_struct();
    *unended.last_mut().unwrap() = b'x';
    assert_eq!(
        Btf::parse(&unended).unwrap_err().to_string(),
        "BTF string section at byte 76 does not start and end with a NUL"
    );
}

#[test]
fn a_longer_header_of_a_later_kernel_is_skipped() {
    let mut bytes = one_struct();
    bytes.splice(24..24, [0; 8]);
    bytes[4..8].copy_from_slice(&32_u32.to_ne_bytes());
    assert!(Btf::parse(&bytes).unwrap().member("s", "second").is_ok());
}

#[test]
fn every_truncation_is_refused() {
    let bytes = one_struct();
    for len in 0..bytes.len() {
        let found = Btf::parse(&bytes[..len]);
        assert!(matches!(found, Err(BtfError::Truncated { .. })), "{len}: {found:?}");
    }
    assert_eq!(
        Btf::parse(&bytes[..20]).unwrap_err().to_string(),
        "BTF is cut short: header at byte 0 ends after byte 20"
    );
}

#[test]
fn damage_that_only_a_look_up_meets_is_reported_by_it() {
    let builder = members(&[("x", 7, 0)]);
    assert_eq!(error(&builder, "x"), "malformed BTF: no type 7 among its 2");
    let builder = members(&[("x", 0, 0)]);
    assert_eq!(
        error(&builder, "x"),
        "malformed BTF: type 0 at byte 24 has no size, but a member is of that type"
    );
    // The name of member `x`, after the integer and the header of the struct.
    let mut bytes = members(&[("x", 1, 0)]).build();
    bytes[24 + 16 + 12..][..4].copy_from_slice(&500_u32.to_ne_bytes());
    assert_eq!(
        Btf::parse(&bytes).unwrap().member("s", "x").unwrap_err().to_string(),
        "malformed BTF: type 2 at byte 40 has a member name outside the string section"
    );
}

#[test]
fn sizes_and_offsets_that_overflow_are_refused() {
    let mut builder = Builder::new();
    let int = builder.int("u32", 4, 0);
    let huge = builder.plain_struct("", u32::MAX, &[("x", int, 0)]);
    let many = builder.array(int, u32::MAX);
    let product = builder.array(many, u32::MAX);
    let far = builder.plain_struct("", 8, &[("x", int, u32::MAX)]);
    let fields = [
        ("huge", huge, 0),
        ("many", many, 0),
        ("grid", builder.array(product, 2), 0),
        ("far", far, 8),
    ];
    builder.plain_struct("s", 64, &fields);
    assert!(error(&builder, "huge").ends_with("is too large"));
    assert!(error(&builder, "many[134217728]").ends_with("is too large"));
    assert!(error(&builder, "grid[1]").ends_with("is too large"));
    assert!(error(&builder, "far.x").ends_with("lies too far out"));
}

#[test]
fn cycles_end() {
    // A struct within itself, a typedef of itself, an array of itself, each number known beforehand.
    let nests = "nests too much";
    assert!(error(&members(&[("", 2, 0)]), "x").ends_with(nests));
    let mut builder = members(&[("typedef", 3, 0), ("array", 4, 0), ("many", 5, 0)]);
    assert_eq!(builder.modifier(8, "t", 3), 3);
    assert_eq!(builder.array(4, 1), 4);
    assert_eq!(builder.array(4, 1), 5);
    assert!(error(&builder, "typedef").ends_with(nests));
    assert!(error(&builder, "array").ends_with(nests));
    assert!(error(&builder, "many[0]").ends_with(nests));
    // A named member of the struct itself is a long path, but one that ends.
    assert_eq!(find(&members(&[("s", 2, 8), ("x", 1, 0)]), "s.s.s.s.x"), (32, 32, false));
}

#[test]
fn a_tree_of_anonymous_structs_ends_before_it_is_searched() {
    // Each level holds the next one 1000 times: 1000^20 members, none of which has the name.
    let mut builder = Builder::new();
    let mut ty = builder.int("u32", 4, 0);
    for _ in 0..20 {
        ty = builder.plain_struct("", 4, &vec![("", ty, 0); 1000]);
    }
    builder.plain_struct("s", 4, &[("", ty, 0)]);
    assert!(error(&builder, "x").ends_with("nests too much"));
}

/// Everything that the daemon does with BTF.
fn use_everything(bytes: &[u8]) {
    let Ok(btf) = Btf::parse(bytes) else { return };
    let _ = layout::resolve(&btf);
    let _ = generation::detect(&btf);
    for path in ["first", "many[1].x", "deep", "bits", "grid[1][1]"] {
        let _ = btf.member("s", path);
    }
}

/// A small BTF with a type of every kind.
fn every_kind() -> Vec<u8> {
    let mut builder = Builder::new();
    let int = builder.int("int", 4, 1);
    let old_bits = builder.bitfield_int("u8", 1, 2, 4);
    let inner = builder.plain_struct("", 8, &[("x", int, 0), ("bits", old_bits, 32)]);
    let either = builder.union("", 8, &[("raw", int, 0), ("", inner, 0)]);
    let mut modified = either;
    for kind in [8, 9, 10, 11, 17, 18] {
        modified = builder.modifier(kind, "btf_trace_tcp_rcvbuf_grow", modified);
    }
    let many = builder.array(modified, 2);
    let row = builder.array(int, 2);
    let grid = builder.array(row, 2);
    let deep = builder.bitfield_struct("", 8, &[("deep", int, 4 << 24 | 8), ("", inner, 0)]);
    let pointer = builder.ptr(int);
    let fields = [
        ("first", pointer, 0),
        ("many", many, 64),
        ("grid", grid, 256),
        ("", deep, 512),
        ("", modified, 640),
    ];
    builder.plain_struct("s", 128, &fields);
    builder.function("tcp_rcvbuf_grow", 2);
    builder.add((6, false), "enum", 1, 4, &[0, 1]);
    builder.add((7, false), "s", 0, 0, &[]);
    builder.add((14, false), "var", 0, int, &[1]);
    builder.add((15, false), "sec", 1, 4, &[int, 0, 4]);
    builder.add((16, false), "float", 0, 4, &[]);
    builder.add((19, false), "enum64", 1, 8, &[0, 1, 0]);
    builder.build()
}

#[test]
fn no_flipped_bit_panics() {
    let bytes = every_kind();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        use_everything(&flipped);
    }
}

#[test]
fn the_fuzzing_corpus_does_not_panic() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/btf");
    let inputs = std::fs::read_dir(corpus).unwrap();
    let count = inputs.map(|input| use_everything(&std::fs::read(input.unwrap().path()).unwrap()));
    assert!(count.count() >= 3, "at least the seeds");
}

/// Writes the seeds of the fuzzing corpus: `cargo test -p autotune-daemon --lib seeds -- --ignored`
#[test]
#[ignore = "writes into fuzz/corpus"]
fn write_the_fuzzing_seeds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/btf");
    std::fs::create_dir_all(corpus).unwrap();
    for (name, bytes) in [
        ("seed-one-struct", one_struct()),
        ("seed-every-kind", every_kind()),
        ("seed-kernel", Kernel::default().btf()),
    ] {
        std::fs::write(format!("{corpus}/{name}"), bytes).unwrap();
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(tail in prop::collection::vec(any::<u8>(), 0..256), types in 0_u32..256) {
        use_everything(&tail);
        // With a header that lets the rest through.
        let mut bytes = vec![];
        bytes.extend(0xeb9f_u16.to_ne_bytes());
        bytes.extend([1, 0]);
        let strings = u32::try_from(tail.len()).unwrap().saturating_sub(types);
        for word in [24, 0, types, types, strings] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        bytes.extend(tail);
        use_everything(&bytes);
    }

    #[test]
    fn no_changed_bytes_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..9),
    ) {
        for mut bytes in [every_kind(), Kernel::default().btf()] {
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            use_everything(&bytes);
        }
    }
}
