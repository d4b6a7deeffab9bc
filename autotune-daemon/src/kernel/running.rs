//! The running kernel: its BTF, and what follows from it.

use std::os::unix::fs::FileTypeExt as _;
use std::{
    fmt, io,
    io::Read as _,
    path::{Path, PathBuf},
};

use super::{
    btf::{Btf, BtfError},
    generation::{self, Detected},
    layout::{self, LayoutError, ResolvedLayout},
};

/// Where the kernel shows its own BTF.
pub const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

/// More than any kernel's BTF, so that a file without end does not fill the memory.
const BTF_LIMIT: u64 = 64 << 20;

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

/// What the BTF says of a kernel that may lack what the probes need.
#[derive(Debug)]
pub struct Survey {
    /// Raw BTF.
    pub btf: Vec<u8>,
    /// Where this kernel keeps what the probes read, or why they cannot read it.
    pub layout: Result<ResolvedLayout, LayoutError>,
    /// Its formula and its tracepoints.
    pub detected: Detected,
}

/// Why this kernel cannot be observed.
#[derive(Debug)]
pub enum KernelError {
    /// The BTF cannot be read.
    NoBtf {
        /// Where it was looked for.
        path: PathBuf,
        /// Why it could not be read.
        reason: io::Error,
    },
    /// The file of the BTF is empty.
    EmptyBtf {
        /// The file.
        path: PathBuf,
    },
    /// What is there is not BTF.
    BadBtf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: BtfError,
    },
    /// The kernel lacks a member that the probes read.
    Layout(LayoutError),
    /// The kernel lacks a tracepoint.
    NoTracepoint(Tracepoint),
}

/// A tracepoint that the probes attach to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracepoint {
    /// Fires before each growth.
    Grow,
    /// Fires at each read.
    SpaceAdjust,
    /// Fires at a socket's end.
    Destroy,
}

impl Tracepoint {
    /// All, the one that most kernels lack first.
    pub const ALL: [Self; 3] = [Self::Grow, Self::SpaceAdjust, Self::Destroy];

    /// Its name, in the group `tcp`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grow => "tcp_rcvbuf_grow",
            Self::SpaceAdjust => "tcp_rcv_space_adjust",
            Self::Destroy => "tcp_destroy_sock",
        }
    }

    /// The first release that has it.
    #[must_use]
    pub const fn since(self) -> &'static str {
        match self {
            Self::Grow => "6.16",
            Self::SpaceAdjust => "4.18",
            Self::Destroy => "4.16",
        }
    }

    /// Whether the kernel has it by its BTF.
    #[must_use]
    pub const fn is_in(self, detected: &Detected) -> bool {
        match self {
            Self::Grow => detected.grow_tracepoint,
            Self::SpaceAdjust => detected.space_adjust_tracepoint,
            Self::Destroy => detected.destroy_tracepoint,
        }
    }
}

impl Survey {
    /// Learns what the BTF at `path` says.
    ///
    /// # Errors
    /// When there is no BTF at `path`.
    pub fn read(path: &Path) -> Result<Self, KernelError> {
        let btf = read_limited(path)
            .map_err(|reason| KernelError::NoBtf { path: path.to_owned(), reason })?;
        Self::of(btf, path)
    }

    /// Learns what the bytes that were read from `path` say.
    ///
    /// # Errors
    /// When they are not BTF.
    pub fn of(btf: Vec<u8>, path: &Path) -> Result<Self, KernelError> {
        if btf.is_empty() {
            return Err(KernelError::EmptyBtf { path: path.to_owned() });
        }
        let parsed = Btf::parse(&btf)
            .map_err(|reason| KernelError::BadBtf { path: path.to_owned(), reason })?;
        let (detected, layout) = (generation::detect(&parsed), layout::resolve(&parsed));
        Ok(Self { btf, layout, detected })
    }

