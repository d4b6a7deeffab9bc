//! Tables: a row for each growth, and what came of each flow.

use std::{collections::BTreeMap, fmt::Write as _, net::SocketAddr};

use super::{Flow, Growth, Totals};

/// Above the rows of [`Report::add`].
pub(super) const ROW_HEADER: &str = "  seconds  flow             rtt us     copied     rcvbuf  ->  \
     expected   observed  outcome  verdict";

/// What has been seen of the flows, and of other sockets of this host.
#[derive(Debug)]
pub(super) struct Report {
    flows: Vec<Tally>,
    others: Tally,
    /// Growths of other sockets that the daemon's end kept from being checked.
    others_stopped: u64,
    first_ns: Option<u64>,
}

#[derive(Debug, Default)]
struct Tally {
    name: &'static str,
    addresses: Option<(SocketAddr, SocketAddr)>,
    growths: u64,
    outcomes: BTreeMap<String, u64>,
    verdicts: BTreeMap<String, u64>,
}

impl Report {
    pub(super) fn new(flows: &[Flow]) -> Self {
        let tally = |flow: &Flow| Tally {
            name: flow.spec.name,
            addresses: Some(flow.addresses),
            ..Tally::default()
        };
        Self {
            flows: flows.iter().map(tally).collect(),
            others: Tally::default(),
            others_stopped: 0,
            first_ns: None,
        }
    }

    /// Counts a growth and returns its row.
    pub(super) fn add(&mut self, growth: &Growth) -> String {
        let first_ns = *self.first_ns.get_or_insert(growth.time_ns);
        let addresses = Some((growth.local, growth.remote));
        let own = self.flows.iter_mut().find(|flow| flow.addresses == addresses);
        let name = match own {
            Some(flow) => {
                flow.count(growth);
                flow.name.to_owned()
            }
            None => {
                self.others.count(growth);
                self.others_stopped += u64::from(growth.cause.as_deref() == Some("stopped"));
                format!("other: {}[{}]", growth.comm, growth.pid)
            }
        };
        row(growth, &name, growth.time_ns.saturating_sub(first_ns))
    }

    /// Growths so far, of the flows and of others.
    pub(super) fn growths(&self) -> u64 {
        self.own_growths() + self.others.growths
    }

    /// Growths of the flows.
    pub(super) fn own_growths(&self) -> u64 {
        self.flows.iter().map(|flow| flow.growths).sum()
    }

    /// Verdicts of the flows, with their counts.
    pub(super) fn own_verdicts(&self) -> String {
        let mut sum = BTreeMap::new();
        for (verdict, count) in self.flows.iter().flat_map(|flow| &flow.verdicts) {
            *sum.entry(verdict.clone()).or_default() += count;
        }
        counts(&sum)
    }

    /// One row a flow.
    pub(super) fn summary(&self, totals: &[Totals]) -> String {
        let mut table = format!(
            "{:<15} {:>12} {:>7} {:>8} {:>12} {:>12}  {:<32} verdicts",
            "flow", "bytes", "Gbit/s", "growths", "first rcvbuf", "final rcvbuf", "outcomes"
        );
        for (flow, totals) in self.flows.iter().zip(totals) {
            let _ = write!(
                table,
                "\n{:<15} {:>12} {:>7.2} {:>8} {:>12} {:>12}  {:<32} {}",
                flow.name,
                totals.bytes,
                totals.gbit_per_second(),
                flow.growths,
                totals.first_rcvbuf,
                totals.final_rcvbuf,
                counts(&flow.outcomes),
                counts(&flow.verdicts),
            );
        }
        table.push_str(
            "\nfirst and final rcvbuf are what getsockopt(SO_RCVBUF) told the reader itself",
        );
        if self.others.growths > 0 {
            let _ = write!(
                table,
                "\n{} more growths by other sockets of this host: {}",
                self.others.growths,
                counts(&self.others.verdicts)
            );
        }
        table
    }

    /// What keeps the demo from being a success, a clause each.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for flow in &self.flows {
            if flow.growths == 0 {
                problems.push(format!("the flow {} saw no growth", flow.name));
            }
            let unverified = flow.verdict("unverified");
            if unverified > 0 {
                problems.push(format!("{unverified} growths of {} went unchecked", flow.name));
            }
            let divergent = flow.verdict("divergent");
            if divergent > 0 {
                problems.push(format!("{divergent} growths of {} are divergent", flow.name));
            }
        }
        // Another socket may grow in the moment in which the daemon stops; nothing else is excused.
        let unverified = self.others.verdict("unverified") - self.others_stopped;
        if unverified > 0 {
            problems.push(format!("{unverified} growths of other sockets went unchecked"));
        }
        let divergent = self.others.verdict("divergent");
        if divergent > 0 {
            problems.push(format!("{divergent} growths of other sockets are divergent"));
        }
        problems
    }
}

