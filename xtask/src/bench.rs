//! `cargo xtask bench`: what the observer costs on this host, in one run.

use anyhow::Result;

use crate::{command, setup, workspace::cargo};

pub(crate) fn run() -> Result<()> {
    setup::run()?;
    let bench = ["bench", "--quiet", "--package", "autotune-daemon", "--bench", "cost"];
    command::run(cargo().args(bench))
}
