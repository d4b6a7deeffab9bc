//! A growth as the daemon prints it in JSON.

use std::net::SocketAddr;

use anyhow::ensure;
use serde::Deserialize;

/// The fields of a growth that the demo shows.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Growth {
    version: u32,
    r#type: String,
    pub(super) time_ns: u64,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) pid: u32,
    pub(super) comm: String,
    pub(super) input: Input,
    pub(super) outcome: Option<String>,
    pub(super) expected: Option<Buffer>,
    pub(super) observed: Option<Buffer>,
    pub(super) verdict: String,
    pub(super) cause: Option<String>,
    pub(super) evidence: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Input {
    pub(super) rtt_us: u32,
    pub(super) copied: u32,
    pub(super) rcvbuf: i32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Buffer {
    pub(super) rcvbuf: i32,
}

impl Growth {
    pub(super) fn parse(line: &str) -> anyhow::Result<Self> {
        let growth: Self = serde_json::from_str(line)?;
        ensure!(
            growth.version == 1 && growth.r#type == "growth",
            "{} of version {}, where this demo knows version 1 of growth",
            growth.r#type,
            growth.version
        );
        Ok(growth)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const LINE: &str = r#"{"version":1,"type":"growth","time_ns":2500000000,
        "local":"127.0.0.1:40000","remote":"127.0.0.1:5000","pid":7,"comm":"reader",
        "input":{"rtt_us":50,"copied":70000,"rcvbuf":131072},"outcome":"grow",
        "expected":{"rcvbuf":262144,"window_clamp":131072},
        "observed":{"rcvbuf":262144,"window_clamp":131072},
        "divergence":0,"verdict":"exact","cause":null,"evidence":null}"#;

    #[test]
    fn a_growth_is_read_whatever_fields_are_added() {
        let growth = Growth::parse(LINE).unwrap();
        assert_eq!(growth.input.rcvbuf, 131_072);
        assert_eq!(growth.expected.map(|buffer| buffer.rcvbuf), Some(262_144));
        assert_eq!(growth.verdict, "exact");
    }

    #[test]
    fn another_version_is_refused() {
        assert!(Growth::parse(&LINE.replace("\"version\":1", "\"version\":2")).is_err());
    }
}
