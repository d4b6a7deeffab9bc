//! Whether the running kernel and this process can observe, and what bears on it.
//!
//! ```text
//! facts::Facts::gather (all the I/O) -> Preflight::new -> Check ...  -> report: text or JSON
//!                                                      -> Refused    -> the daemon's one line
//! ```
//!
//! Each check is a pure function of [`Facts`].

mod facts;
mod kernel;
mod parse;
mod permission;
mod report;
mod sysctls;
#[cfg(test)]
mod tests;

use std::{fmt, path::Path};

use autotune_common::Generation;

pub use self::facts::{Facts, Text};
use super::running::RunningKernel;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name, in `snake_case`: stable.
    pub id: &'static str,
    /// How it ended.
    pub status: Status,
    /// What was found, as one sentence without its full stop.
    pub finding: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Info,
    /// Observing works, but likely not as wished.
    Warn,
    /// Observing cannot work.
    Fail(Refusal),
    /// It could not be told.
    Unknown,
}

/// What kind of obstacle a failed check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This kernel lacks something.
    Unsupported,
    /// This process may not.
    NotPermitted,
}

impl Status {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Fail(_) => "fail",
            Self::Unknown => "unknown",
        }
    }
}

impl Check {
    fn new(id: &'static str, status: Status, finding: impl Into<String>) -> Self {
        Self { id, status, finding: finding.into(), remedy: None }
    }

    fn ok(id: &'static str, finding: impl Into<String>) -> Self {
        Self::new(id, Status::Ok, finding)
    }

    fn info(id: &'static str, finding: impl Into<String>) -> Self {
        Self::new(id, Status::Info, finding)
    }

    fn warn(id: &'static str, finding: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(id, Status::Warn, finding).remedy(remedy)
    }

    fn unknown(id: &'static str, finding: impl Into<String>) -> Self {
        Self::new(id, Status::Unknown, finding)
    }

    fn fail(
        id: &'static str,
        refusal: Refusal,
        finding: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(id, Status::Fail(refusal), finding).remedy(remedy)
    }

    fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

/// All checks of one kernel and process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preflight {
    /// `uname -r`.
    pub release: String,
    /// The growth formula, unless it cannot be told.
    pub generation: Option<Generation>,
    /// How the generation was told.
    pub generation_evidence: Option<String>,
    /// The checks, those of the kernel first.
    pub checks: Vec<Check>,
}

/// Why observing cannot work, as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What kind of obstacle it is.
    pub refusal: Refusal,
    /// The obstacle.
    pub finding: String,
    /// What to do about it.
    pub remedy: Option<String>,
    /// There are other obstacles.
    pub more: bool,
}

impl Preflight {
    /// Checks the facts.
    #[must_use]
    pub fn new(facts: &Facts) -> Self {
        let detected = facts.kernel.as_ref().ok().map(|kernel| &kernel.detected);
        let mut checks = kernel::checks(facts);
        checks.extend(permission::checks(facts));
        checks.extend(sysctls::checks(facts));
        Self {
            release: facts.release.clone(),
            generation: detected.and_then(|detected| detected.generation),
            generation_evidence: detected.map(|detected| detected.evidence.clone()),
            checks,
        }
    }

    /// Why observing cannot work. What the kernel lacks counts before what the process may not do, which
    /// would not help.
    #[must_use]
    pub fn refused(&self) -> Option<Refused> {
        let failed = self.checks.iter().filter_map(|check| match check.status {
            Status::Fail(refusal) => Some((refusal, check)),
            _ => None,
        });
        let failed: Vec<_> = failed.collect();
        let unsupported = |(refusal, _): &&(Refusal, &Check)| *refusal == Refusal::Unsupported;
        let &(refusal, check) = failed.iter().find(unsupported).or_else(|| failed.first())?;
        let Check { finding, remedy, .. } = check.clone();
        Some(Refused { refusal, finding, remedy, more: failed.len() > 1 })
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = match self.refusal {
            Refusal::Unsupported => "not supported",
            Refusal::NotPermitted => "not permitted",
        };
        write!(f, "{class}: {}", self.finding)?;
        if let Some(remedy) = &self.remedy {
            write!(f, "; {remedy}")?;
        }
        if self.more {
            f.write_str(" (`autotune doctor` tells what else is missing)")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refused {}

/// The running kernel as the BTF at `path` describes it, if it and this process can observe.
///
/// # Errors
/// Says what is missing, in one line.
pub fn pass(btf: &Path) -> Result<RunningKernel, Refused> {
    let facts = Facts::gather(btf);
    if let Some(refused) = Preflight::new(&facts).refused() {
        return Err(refused);
    }
    let Facts { kernel, release, .. } = facts;
    kernel.and_then(|survey| survey.into_kernel(release)).map_err(|error| Refused {
        refusal: Refusal::Unsupported,
        finding: error.finding(),
        remedy: Some(error.remedy()),
        more: false,
    })
}
