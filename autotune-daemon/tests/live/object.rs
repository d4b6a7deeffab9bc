//! The object that ships, as the kernel and as other tools see it.

use std::{
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use ebpf_build::Toolchain;
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

use crate::harness::{self, Setup, Watch};

/// Instructions that the verifier may walk for a program; the kernel's own limit is a million.
const CEILING: u32 = 8000;

/// Where bpffs is mounted, for the tool alone.
const BPFFS: &str = "/sys/fs/bpf";

#[test]
fn no_program_costs_the_verifier_much() {
    let Some(_turn) = harness::turn() else { return };
    let watched = Watch::start(Setup::default()).finish();
    assert_eq!(watched.programs.len(), 3);
    for program in &watched.programs {
        let (verified, jited) = (program.verified_instructions, program.jited_bytes);
        println!("{}: {verified} instructions verified, {jited} bytes", program.name);
    }
    for program in watched.programs {
        let verified = program.verified_instructions;
        assert!((1..CEILING).contains(&verified), "{}: {verified} instructions", program.name);
    }
}

#[test]
fn the_plain_object_loads_by_bpftool() {
    let Some(_turn) = harness::turn() else { return };
    if Command::new("bpftool").arg("version").output().is_err() {
        harness::skipped("needs bpftool");
        return;
    }
    let object = plain_object();
    let output = in_private_bpffs(Command::new("sh").args([
        "-c",
        "bpftool prog loadall \"$0\" \"$1/autotune\" && ls \"$1/autotune\"",
        &object.display().to_string(),
        BPFFS,
    ]));
    let (said, warned) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{warned}");
    for name in autotune::probe::TRACEPOINTS {
        assert!(said.contains(name), "{name} is not among the programs loaded: {said}");
    }
}

#[test]
fn the_plain_object_passes_veristat() {
    let Some(_turn) = harness::turn() else { return };
    if Command::new("veristat").arg("--help").output().is_err() {
        harness::skipped("needs veristat");
        return;
    }
    let output = Command::new("veristat").arg(plain_object()).output().expect("veristat runs");
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.matches("success").count(), 3, "{said}");
}

/// The probes without what libbpf does not know: the log, which is a map of aya's own. With this kernel's
/// layout written where the daemon sets it before load, so that the verifier sees every read.
fn plain_object() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plain-object");
    let toolchain = Toolchain::find().expect("the toolchain that built the probes");
    let built = toolchain.build(workspace, &folder, &[]).expect("the probes build");
    let mut bytes = std::fs::read(built).expect("the object");
    let at = offset_of_symbol(&bytes, "SOCK_LAYOUT");
    for (word, slot) in bytes[at..].chunks_exact_mut(4).zip(harness::kernel().layout.slots) {
        word.copy_from_slice(&slot.to_ne_bytes());
    }
    // bpftool goes by the suffix, and names what it pins after the file.
    let object = folder.join("autotune.bpf.o");
    std::fs::write(&object, bytes).expect("written");
    object
}

/// Where a symbol's bytes lie in the file.
fn offset_of_symbol(elf: &[u8], name: &str) -> usize {
    let elf = object::File::parse(elf).expect("ELF");
    let symbol = elf.symbols().find(|symbol| symbol.name() == Ok(name)).expect("the symbol");
    let section = symbol.section_index().expect("in a section");
    let (start, _) =
        elf.section_by_index(section).expect("its section").file_range().expect("data");
    usize::try_from(start + symbol.address()).expect("within memory")
}

/// Runs a command with a bpffs of its own, which ends with it, and so does what is pinned there.
fn in_private_bpffs(command: &mut Command) -> Output {
    let prepare = || {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        mount(none, BPFFS, Some("bpf"), MsFlags::empty(), none)?;
        Ok(())
    };
    // SAFETY: between fork and exec this makes system calls only, and neither allocates nor locks.
    unsafe { command.pre_exec(prepare) };
    command.output().expect("sh runs")
}
