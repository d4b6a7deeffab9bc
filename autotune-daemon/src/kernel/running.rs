//! The running kernel: its BTF, and what follows from it.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{
    btf::{Btf, BtfError},
    generation::{self, Detected},
    layout::{self, LayoutError, ResolvedLayout},
};

/// Where the kernel shows its own BTF.
pub const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

/// What was learned of the running kernel.
#[derive(Debug)]
pub struct RunningKernel {
    /// `uname -r`.
    pub release: String,
    /// Raw BTF, which the probes are loaded with. Some megabytes: drop it after that.
    pub btf: Vec<u8>,
    /// Where this kernel keeps what the probes read.
    pub layout: ResolvedLayout,
    /// Its formula and its tracepoints.
    pub detected: Detected,
}

/// Why this kernel cannot be observed.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// There is no BTF.
    #[error(
        "no kernel type information (BTF) at {path}: {source}; a kernel built with \
         CONFIG_DEBUG_INFO_BTF=y has it"
    )]
    NoBtf {
        /// Where it was looked for.
        path: PathBuf,
        /// Why it could not be read.
        source: io::Error,
    },
    /// What is there is not BTF.
    #[error("{path} is not usable kernel type information (BTF): {source}")]
    BadBtf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: BtfError,
    },
    /// The kernel lacks a member that the probes read.
    #[error("the probes cannot read this kernel's sockets: {0}")]
    Layout(#[from] LayoutError),
    /// The kernel lacks a tracepoint.
    #[error("this kernel ({release}) has no tracepoint tcp:{name}; {advice}")]
    NoTracepoint {
        /// `uname -r`.
        release: String,
        /// Name of the tracepoint.
        name: &'static str,
        /// Since when kernels have it.
        advice: &'static str,
    },
}

impl RunningKernel {
    /// Learns what the BTF at `path` says.
    ///
    /// # Errors
    /// Says what this kernel lacks.
    pub fn read(path: &Path) -> Result<Self, KernelError> {
        let btf = std::fs::read(path)
            .map_err(|source| KernelError::NoBtf { path: path.to_owned(), source })?;
        let parsed = Btf::parse(&btf)
            .map_err(|source| KernelError::BadBtf { path: path.to_owned(), source })?;
        let detected = generation::detect(&parsed);
        let release = release();
        let missing = [
            (
                detected.space_adjust_tracepoint,
                "tcp_rcv_space_adjust",
                "Linux 4.18 and later have it",
            ),
            (detected.grow_tracepoint, "tcp_rcvbuf_grow", "Linux 6.16 and later have it"),
            (detected.destroy_tracepoint, "tcp_destroy_sock", "Linux 4.16 and later have it"),
        ];
        for (present, name, advice) in missing {
            if !present {
                return Err(KernelError::NoTracepoint { release, name, advice });
            }
        }
        let layout = layout::resolve(&parsed)?;
        Ok(Self { release, btf, layout, detected })
    }
}

/// `uname -r`.
#[must_use]
pub fn release() -> String {
    nix::sys::utsname::uname()
        .map(|uname| uname.release().to_string_lossy().into_owned())
        .unwrap_or_default()
}