impl Tally {
    fn count(&mut self, growth: &Growth) {
        self.growths += 1;
        let outcome = growth.outcome.as_deref().unwrap_or("unknown");
        *self.outcomes.entry(outcome.to_owned()).or_default() += 1;
        *self.verdicts.entry(growth.verdict.clone()).or_default() += 1;
    }

    fn verdict(&self, verdict: &str) -> u64 {
        self.verdicts.get(verdict).copied().unwrap_or(0)
    }
}

fn row(growth: &Growth, name: &str, after_ns: u64) -> String {
    let number =
        |value: Option<i32>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let mut row = format!(
        "{:>5}.{:03}  {:<15} {:>7} {:>10} {:>10}  -> {:>9} {:>10}  {:<8} {}",
        after_ns / 1_000_000_000,
        after_ns / 1_000_000 % 1000,
        name,
        growth.input.rtt_us,
        growth.input.copied,
        growth.input.rcvbuf,
        number(growth.expected.map(|buffer| buffer.rcvbuf)),
        number(growth.observed.map(|buffer| buffer.rcvbuf)),
        growth.outcome.as_deref().unwrap_or("unknown"),
        growth.verdict,
    );
    if let Some(cause) = &growth.cause {
        let _ = write!(row, " {cause}");
    }
    if let Some(evidence) = &growth.evidence {
        let _ = write!(row, " ({evidence})");
    }
    row
}

/// `12 grow, 3 enough`, the most frequent first.
fn counts(counts: &BTreeMap<String, u64>) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by(|a, b| b.1.cmp(a.1));
    let counts: Vec<_> =
        counts.into_iter().map(|(name, count)| format!("{count} {name}")).collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::{super::growth::tests::LINE, *};

    fn report() -> Report {
        let growth = Growth::parse(LINE).unwrap();
        let flow = Tally {
            name: "v4 4 KiB",
            addresses: Some((growth.local, growth.remote)),
            ..Tally::default()
        };
        Report {
            flows: vec![flow],
            others: Tally::default(),
            others_stopped: 0,
            first_ns: Some(1_000_000_000),
        }
    }

    #[test]
    fn rows_line_up_with_their_header() {
        let row = report().add(&Growth::parse(LINE).unwrap());
        assert_eq!(
            row,
            "    1.500  v4 4 KiB             50      70000     131072  ->    262144     262144  \
             grow     exact"
        );
        for (title, value) in [("rcvbuf", "131072"), ("expected", "262144"), ("copied", "70000")] {
            let end = |text: &str, word: &str| text.find(word).unwrap() + word.len();
            assert_eq!(end(ROW_HEADER, title), end(&row, value), "{title}");
        }
        for (title, value) in [("outcome", "grow"), ("verdict", "exact"), ("flow", "v4 4 KiB")] {
            assert_eq!(ROW_HEADER.find(title), row.find(value), "{title}");
        }
    }

    #[test]
    fn a_flow_without_growths_is_a_problem() {
        assert_eq!(report().problems(), ["the flow v4 4 KiB saw no growth"]);
    }

    #[test]
    fn exact_growths_are_no_problem_and_divergent_ones_are() {
        let mut report = report();
        report.add(&Growth::parse(LINE).unwrap());
        assert!(report.problems().is_empty());
        report.add(&Growth::parse(&LINE.replace("exact", "divergent")).unwrap());
        assert_eq!(report.problems(), ["1 growths of v4 4 KiB are divergent"]);
        assert_eq!(report.own_verdicts(), "1 divergent, 1 exact");
    }

    #[test]
    fn the_end_of_the_daemon_excuses_other_sockets_only() {
        let stopped =
            LINE.replace("exact", "unverified").replace("\"cause\":null", "\"cause\":\"stopped\"");
        let other = stopped.replace("127.0.0.1:40000", "127.0.0.1:40001");
        let mut report = report();
        report.add(&Growth::parse(LINE).unwrap());
        let row = report.add(&Growth::parse(&other).unwrap());
        assert!(row.contains("other: reader[7]"), "{row}");
        assert!(report.problems().is_empty());
        assert_eq!((report.own_growths(), report.growths()), (1, 2));
        report.add(&Growth::parse(&stopped).unwrap());
        assert_eq!(report.problems(), ["1 growths of v4 4 KiB went unchecked"]);
    }
}
