//! What the sysctls that bear on autotuning mean together.
//!
//! They are those of this process's network namespace. Each sample carries those of its socket's own.

use std::io::ErrorKind;

use autotune_common::Generation;

use super::{
    Check, Facts, parse,
    permission::{Odd, odd_sysctl, sysctl, unreadable},
};

/// The three values of `net.ipv4.tcp_rmem`.
#[derive(Clone, Copy)]
struct Rmem {
    default: i64,
    max: i64,
}

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let rmem = facts.tcp_rmem.as_deref().ok().and_then(parse::numbers);
    let rmem = rmem.map(|[_, default, max]| Rmem { default, max });
    vec![
        network_namespace(facts),
        tcp_rmem(facts, rmem),
        window_scale(facts, rmem),
        moderate_rcvbuf(facts),
        low_rtt(facts),
        shrink_window(facts),
        tcp_mem(facts, rmem),
        rmem_max(facts, rmem),
    ]
}

fn network_namespace(facts: &Facts) -> Check {
    let id = "network_namespace";
    let name = facts.net_namespace.as_deref().unwrap_or("unknown");
    Check::info(
        id,
        format!(
            "{name}, of this process: the values below are its own; sockets in other namespaces have \
             others, which their samples carry"
        ),
    )
}

fn tcp_rmem(facts: &Facts, rmem: Option<Rmem>) -> Check {
    let id = "tcp_rmem";
    let name = "net.ipv4.tcp_rmem";
    let Some(Rmem { default, max }) = rmem else {
        return match facts.tcp_rmem {
            Err(reason) => unreadable(id, name, reason),
            Ok(_) => odd_sysctl(id, name, Err(Odd::NoNumber)),
        };
    };
    if max <= default {
        let relation = if max < default { "below" } else { "no more than" };
        return Check::warn(
            id,
            format!(
                "sockets start with {default} bytes and may grow to {max}, which is {relation} that: \
                 none can ever grow"
            ),
            format!("raise the third value of {name} above the second"),
        );
    }
    Check::ok(id, format!("sockets start with {default} bytes and may grow to {max}"))
}

fn window_scale(facts: &Facts, rmem: Option<Rmem>) -> Check {
    let id = "window_scale";
    if let Ok(0) = sysctl(&facts.tcp_window_scaling) {
        return Check::warn(
            id,
            "net.ipv4.tcp_window_scaling is 0: no window exceeds 65535 bytes, however large the \
             buffer grows",
            "sysctl net.ipv4.tcp_window_scaling=1",
        );
    }
    let Some(Rmem { max, .. }) = rmem else {
        return Check::unknown(id, "depends on net.ipv4.tcp_rmem");
    };
    let (space, of) = match sysctl(&facts.rmem_max) {
        Ok(rmem_max) => (max.max(rmem_max), format!("max(tcp_rmem[2] {max}, rmem_max {rmem_max})")),
        Err(_) => (max, format!("tcp_rmem[2] {max} (rmem_max, if larger, counts instead)")),
    };
    let scale = parse::window_scale(space);
    Check::info(
        id,
        format!(
            "{of} gives new connections a window scale of {scale}, and with it a window of at most \
             {} bytes",
            65_535_i64 << scale
        ),
    )
}

fn moderate_rcvbuf(facts: &Facts) -> Check {
    let id = "tcp_moderate_rcvbuf";
    let name = "net.ipv4.tcp_moderate_rcvbuf";
    match sysctl(&facts.tcp_moderate_rcvbuf) {
        Ok(0) => Check::warn(
            id,
            format!("{name} is 0: receive buffers are not tuned in this namespace"),
            format!("sysctl {name}=1"),
        ),
        Ok(_) => Check::ok(id, "receive buffers are tuned"),
        odd => odd_sysctl(id, name, odd),
    }
}

fn low_rtt(facts: &Facts) -> Check {
    let id = "tcp_rcvbuf_low_rtt";
    let name = "net.ipv4.tcp_rcvbuf_low_rtt";
    let generation = facts.kernel.as_ref().ok().and_then(|kernel| kernel.detected.generation);
    match sysctl(&facts.tcp_rcvbuf_low_rtt) {
        Ok(0) => Check::ok(id, "0: one formula at all round-trip times"),
        Ok(us) if us > 0 => Check::ok(
            id,
            format!("below a round trip of {us} us the formula goes by the round trip"),
        ),
        Err(Odd::Unreadable(ErrorKind::NotFound)) if generation != Some(Generation::V6_19) => {
            Check::info(
                id,
                format!("{name} does not exist; kernels before generation v6.19 lack it"),
            )
        }
        odd => odd_sysctl(id, name, odd),
    }
}

fn shrink_window(facts: &Facts) -> Check {
    let id = "tcp_shrink_window";
    let name = "net.ipv4.tcp_shrink_window";
    match sysctl(&facts.tcp_shrink_window) {
        Ok(0) => Check::ok(id, "0: a window once offered is not taken back"),
        Ok(1) => Check::info(
            id,
            "1: the kernel may take back a window that it offered, when memory for the data is short",
        ),
        Err(Odd::Unreadable(ErrorKind::NotFound)) => Check::info(
            id,
            format!("{name} does not exist; a window once offered is not taken back"),
        ),
        odd => odd_sysctl(id, name, odd),
    }
}

fn tcp_mem(facts: &Facts, rmem: Option<Rmem>) -> Check {
    let id = "tcp_mem";
    let name = "net.ipv4.tcp_mem";
    let pages: Option<[i64; 3]> = match facts.tcp_mem.as_deref() {
        Ok(text) => parse::numbers(text),
        Err(ErrorKind::NotFound) => {
            return Check::info(
                id,
                format!("{name} does not show, as outside of the initial network namespace"),
            );
        }
        Err(reason) => return unreadable(id, name, *reason),
    };
    let Some([_, pressure, max]) = pages else {
        return odd_sysctl(id, name, Err(Odd::NoNumber));
    };
    let bytes = |pages: i64| i128::from(pages) * i128::from(facts.page_size);
    let limits = format!(
        "all TCP sockets of the host together may take {} bytes, and are held back from {}",
        bytes(max),
        bytes(pressure)
    );
    match rmem {
        Some(rmem) if i128::from(rmem.max) > bytes(max) => Check::warn(
            id,
            format!("{limits}; tcp_rmem[2] would let a single one take {}", rmem.max),
            format!("lower the third value of net.ipv4.tcp_rmem, or raise {name} (in pages)"),
        ),
        _ => Check::ok(id, limits),
    }
}

fn rmem_max(facts: &Facts, rmem: Option<Rmem>) -> Check {
    let id = "rmem_max";
    let name = "net.core.rmem_max";
    match (sysctl(&facts.rmem_max), rmem) {
        (Ok(limit), Some(rmem)) if rmem.max > limit => Check::ok(
            id,
            format!(
                "SO_RCVBUF can ask for up to {limit} bytes; autotuning does not obey it, so that \
                 tcp_rmem[2] may well be larger"
            ),
        ),
        (Ok(limit), _) => Check::ok(
            id,
            format!("SO_RCVBUF can ask for up to {limit} bytes; autotuning does not obey it"),
        ),
        (Err(Odd::Unreadable(ErrorKind::NotFound)), _) => Check::info(
            id,
            format!("{name} does not show, as outside of the initial network namespace"),
        ),
        (odd, _) => odd_sysctl(id, name, odd),
    }
}
