//! What a scrape of the daemon returned.

use std::{
    fmt::Write as _,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, bail};

const PREFIX: &str = "tcp_autotune_";

/// The `tcp_autotune_` series of one scrape, the buckets of histograms left out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scrape(Vec<Series>);

#[derive(Clone, Debug, PartialEq)]
struct Series {
    /// Without [`PREFIX`].
    name: String,
    /// `key="value",...`, as it stands between the braces.
    labels: String,
    value: f64,
}

impl Scrape {
    /// Gets `/metrics`.
    pub(super) fn get(address: SocketAddr) -> anyhow::Result<Self> {
        let get = || {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            // 1.0: the answer comes in one piece and ends with the connection.
            write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            std::io::Result::Ok(answer)
        };
        let answer = get().with_context(|| format!("cannot get http://{address}/metrics"))?;
        let Some((head, body)) = answer.split_once("\r\n\r\n") else {
            bail!("http://{address}/metrics gave no HTTP answer");
        };
        let status = head.lines().next().unwrap_or_default();
        if !status.contains(" 200 ") {
            bail!("http://{address}/metrics answered {status}: {}", body.trim_end());
        }
        Ok(Self::parse(body))
    }

    fn parse(text: &str) -> Self {
        let series = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (series, value) = line.strip_prefix(PREFIX)?.rsplit_once(' ')?;
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let (name, labels) = (name.to_owned(), labels.strip_suffix('}')?.to_owned());
            let value = value.parse().ok()?;
            (!name.ends_with("_bucket")).then_some(Series { name, labels, value })
        });
        Self(series.collect())
    }

    /// Sum of the series of that name and those labels.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let matches = |series: &&Series| {
            series.name == name
                && labels.iter().all(|(key, value)| {
                    series.labels.split(',').any(|label| label == format!("{key}=\"{value}\""))
                })
        };
        // Counters of whole things, far below 2^53.
        self.0.iter().filter(matches).map(|series| series.value as u64).sum()
    }

    /// `growths_total` over all its labels.
    pub(super) fn growths(&self) -> u64 {
        self.sum("growths_total", &[])
    }

    /// The series that are not 0, and one line for each family that is 0 throughout.
    pub(super) fn selection(&self) -> String {
        let mut lines = String::new();
        let mut rest = self.0.as_slice();
        while let Some(first) = rest.first() {
            let length = rest.iter().take_while(|series| series.name == first.name).count();
            let (family, after) = rest.split_at(length);
            rest = after;
            if family.iter().all(|series| series.value == 0.0) {
                let _ = writeln!(lines, "{PREFIX}{} 0", first.name);
                continue;
            }
            for Series { name, labels, value } in family.iter().filter(|series| series.value != 0.0)
            {
                let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
                let _ = writeln!(lines, "{PREFIX}{name}{open}{labels}{close} {value}");
            }
        }
        let _ = write!(
            lines,
            "growths_total over all labels: {}, of them divergent {}, unverified {}",
            self.growths(),
            self.sum("growths_total", &[("verdict", "divergent")]),
            self.sum("growths_total", &[("verdict", "unverified")]),
        );
        lines
    }

    /// What keeps the demo from being a success, where `printed` growths were printed by then.
    pub(super) fn problems(&self, printed: u64) -> Vec<String> {
        let mut problems = Vec::new();
        let lost = self.sum("samples_lost_total", &[]);
        if lost > 0 {
            problems.push(format!("{lost} samples were lost"));
        }
        let growths = self.growths();
        if growths != printed {
            problems
                .push(format!("/metrics counts {growths} growths where {printed} were printed"));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# HELP tcp_autotune_growths_total Growths.
# TYPE tcp_autotune_growths_total counter
tcp_autotune_growths_total{cause=\"none\",outcome=\"grow\",verdict=\"divergent\"} 0
tcp_autotune_growths_total{cause=\"none\",outcome=\"grow\",verdict=\"exact\"} 12
tcp_autotune_growths_total{cause=\"ooo_growth\",outcome=\"grow\",verdict=\"explained\"} 3
tcp_autotune_rtt_seconds_bucket{at=\"close\",le=\"0.001\"} 7
tcp_autotune_rtt_seconds_sum{at=\"close\"} 0.25
tcp_autotune_samples_lost_total{kind=\"grow\"} 0
tcp_autotune_samples_lost_total{kind=\"close\"} 0
process_threads 3
";

    #[test]
    fn series_are_summed_by_label() {
        let scrape = Scrape::parse(TEXT);
        assert_eq!(scrape.growths(), 15);
        assert_eq!(scrape.sum("growths_total", &[("verdict", "exact")]), 12);
        assert_eq!(scrape.sum("growths_total", &[("outcome", "grow"), ("cause", "none")]), 12);
        assert_eq!(scrape.sum("no_such_total", &[]), 0);
    }

    #[test]
    fn the_selection_keeps_what_tells_something() {
        assert_eq!(
            Scrape::parse(TEXT).selection(),
            "\
tcp_autotune_growths_total{cause=\"none\",outcome=\"grow\",verdict=\"exact\"} 12
tcp_autotune_growths_total{cause=\"ooo_growth\",outcome=\"grow\",verdict=\"explained\"} 3
tcp_autotune_rtt_seconds_sum{at=\"close\"} 0.25
tcp_autotune_samples_lost_total 0
growths_total over all labels: 15, of them divergent 0, unverified 0"
        );
    }

    #[test]
    fn losses_and_another_count_are_problems() {
        assert!(Scrape::parse(TEXT).problems(15).is_empty());
        let lossy = TEXT.replace("{kind=\"grow\"} 0", "{kind=\"grow\"} 2");
        assert_eq!(
            Scrape::parse(&lossy).problems(14),
            ["2 samples were lost", "/metrics counts 15 growths where 14 were printed"]
        );
    }
}
