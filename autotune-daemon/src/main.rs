//! The one binary, `autotune`.

use std::{io::Write as _, process::ExitCode};

use autotune::{
    cli::{self, Cli},
    exit::Status,
};
use clap::Parser as _;

fn main() -> ExitCode {
    // clap exits with status 2 on a wrong command line, which is our own for it.
    let cli = Cli::parse();
    match cli::run(&cli) {
        Ok(status) => ExitCode::from(status as u8),
        Err(failure) => {
            // Nothing is left to do if stderr is closed.
            let _ = writeln!(std::io::stderr(), "autotune: {failure}");
            ExitCode::from(match failure.status {
                Status::Ok => Status::Failed as u8,
                status => status as u8,
            })
        }
    }
}
