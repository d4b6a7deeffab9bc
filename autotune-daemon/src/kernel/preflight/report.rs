//! The checks as text and as JSON.

use std::fmt;

use autotune_common::Generation;
use serde::Serialize;

use super::{Check, Preflight, Refusal};

/// For people: a line a check with its status first, what to do below it, and the conclusion last.
impl fmt::Display for Preflight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
        for Check { id, status, finding, remedy } in &self.checks {
            writeln!(f, "{:<7}  {id:<width$}  {finding}", status.as_str())?;
            if let Some(remedy) = remedy {
                writeln!(f, "{:<7}  {:<width$}  -> {remedy}", "", "")?;
            }
        }
        writeln!(f)?;
        match self.refused() {
            None => writeln!(f, "This kernel can be observed."),
            Some(refused) => match refused.refusal {
                Refusal::Unsupported => {
                    writeln!(f, "This kernel cannot be observed: {}.", refused.finding)
                }
                Refusal::NotPermitted => {
                    writeln!(f, "This process cannot observe this kernel: {}.", refused.finding)
                }
            },
        }
    }
}

/// One JSON object. Its members:
///
/// | member | what |
/// |---|---|
/// | `version` | of this schema; grows when a member changes its meaning or goes |
/// | `type` | `doctor` |
/// | `kernel_release` | as `uname -r` |
/// | `generation` | the growth formula, or null if it cannot be told |
/// | `generation_evidence` | how it was told, or null without BTF |
/// | `checks` | each with `id`, `status` (`ok`, `info`, `warn`, `fail`, `unknown`), `finding`, and `remedy` or null |
/// | `can_observe` | whether `autotune daemon` can run here |
#[derive(Serialize)]
struct Record<'a> {
    version: u32,
    r#type: &'static str,
    kernel_release: &'a str,
    generation: Option<&'static str>,
    generation_evidence: Option<&'a str>,
    checks: Vec<CheckRecord<'a>>,
    can_observe: bool,
}

#[derive(Serialize)]
struct CheckRecord<'a> {
    id: &'static str,
    status: &'static str,
    finding: &'a str,
    remedy: Option<&'a str>,
}

impl Serialize for Preflight {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let checks = self.checks.iter().map(|check| CheckRecord {
            id: check.id,
            status: check.status.as_str(),
            finding: &check.finding,
            remedy: check.remedy.as_deref(),
        });
        Record {
            version: 1,
            r#type: "doctor",
            kernel_release: &self.release,
            generation: self.generation.map(Generation::as_str),
            generation_evidence: self.generation_evidence.as_deref(),
            checks: checks.collect(),
            can_observe: self.refused().is_none(),
        }
        .serialize(serializer)
    }
}
