//! `cargo xtask demo`: the real daemon watches real TCP flows over loopback, and each growth that it
//! judged is shown as it comes.
//!
//! It succeeds only if every growth of these flows was checked and found as the formula says (or
//! explained), nothing was lost on the way, and the metrics count what was printed.

mod daemon;
mod flows;
mod growth;
mod report;
mod scrape;

use std::time::{Duration, Instant};

use anyhow::bail;

use self::{
    daemon::{Daemon, Event},
    flows::{Flow, FlowSpec, Totals},
    growth::Growth,
    report::Report,
    scrape::Scrape,
};
use crate::build;

/// For the daemon to take what the closing flows left in the ring buffer.
const SETTLE: Duration = Duration::from_secs(5);

/// Runs the demo with flows that send for so many seconds.
pub(crate) fn run(seconds: u64) -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!(
            "the demo loads eBPF programs and so takes root: run \
             `sudo -E env PATH=\"$PATH\" cargo xtask demo`"
        );
    }
    let binary = build::run()?;

    println!("\nstarting {} daemon", binary.display());
    let mut daemon = Daemon::start(&binary)?;
    let ipv6 = flows::has_ipv6();
    if !ipv6 {
        println!("this host has no IPv6 on its loopback: every flow runs over IPv4");
    }
    let specs = FlowSpec::all(ipv6);
    let flows = specs.into_iter().map(Flow::connect).collect::<anyhow::Result<Vec<_>>>()?;
    let mut report = Report::new(&flows);

    println!("\n{} flows at once over loopback for {seconds} s; bytes:\n", flows.len());
    println!("{}", report::ROW_HEADER);
    let running = flows::start(flows, Duration::from_secs(seconds))?;
    while !running.is_finished() {
        take_events(&daemon, Duration::from_millis(20), &mut report);
    }
    let totals = running.join()?;
    let scrape = settled_scrape(&daemon, totals.len(), &mut report)?;
    let printed = report.growths();
    let status = daemon.stop(|event| show(event, &mut report))?;

    println!("\n{}", report.summary(&totals));
    println!("\nGET /metrics, without what is 0 and the buckets:\n\n{}", scrape.selection());
    let mut problems = report.problems();
    problems.extend(scrape.problems(printed));
    if !status.success() {
        problems.push(format!("the daemon ended with {status} after SIGTERM"));
    }
    conclude(&problems, &report, printed, &totals)
}

/// Shows what comes until `patience` has passed without anything.
fn take_events(daemon: &Daemon, patience: Duration, report: &mut Report) {
    while let Some(event) = daemon.next_event(patience) {
        show(event, report);
    }
}

fn show(event: Event, report: &mut Report) {
    match event {
        Event::Growth(growth) => println!("{}", report.add(&growth)),
        Event::Log(line) => println!("autotune: {line}"),
    }
}

/// A scrape that counts exactly the growths that were printed until then. A growth of another socket
/// may come between the two, so that it takes more than one look.
fn settled_scrape(daemon: &Daemon, flows: usize, report: &mut Report) -> anyhow::Result<Scrape> {
    let deadline = Instant::now() + SETTLE;
    loop {
        let scrape = Scrape::get(daemon.address())?;
        take_events(daemon, Duration::from_millis(100), report);
        let closed = scrape.sum("samples_total", &[("kind", "close")]) >= flows as u64;
        if closed && scrape.growths() == report.growths() || Instant::now() > deadline {
            return Ok(scrape);
        }
    }
}

fn conclude(
    problems: &[String],
    report: &Report,
    printed: u64,
    totals: &[Totals],
) -> anyhow::Result<()> {
    if !problems.is_empty() {
        bail!("the demo failed: {}", problems.join("; "));
    }
    println!(
        "\n{} growths of {} flows, each recomputed from its inputs: {}. No sample was lost, \
         /metrics counted the {printed} growths printed by then, and the daemon ended with status 0.",
        report.own_growths(),
        totals.len(),
        report.own_verdicts(),
    );
    Ok(())
}
