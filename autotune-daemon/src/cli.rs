//! The command line: one file a command, each a thin caller of the library.

pub mod daemon;
pub mod doctor;
mod log;

use std::{io::Write as _, path::PathBuf};

use autotune_common::Generation;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::{
    exit::{Failure, Status},
    kernel::running::BTF_PATH,
};

/// Watches the Linux kernel tune TCP receive buffers and checks every growth against the kernel's own
/// formula.
#[derive(Debug, Parser)]
#[command(
    name = "autotune",
    version,
    propagate_version = true,
    after_help = "Exit status: 0 fine; 1 a failure at run time; 2 usage, configuration or input; 3 this \
                  kernel is not supported; 4 not permitted."
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Args, Debug)]
pub struct GlobalArgs {
    /// Say more: with a refused program, what the kernel's verifier printed.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Least severe messages to log.
    #[arg(long = "log.level", global = true, value_enum, default_value_t, value_name = "LEVEL")]
    pub log_level: LogLevel,
    /// How to write the log, on stderr.
    #[arg(long = "log.format", global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Observe, and serve metrics.
    Daemon(daemon::DaemonArgs),
    /// Tell what this kernel offers, which formula it runs, and what is missing.
    Doctor(doctor::DoctorArgs),
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, in roff.
    Man,
}

/// What tells the kernel's layout and formula.
#[derive(Args, Debug)]
pub struct KernelArgs {
    /// Kernel type information (BTF) to resolve the layout from.
    #[arg(long, value_name = "FILE", default_value = BTF_PATH)]
    pub btf: PathBuf,
    /// Formula to compare with; `auto` is the one that the running kernel has by its BTF.
    #[arg(long, value_name = "GENERATION", default_value = "auto", value_parser = generation)]
    pub generation: GenerationArg,
}

/// A generation, or the running kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationArg {
    /// The running kernel's.
    Auto,
    /// This one, whatever the kernel runs.
    Fixed(Generation),
}

/// Severity of a log message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// What keeps the command from its job.
    Error,
    /// What someone should look at.
    Warn,
    /// What the command does.
    #[default]
    Info,
    /// How it does it.
    Debug,
}

/// How log messages are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Runs the command.
///
/// # Errors
/// Carries the exit status and what to print.
pub fn run(cli: &Cli) -> Result<Status, Failure> {
    log::init(&cli.global);
    match &cli.command {
        Command::Daemon(args) => daemon::run(args, cli.global.verbose),
        Command::Doctor(args) => doctor::run(args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "autotune", &mut script);
            print(&script)
        }
        Command::Man => {
            // One page: the command, and after it each of its commands with their options.
            let mut page = Vec::new();
            let mut command = Cli::command();
            command.build();
            clap_mangen::Man::new(command.clone()).render(&mut page)?;
            for command in command.get_subcommands().filter(|command| command.get_name() != "help")
            {
                let section = clap_mangen::Man::new(command.clone());
                page.extend(format!(".SH \"{}\"\n", command.get_name().to_uppercase()).bytes());
                section.render_description_section(&mut page)?;
                section.render_synopsis_section(&mut page)?;
                section.render_options_section(&mut page)?;
            }
            print(&page)
        }
    }
}

/// Writes to stdout; that its reader went away is no failure.
fn print(bytes: &[u8]) -> Result<Status, Failure> {
    match std::io::stdout().write_all(bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(Status::Ok),
    }
}

fn generation(name: &str) -> Result<GenerationArg, String> {
    if name == "auto" {
        return Ok(GenerationArg::Auto);
    }
    match Generation::from_name(name) {
        Some(generation) => Ok(GenerationArg::Fixed(generation)),
        None => {
            let known: Vec<_> = Generation::ALL.into_iter().map(Generation::as_str).collect();
            Err(format!("not one of auto, {}", known.join(", ")))
        }
    }
}

impl GenerationArg {
    /// The generation to compare with, on a kernel where `detected` was told.
    #[must_use]
    pub const fn resolve(self, detected: Option<Generation>) -> Option<Generation> {
        match self {
            Self::Auto => detected,
            Self::Fixed(generation) => Some(generation),
        }
    }
}
