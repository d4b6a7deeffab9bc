//! Bulk flows on this host, and the books of the probes.

use std::time::Instant;

use autotune::{observe::Verdict, probe};
use autotune_common::ProbeCounter;

use crate::{
    harness::{self, watch},
    traffic::{Flow, run_at_once},
};

#[test]
fn every_growth_of_eight_gigabyte_flows_at_once_is_accounted_for() {
    let Some(_turn) = harness::turn() else { return };
    let _counting = probe::count_runs().expect("run counting");
    let start = Instant::now();
    let (cookies, watched) = watch(|_| {
        let flow = |v6, read| Flow { v6, read, bytes: 1 << 30, ..Flow::default() };
        run_at_once(&[
            flow(false, 4 << 10),
            flow(true, 4 << 10),
            flow(false, 64 << 10),
            flow(true, 64 << 10),
            flow(false, 1 << 20),
            flow(true, 1 << 20),
            flow(false, 4 << 10),
            flow(true, 64 << 10),
        ])
    });
    println!("8 GiB in {:?}", start.elapsed());

    let growths = watched.all_accounted_for(&cookies);
    for cookie in &cookies {
        assert!(growths.iter().any(|growth| growth.grow.cookie == *cookie), "each flow grows");
    }
    let exact = growths.iter().filter(|growth| growth.judgement.verdict == Verdict::Exact).count();
    assert!(exact * 10 >= growths.len() * 9, "{exact} of {} exact", growths.len());
    assert_eq!(watched.lost(), 0, "samples lost with the default ring");
    assert_eq!(watched.counters.get(ProbeCounter::Shed), 0, "samples shed with the default ring");
    assert_eq!(watched.stats.samples_missed, 0);
    assert_eq!(watched.stats.samples_out_of_order, 0);
    watched.assert_books_balance();
}
