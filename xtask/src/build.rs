//! `cargo xtask build`: everything in release mode.

use std::path::PathBuf;

use crate::{
    command, setup,
    workspace::{Metadata, cargo},
};

/// Builds everything, and returns the path of the one binary.
pub(crate) fn run() -> anyhow::Result<PathBuf> {
    setup::run()?;
    command::run(cargo().args(["build", "--release"]))?;
    let binary = Metadata::read()?.target_directory.join("release").join("autotune");
    println!("built {}", binary.display());
    Ok(binary)
}
