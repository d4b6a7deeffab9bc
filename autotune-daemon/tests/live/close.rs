//! A socket's last sample settles what was open, and ends its flow.

use std::time::Duration;

use autotune::observe::{Finding, Verdict};
use autotune_common::SampleKind;

use crate::{
    harness::{self, Setup, Watch, shown, tally},
    netns::Namespace,
    traffic::{Flow, Pair, send},
};

#[test]
fn a_growth_right_before_the_end_is_settled_by_the_close_sample() {
    const BYTES: u64 = 1 << 20;
    let Some(_turn) = harness::turn() else { return };
    let watch = Watch::start(Setup::default());
    let mut cookies = Vec::new();
    for _ in 0..20 {
        let Pair { mut reader, sender } = Flow { rcvbuf: None, ..Flow::default() }.connect();
        cookies.push(reader.cookie().expect("a cookie"));
        let before = reader.recv_buffer_size().expect("SO_RCVBUF");
        let sending = std::thread::spawn(move || send_until_closed(sender, BYTES));
        let mut buffer = vec![0; 64 << 10];
        let mut left = BYTES;
        while left > 0 && reader.recv_buffer_size().expect("SO_RCVBUF") == before {
            let length = std::io::Read::read(&mut reader, &mut buffer).expect("data");
            left -= length as u64;
        }
        drop(reader);
        sending.join().expect("the sender ends");
    }
    watch.until_closed(&cookies);
    let watched = watch.finish();
    let growths = watched.all_accounted_for(&cookies);
    let closes: Vec<_> = watched
        .samples(&cookies)
        .windows(2)
        .filter(|pair| {
            pair[0].cookie == pair[1].cookie
                && pair[0].kind() == SampleKind::Grow
                && pair[1].kind() == SampleKind::Close
        })
        .map(|pair| pair[0].cookie)
        .collect();
    println!("{} of {} settled by the close sample", closes.len(), growths.len());
    assert!(!closes.is_empty(), "a socket closed right after a growth");
    for growth in growths {
        assert_eq!(growth.judgement.verdict, Verdict::Exact, "{}", shown(growth));
    }
}

#[test]
fn two_thousand_short_connections_leave_no_flow_behind() {
    const CONNECTIONS: usize = 2000;
    let Some(_turn) = harness::turn() else { return };
    let namespace = Namespace::new();
    let watch = Watch::start(Setup::default());
    namespace.run(|| {
        for index in 0..CONNECTIONS {
            let Pair { mut reader, sender } =
                Flow { v6: index % 2 == 1, ..Flow::default() }.connect();
            send(sender, 1000);
            let mut received = Vec::new();
            std::io::Read::read_to_end(&mut reader, &mut received).expect("data");
            assert_eq!(received.len(), 1000);
        }
    });
    let ours = |seen: &harness::Seen| {
        let flows = seen.observer.flows().iter();
        flows.filter(|flow| flow.sample.netns_inum == namespace.inum).count()
    };
    watch.until("the flows to end", |seen| {
        let closed = seen.findings.iter().filter(|finding| {
            matches!(finding, Finding::Closed(flow) if flow.sample.netns_inum == namespace.inum)
        });
        closed.count() >= CONNECTIONS && ours(seen) == 0
    });
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(ours(&watch.seen()), 0);
    let watched = watch.finish();
    assert_eq!(watched.lost(), 0);
    let growths: Vec<_> = watched
        .findings
        .iter()
        .filter_map(|finding| match finding {
            Finding::Growth(growth) if growth.grow.netns_inum == namespace.inum => Some(&**growth),
            _ => None,
        })
        .collect();
    println!("{}", tally(&growths));
    assert!(growths.iter().all(|growth| growth.judgement.verdict == Verdict::Exact));
}

/// Sends that many bytes, or as many as the reader takes before it closes.
fn send_until_closed(mut socket: socket2::Socket, bytes: u64) {
    let buffer = vec![0x5a; usize::try_from(bytes).expect("fits")];
    // That the reader goes away with data unread resets the connection.
    let _ = std::io::Write::write_all(&mut socket, &buffer);
}
