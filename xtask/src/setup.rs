//! `cargo xtask setup`: installs what the build of the probes needs, and says nothing when all is there.
//!
//! Debian packages come first, as they need no toolchain but the one that builds the daemon. Where they
//! are not to be had, rustup's nightly does it.

use std::process::Command;

use anyhow::{Context as _, anyhow, bail};
use ebpf_build::{Compiler, Toolchain, find_linker};

use crate::{command, workspace::cargo};

/// A compiler for the probes, and the LLVM of its version for `bpf-linker`.
const COMPILER_PACKAGES: [&str; 2] = ["rustc-web", "libstd-rust-web-dev-bpf"];
const LLVM_PACKAGES: [&str; 3] = ["llvm-22-dev", "libzstd-dev", "zlib1g-dev"];
const LLVM_PREFIX: &str = "/usr/lib/llvm-22";

/// The linker must have an LLVM at least as new as the compiler's.
const LINKER_VERSION: &str = "0.13.0";

/// What the tests run, and the packages that have it.
const TEST_PROGRAMS: [(&str, &str); 4] =
    [("bpftool", "bpftool"), ("ip", "iproute2"), ("tc", "iproute2"), ("unshare", "util-linux")];

/// The linter of the compiler for the probes.
const CLIPPY_PACKAGE: &str = "rust-web-clippy";

/// Where that package puts it.
pub(crate) const CLIPPY_DRIVER: &str = "/usr/bin/clippy-driver";

/// Checks licences, duplicates and sources of the dependencies.
const DENY_VERSION: &str = "0.20.2";

/// Installs what the build lacks.
pub(crate) fn run() -> anyhow::Result<()> {
    if Toolchain::find().is_ok() {
        return Ok(());
    }
    println!("setup: the build of the probes needs a compiler for BPF and bpf-linker");
    let with_packages = by_packages();
    let Err(no_packages) = with_packages else { return check() };
    println!("setup: Debian packages do not do: {no_packages:#}");
    by_rustup().with_context(|| {
        format!("the eBPF toolchain is incomplete and could not be installed; {RUSTUP_ADVICE}")
    })?;
    check()
}

/// Installs what the build lacks, and what the tests need.
pub(crate) fn run_for_tests() -> anyhow::Result<()> {
    run()?;
    let mut packages: Vec<&str> = TEST_PROGRAMS
        .into_iter()
        .filter(|(program, _)| command::find(program).is_none())
        .map(|(_, package)| package)
        .collect();
    packages.dedup();
    if matches!(Compiler::find(), Some(Compiler::Packaged(_))) && !has_packaged_clippy() {
        packages.push(CLIPPY_PACKAGE);
    }
    // What is missing then keeps a part of the tests from running, which says so itself.
    if !packages.is_empty()
        && let Err(error) = Apt::find().and_then(|apt| apt.install(&packages))
    {
        println!("setup: {} could not be installed: {error:#}", packages.join(", "));
    }
    if !has_cargo_deny() {
        let install = ["install", "cargo-deny", "--version", DENY_VERSION, "--locked"];
        if let Err(error) = command::run(cargo().args(install)) {
            println!("setup: cargo-deny could not be installed: {error:#}");
        }
    }
    Ok(())
}

/// Whether `cargo deny` is there.
pub(crate) fn has_cargo_deny() -> bool {
    command::succeeds(cargo().args(["deny", "--version"]))
}

/// Whether the linter of the packaged compiler is there.
pub(crate) fn has_packaged_clippy() -> bool {
    std::path::Path::new(CLIPPY_DRIVER).is_file()
}

const RUSTUP_ADVICE: &str = "with rustup it takes `rustup toolchain install nightly --profile minimal \
     --component rust-src` and `cargo install bpf-linker`, or a prebuilt bpf-linker (see its README), \
     with an LLVM at least as new as nightly's";

fn check() -> anyhow::Result<()> {
    Toolchain::find().map(|_| ()).map_err(|error| anyhow!("after the setup, {error}"))
}

fn by_packages() -> anyhow::Result<()> {
    let apt = Apt::find()?;
    let mut packages = Vec::new();
    // A nightly will not do here: its LLVM may be newer than the one of the linker below.
    if !matches!(Compiler::find(), Some(Compiler::Packaged(_))) {
        packages.extend(COMPILER_PACKAGES);
    }
    let linker = find_linker().is_some();
    if !linker {
        packages.extend(LLVM_PACKAGES);
    }
    apt.install(&packages)?;
    if !linker {
        // Its own lock file, so that what builds today builds tomorrow.
        command::run(cargo().env("LLVM_PREFIX", LLVM_PREFIX).args([
            "install",
            "bpf-linker",
            "--version",
            LINKER_VERSION,
            "--locked",
            "--no-default-features",
            "--features",
            "llvm-22",
        ]))?;
    }
    Ok(())
}

fn by_rustup() -> anyhow::Result<()> {
    if command::find("rustup").is_none() {
        bail!("there is no rustup");
    }
    if Compiler::find().is_none() {
        let mut rustup = Command::new("rustup");
        if command::succeeds(Command::new("rustup").args(["run", "nightly", "rustc", "--version"]))
        {
            // Installing the toolchain again would update it, which nobody asked for.
            rustup.args(["component", "add", "rust-src", "--toolchain", "nightly"]);
        } else {
            rustup.args(["toolchain", "install", "nightly", "--profile", "minimal"]);
            rustup.args(["--component", "rust-src"]);
        }
        command::run(&mut rustup)?;
    }
    if find_linker().is_none() {
        command::run(cargo().args(["install", "bpf-linker"]))?;
    }
    Ok(())
}

/// Debian's package manager, and how to become root for it.
#[derive(Clone, Copy, Debug)]
struct Apt {
    sudo: bool,
}

impl Apt {
    fn find() -> anyhow::Result<Self> {
        if command::find("apt-get").is_none() {
            bail!("there is no apt-get");
        }
        let root = nix::unistd::geteuid().is_root();
        if !root && command::find("sudo").is_none() {
            bail!(
                "installing packages takes root, and there is no sudo: run `cargo xtask setup` as root"
            );
        }
        Ok(Self { sudo: !root })
    }

    /// Installs packages, and removes none for them.
    fn install(self, packages: &[&str]) -> anyhow::Result<()> {
        let install = ["install", "-y", "--no-install-recommends", "--no-remove"];
        // Without an index nothing is found, and with an old one what is found may be gone.
        command::run(self.apt_get().arg("update"))?;
        if let Some(package) = packages.iter().find(|package| !is_offered(package)) {
            bail!("no package {package} is to be had here");
        }
        command::run(self.apt_get().args(install).args(packages))
    }

    fn apt_get(self) -> Command {
        let options = ["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"];
        let mut apt_get = Command::new(if self.sudo { "sudo" } else { "env" });
        if self.sudo {
            apt_get.arg("env");
        }
        apt_get.args(options);
        apt_get
    }
}

/// Whether the package index has the package.
fn is_offered(package: &str) -> bool {
    command::succeeds(Command::new("apt-cache").args(["show", "--no-all-versions", package]))
}
