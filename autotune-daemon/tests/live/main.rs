//! Live tests: this kernel, real sockets, the probes that ship.
//!
//! Each test loads the probes, causes traffic, and says which verdicts must come of it. They need root:
//! without it each prints a line `SKIPPED: <test>: needs root (CAP_BPF, CAP_PERFMON)`. Other traffic on
//! the host does not disturb them: a test looks at its own sockets only, which it knows by their cookies
//! or their network namespace. One runs at a time, whatever `--test-threads` says.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may; what it prints is shown when it fails"
)]

mod causes;
mod close;
mod daemon;
mod flows;
mod harness;
mod inputs;
mod loss;
mod netns;
mod object;
mod reordering;
mod traffic;
mod wrong_generation;
