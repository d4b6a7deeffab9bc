//! `cargo xtask test`: everything that must hold before a change lands.
//!
//! Its last line is `N passed, N failed, N skipped`, summed over every test that ran.

mod tally;

use std::{
    io::{Read as _, Write as _},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use ebpf_build::{Compiler, Toolchain};

use self::tally::Tally;
use crate::{
    command, setup,
    workspace::{self, Metadata, cargo},
};

/// The tests that load the probes into this kernel, one at a time.
const LIVE: &str = "live";

/// What is built for the host.
const HOST: [&str; 3] = ["--workspace", "--exclude", "autotune-ebpf"];

/// Runs everything, stops at the first step that fails, and says how it went.
pub(crate) fn run() -> ExitCode {
    let mut run = Run::default();
    let done = run.steps();
    println!();
    for (step, took) in &run.steps {
        println!("{:>8.1} s  {step}", took.as_secs_f64());
    }
    for skipped in run.skipped_steps.iter().chain(&run.tally.skipped_lines()) {
        println!("SKIPPED: {skipped}");
    }
    if let Err(error) = &done {
        println!("FAILED: {error:#}");
    }
    println!("{}", run.tally.counts());
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Debug, Default)]
struct Run {
    steps: Vec<(&'static str, Duration)>,
    skipped_steps: Vec<String>,
    tally: Tally,
}

impl Run {
    fn steps(&mut self) -> anyhow::Result<()> {
        self.step("setup", |_| setup::run_for_tests())?;
        self.step("format", |_| {
            command::run(cargo().args(["fmt", "--all", "--check"]))?;
            command::run(cargo().args(["fmt", "--check", "--manifest-path", "fuzz/Cargo.toml"]))
        })?;
        self.step("lints", |_| {
            let mut clippy = cargo();
            clippy.arg("clippy").args(HOST).args(["--all-targets", "--", "-D", "warnings"]);
            command::run(&mut clippy)
        })?;
        self.step("lints of the probes", Self::lint_probes)?;
        self.step("documentation", |_| {
            let mut doc = cargo();
            doc.env("RUSTDOCFLAGS", "-Dwarnings").arg("doc").args(HOST);
            command::run(doc.args(["--no-deps", "--document-private-items"]))
        })?;
        self.step("tests", Self::tests)?;
        self.step("live tests", Self::live_tests)?;
        self.step("licences, duplicates, sources", Self::deny)
    }

    fn step(
        &mut self,
        name: &'static str,
        step: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        println!("\n== {name}");
        let start = Instant::now();
        let done = step(self).context(name);
        let took = start.elapsed();
        println!("== {name}: {:.1} s", took.as_secs_f64());
        self.steps.push((name, took));
        done
    }

    /// The probes are not for the host, so that clippy must be of the compiler that builds them.
    fn lint_probes(&mut self) -> anyhow::Result<()> {
        let toolchain = Toolchain::find()?;
        let target_dir = Metadata::read()?.target_directory.join("ebpf-lints");
        let lint =
            |subcommand| toolchain.cargo(subcommand, workspace::root(), &target_dir, &["log"]);
        match &toolchain.compiler {
            Compiler::Packaged(_) if setup::has_packaged_clippy() => {
                // What `cargo clippy` does: the package's `cargo clippy` would ask for its cargo.
                let arguments = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";
                command::run(
                    lint("check")
                        .env("RUSTC_WORKSPACE_WRAPPER", setup::CLIPPY_DRIVER)
                        .env("CLIPPY_ARGS", arguments),
                )
            }
            Compiler::Nightly if has_nightly_clippy() => {
                command::run(lint("clippy").args(["--", "-D", "warnings"]))
            }
            Compiler::Packaged(_) | Compiler::Nightly => {
                self.skip("lints of the probes: no clippy for their compiler");
                Ok(())
            }
        }
    }

    /// Every test but the live ones. Captured output of tests that passed is shown too, so that a test
    /// which skips itself is seen.
    fn tests(&mut self) -> anyhow::Result<()> {
        let metadata = Metadata::read()?;
        let mut tests = cargo();
        tests.arg("test").args(HOST).args(["--no-fail-fast", "--lib", "--bins"]);
        for name in metadata.integration_tests().into_iter().filter(|&name| name != LIVE) {
            tests.args(["--test", name]);
        }
        let unit = self.count(tests.args(["--", "--show-output"]));
        let doc = self.count(cargo().arg("test").args(HOST).args(["--no-fail-fast", "--doc"]));
        unit.and(doc)
    }

    fn live_tests(&mut self) -> anyhow::Result<()> {
        if !Metadata::read()?.integration_tests().contains(LIVE) {
            self.skip("live tests: there are none in this tree");
            return Ok(());
        }
        let mut tests = cargo();
        tests.args(["test", "--no-fail-fast", "--package", "autotune-daemon", "--test", LIVE]);
        self.count(tests.args(["--", "--test-threads=1", "--nocapture"]))
    }

    /// Advisories take a database that is fetched from outside, so they are not checked here.
    fn deny(&mut self) -> anyhow::Result<()> {
        if !setup::has_cargo_deny() {
            self.skip(
                "licences, duplicates, sources: no cargo-deny, and it could not be installed",
            );
            return Ok(());
        }
        command::run(cargo().args([
            "deny",
            "check",
            "--hide-inclusion-graph",
            "licenses",
            "bans",
            "sources",
        ]))
    }

    /// Runs tests, shows what they print as it comes, and counts them.
    fn count(&mut self, tests: &mut Command) -> anyhow::Result<()> {
        let line = command::line(tests);
        println!("$ {line}");
        let (mut reader, writer) = std::io::pipe().context("cannot make a pipe")?;
        tests.stdout(writer.try_clone()?).stderr(writer).stdin(Stdio::null());
        let mut child = tests.spawn().context("cannot run cargo")?;
        // The pipe's end comes when the last writer is gone, and the command holds two.
        tests.stdout(Stdio::null()).stderr(Stdio::null());
        let mut output = Vec::new();
        let mut chunk = [0; 8192];
        loop {
            let length = reader.read(&mut chunk)?;
            let Some(new @ [_, ..]) = chunk.get(..length) else { break };
            let mut stdout = std::io::stdout();
            stdout.write_all(new)?;
            stdout.flush()?;
            output.extend_from_slice(new);
        }
        self.tally.add(&String::from_utf8_lossy(&output));
        let status = child.wait()?;
        if !status.success() {
            bail!("`{line}` failed: {status}");
        }
        Ok(())
    }

    fn skip(&mut self, what: &str) {
        println!("SKIPPED: {what}");
        self.skipped_steps.push(what.to_owned());
    }
}

fn has_nightly_clippy() -> bool {
    command::succeeds(Command::new("rustup").args([
        "run",
        "nightly",
        "cargo",
        "clippy",
        "--version",
    ]))
}