    /// The kernel, if it has all that the probes need.
    ///
    /// # Errors
    /// Names the first thing that it lacks.
    pub fn into_kernel(self, release: String) -> Result<RunningKernel, KernelError> {
        for tracepoint in Tracepoint::ALL {
            if !tracepoint.is_in(&self.detected) {
                return Err(KernelError::NoTracepoint(tracepoint));
            }
        }
        let layout = self.layout.map_err(KernelError::Layout)?;
        Ok(RunningKernel { release, btf: self.btf, layout, detected: self.detected })
    }
}

impl RunningKernel {
    /// Learns what the BTF at `path` says.
    ///
    /// # Errors
    /// Says what this kernel lacks.
    pub fn read(path: &Path) -> Result<Self, KernelError> {
        Survey::read(path)?.into_kernel(release())
    }
}

impl KernelError {
    /// What is wrong, as a sentence's part.
    #[must_use]
    pub fn finding(&self) -> String {
        match self {
            Self::NoBtf { path, reason } if reason.kind() == io::ErrorKind::NotFound => {
                format!("no kernel type information (BTF): there is no {}", path.display())
            }
            Self::NoBtf { path, reason } => {
                format!(
                    "the kernel type information (BTF) {} cannot be read: {reason}",
                    path.display()
                )
            }
            Self::EmptyBtf { path } => {
                format!("{} is empty, not kernel type information (BTF)", path.display())
            }
            Self::BadBtf { path, reason } => {
                format!("{} is not usable kernel type information (BTF): {reason}", path.display())
            }
            Self::Layout(error) => layout_finding(error),
            Self::NoTracepoint(tracepoint) => {
                format!("this kernel has no tracepoint tcp:{}", tracepoint.name())
            }
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::NoBtf { reason, .. } if reason.kind() == io::ErrorKind::PermissionDenied => {
                "run as root, or make the file readable".to_owned()
            }
            Self::NoBtf { .. } => {
                format!("a kernel built with CONFIG_DEBUG_INFO_BTF=y shows it at {BTF_PATH}")
            }
            Self::EmptyBtf { .. } | Self::BadBtf { .. } => {
                format!("give --btf the raw BTF of the running kernel, as in {BTF_PATH}")
            }
            Self::Layout(_) => "run a kernel from 6.16 on, with CONFIG_NET_NS=y".to_owned(),
            Self::NoTracepoint(tracepoint) => {
                format!("Linux {} and later have it", tracepoint.since())
            }
        }
    }
}

fn read_limited(path: &Path) -> io::Result<Vec<u8>> {
    // To open a pipe would wait for someone who writes to it.
    if std::fs::metadata(path)?.file_type().is_fifo() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a pipe, not a file"));
    }
    let file = std::fs::File::open(path)?;
    let size = file.metadata()?.len().min(BTF_LIMIT);
    // One more, so that reading to the end of the file does not double the buffer.
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
    file.take(BTF_LIMIT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What the layout lacks, with its cause.
pub(super) fn layout_finding(error: &LayoutError) -> String {
    match error {
        LayoutError::Btf { source, .. } => format!("{error}: {source}"),
        error => error.to_string(),
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.finding(), self.remedy())
    }
}

/// No source: the message has it already.
impl std::error::Error for KernelError {}

/// `uname -r`.
#[must_use]
pub fn release() -> String {
    nix::sys::utsname::uname()
        .map(|uname| uname.release().to_string_lossy().into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_an_unreadable_an_empty_and_a_wrong_file_have_different_messages() {
        let folder = tempfile::tempdir().unwrap();
        let message = |path: &Path| Survey::read(path).unwrap_err().to_string();
        let missing = message(&folder.path().join("none"));
        assert!(missing.contains("there is no /"), "{missing}");
        let unreadable = message(folder.path());
        assert!(unreadable.contains("cannot be read: Is a directory"), "{unreadable}");
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let empty = message(&file);
        assert!(empty.contains("is empty"), "{empty}");
        std::fs::write(&file, "hello, world").unwrap();
        let text = message(&file);
        assert!(text.contains("not BTF: byte 0 starts the number"), "{text}");
    }

    #[test]
    fn a_file_without_end_is_not_read_to_its_end() {
        let error = Survey::read(Path::new("/dev/zero")).unwrap_err();
        assert!(matches!(error, KernelError::BadBtf { .. }), "{error}");
    }
}
