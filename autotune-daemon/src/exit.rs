//! How a command ends: its exit status and the one line that says why.

use std::fmt;

/// Exit status of the binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// All went well.
    Ok = 0,
    /// A divergence was found, or something failed at run time.
    Failed = 1,
    /// The command line, the configuration or the input is wrong.
    Usage = 2,
    /// This kernel is not supported.
    Unsupported = 3,
    /// This process is not permitted to observe.
    NotPermitted = 4,
}

/// Why a command failed, and with which status.
#[derive(Debug)]
pub struct Failure {
    /// The exit status.
    pub status: Status,
    /// What failed, why, and what to do.
    pub error: anyhow::Error,
}

impl Failure {
    /// A failure with this status.
    pub fn new(status: Status, error: impl Into<anyhow::Error>) -> Self {
        Self { status, error: error.into() }
    }
}

impl fmt::Display for Failure {
    /// One line, with everything that led to the failure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

/// What has no status of its own failed at run time.
impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(Status::Failed, error)
    }
}
