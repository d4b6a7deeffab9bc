//! `cargo xtask`: what a person types. One file a verb: [`setup`], [`build`].

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    reason = "telling a person what happens is what this program is for"
)]

mod build;
mod command;
mod setup;
mod workspace;

use std::{io::Write as _, process::ExitCode};

use clap::{Parser, Subcommand};

/// Sets up, builds, shows and tests autotune.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Install what the build of the probes needs and this machine lacks.
    Setup {
        /// Install what the tests need as well.
        #[arg(long)]
        test: bool,
    },
    /// Build everything in release mode, after the setup if it is needed.
    Build,
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Setup { test: false } => setup::run(),
        Verb::Setup { test: true } => setup::run_for_tests(),
        Verb::Build => build::run().map(|_| ()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do if stderr is closed.
            let _ = writeln!(std::io::stderr(), "xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
