//! Finds the eBPF toolchain on this machine and builds `autotune-ebpf` with it.
//!
//! Two toolchains will do, and [`Toolchain::find`] takes the first that is there:
//!
//! - [`Compiler::Packaged`]: a distribution's `rustc` that ships `core` for `bpfel-unknown-none`
//!   (Debian: `rustc-web` and `libstd-rust-web-dev-bpf`);
//! - [`Compiler::Nightly`]: rustup's nightly with `rust-src`, which builds `core` itself.
//!
//! Either needs `bpf-linker`. The daemon's build script calls this, so that a plain `cargo build`
//! works once `cargo xtask setup` has run.

#![forbid(unsafe_code)]

use std::{
    env,
    ffi::OsString,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The target that the probes are built for: little-endian BPF.
pub const TARGET: &str = "bpfel-unknown-none";

/// What `autotune-ebpf` can be built with.
#[derive(Clone, Debug)]
pub struct Toolchain {
    /// The compiler.
    pub compiler: Compiler,
    /// Path of `bpf-linker`.
    pub linker: PathBuf,
}

/// A compiler for [`TARGET`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compiler {
    /// A `rustc` at this path with a prebuilt `core` for the target.
    Packaged(PathBuf),
    /// `rustup run nightly`, with the source of `core`.
    Nightly,
}

/// Why the probes cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something is not installed.
    #[error(
        "the eBPF toolchain is incomplete: {missing}; run `cargo xtask setup` to install what is missing"
    )]
    Missing {
        /// What was looked for and not found.
        missing: String,
    },
    /// cargo could not be started.
    #[error("could not run {program}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The build failed.
    #[error("building autotune-ebpf failed:\n{stderr}")]
    Build {
        /// What cargo printed.
        stderr: String,
    },
}

impl Toolchain {
    /// The toolchain that this machine has.
    ///
    /// # Errors
    /// [`Error::Missing`] says what was looked for.
    pub fn find() -> Result<Self, Error> {
        let compiler = Compiler::find();
        let linker = find_linker();
        match (compiler, linker) {
            (Some(compiler), Some(linker)) => Ok(Self { compiler, linker }),
            (compiler, linker) => {
                let mut missing = String::new();
                if compiler.is_none() {
                    let _ = write!(
                        missing,
                        "no compiler for {TARGET} (neither a rustc with its `core` nor rustup's \
                         nightly with rust-src)"
                    );
                }
                if linker.is_none() {
                    let separator = if missing.is_empty() { "" } else { ", and " };
                    let _ = write!(missing, "{separator}no bpf-linker");
                }
                Err(Error::Missing { missing })
            }
        }
    }

    /// Builds `autotune-ebpf` of the workspace at `workspace` with the given cargo features, below
    /// `target_dir`, and returns the object's path.
    ///
    /// # Errors
    /// [`Error::Build`] carries the compiler's messages.
    pub fn build(
        &self,
        workspace: &Path,
        target_dir: &Path,
        features: &[&str],
    ) -> Result<PathBuf, Error> {
        let mut cargo = self.cargo("build", workspace, target_dir, features);
        let output = cargo.output().map_err(|source| Error::Spawn {
            program: cargo.get_program().to_string_lossy().into_owned(),
            source,
        })?;
        if !output.status.success() {
            return Err(Error::Build {
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        Ok(target_dir.join(TARGET).join("release").join("autotune-ebpf"))
    }

    /// `cargo build`, or another subcommand that takes the same options, of `autotune-ebpf` with this
    /// toolchain.
    #[must_use]
    pub fn cargo(
        &self,
        subcommand: &str,
        workspace: &Path,
        target_dir: &Path,
        features: &[&str],
    ) -> Command {
        let mut rustflags = OsString::from("-Cdebuginfo=2\x1f-Clink-arg=--btf\x1f-Clinker=");
        rustflags.push(&self.linker);
        let mut cargo = match &self.compiler {
            Compiler::Packaged(rustc) => {
                let mut cargo =
                    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
                // aya-ebpf names the unstable feature it needs; only that crate gets it.
                cargo.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "aya_ebpf");
                cargo
            }
            Compiler::Nightly => {
                let mut rustup = Command::new("rustup");
                rustup.args(["run", "nightly", "cargo"]);
                rustup.env_remove("RUSTC").env_remove("RUSTC_BOOTSTRAP");
                rustup
            }
        };
        cargo.args([subcommand, "--release", "--package", "autotune-ebpf", "--target", TARGET]);
        if self.compiler == Compiler::Nightly {
            cargo.args(["-Z", "build-std=core"]);
        }
        if !features.is_empty() {
            cargo.arg("--features").arg(features.join(","));
        }
        cargo
            .arg("--target-dir")
            .arg(target_dir)
            .current_dir(workspace)
            .env("CARGO_ENCODED_RUSTFLAGS", rustflags)
            .stdin(Stdio::null());
        // What the outer cargo, clippy or rustup set for the host's build.
        for name in [
            "RUSTFLAGS",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "CLIPPY_ARGS",
            "RUSTDOC",
            "RUSTUP_TOOLCHAIN",
            "CARGO_BUILD_TARGET",
            "CARGO_TARGET_DIR",
            "CARGO_MAKEFLAGS",
            "TARGET",
        ] {
            if !(name == "RUSTUP_TOOLCHAIN" && self.compiler != Compiler::Nightly) {
                cargo.env_remove(name);
            }
        }
        cargo
    }
}

impl Compiler {
    /// The compiler that this machine has.
    #[must_use]
    pub fn find() -> Option<Self> {
        let packaged = env::var_os("AUTOTUNE_EBPF_RUSTC")
            .map_or_else(|| PathBuf::from("/usr/bin/rustc"), PathBuf::from);
        if has_prebuilt_core(&packaged) {
            return Some(Self::Packaged(packaged));
        }
        has_nightly_source().then_some(Self::Nightly)
    }
}

fn has_prebuilt_core(rustc: &Path) -> bool {
    let Some(sysroot) = stdout(Command::new(rustc).args(["--print", "sysroot"])) else {
        return false;
    };
    let libraries = Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).join("lib");
    std::fs::read_dir(libraries).is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
        })
    })
}

fn has_nightly_source() -> bool {
    stdout(Command::new("rustup").args(["run", "nightly", "rustc", "--print", "sysroot"]))
        .is_some_and(|sysroot| {
            Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core").is_dir()
        })
}

/// `bpf-linker` on the path, or where `cargo install` puts it.
#[must_use]
pub fn find_linker() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    env::split_paths(&path)
        .chain(cargo_home.map(|home| home.join("bin")))
        .map(|directory| directory.join("bpf-linker"))
        .find(|candidate| candidate.is_file())
}

/// What the command printed, if it succeeded.
fn stdout(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
