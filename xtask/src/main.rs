//! `cargo xtask`: what a person types. One file a verb: [`setup`], [`build`], [`demo`],
//! [`mod@test`], [`mod@bench`].

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    reason = "telling a person what happens is what this program is for"
)]

mod bench;
mod build;
mod command;
mod demo;
mod setup;
mod test;
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
    /// Run the daemon on real TCP flows over loopback, and show each growth with its verdict.
    Demo {
        /// Seconds for which the flows send.
        #[arg(
            long,
            value_name = "N",
            default_value_t = 5,
            value_parser = clap::value_parser!(u64).range(1..=600)
        )]
        seconds: u64,
    },
    /// Check formatting, lints, documentation, licences, and run every test.
    Test,
    /// Measure what the observer costs on this host.
    Bench,
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Setup { test: false } => setup::run(),
        Verb::Setup { test: true } => setup::run_for_tests(),
        Verb::Build => build::run().map(|_| ()),
        Verb::Demo { seconds } => demo::run(seconds),
        // Says itself what failed: its last line is a count for whoever reads it by program.
        Verb::Test => return test::run(),
        Verb::Bench => bench::run(),
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
