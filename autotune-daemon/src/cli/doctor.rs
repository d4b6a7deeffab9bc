//! `autotune doctor`: what this kernel offers, what is missing, and how to get it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::{
    exit::{Failure, Status},
    kernel::{
        preflight::{Facts, Preflight, Refusal, Refused},
        running::BTF_PATH,
    },
};

/// Options of `autotune doctor`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit status: 0 when `autotune daemon` can run here; 3 this kernel is not supported; 4 not \
                  permitted."
)]
pub struct DoctorArgs {
    /// Kernel type information (BTF) to look into.
    #[arg(long, value_name = "FILE", default_value = BTF_PATH)]
    pub btf: PathBuf,
    /// How to print what was found.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// Looks at the kernel and prints the checks.
///
/// # Errors
/// When the daemon could not run here, or stdout cannot be written.
pub fn run(args: &DoctorArgs) -> Result<Status, Failure> {
    let preflight = Preflight::new(&Facts::gather(&args.btf));
    let report = match args.format {
        Format::Text => preflight.to_string(),
        Format::Json => serde_json::to_string_pretty(&preflight)? + "\n",
    };
    super::print(report.as_bytes())?;
    match preflight.refused() {
        None => Ok(Status::Ok),
        // The report tells what else is missing.
        Some(obstacle) => Err(refused(Refused { more: false, ..obstacle })),
    }
}

/// The exit status of a command that was refused before it began.
pub(super) fn refused(refused: Refused) -> Failure {
    let status = match refused.refusal {
        Refusal::Unsupported => Status::Unsupported,
        Refusal::NotPermitted => Status::NotPermitted,
    };
    Failure::new(status, refused)
}
