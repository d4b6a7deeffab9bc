//! What the kernel permits this process, and what it costs and counts.

use std::io::ErrorKind;

use super::{Check, Facts, Refusal, parse};

const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    vec![
        capabilities(facts),
        lockdown(facts),
        memlock(facts),
        jit(facts),
        tracefs(facts),
        bpf_stats(facts),
    ]
}

fn capabilities(facts: &Facts) -> Check {
    let id = "capabilities";
    let effective = facts.status.as_deref().ok().and_then(parse::effective_capabilities);
    let Some(effective) = effective else {
        return Check::unknown(id, "/proc/self/status does not tell the effective capabilities");
    };
    let has = |capability: u32| effective >> capability & 1 == 1;
    // Linux 5.8 split these two off from CAP_SYS_ADMIN, which still stands for both.
    let split = parse::version(&facts.release).is_none_or(|version| version >= (5, 8));
    let needed: &[(&str, u32)] = if has(CAP_SYS_ADMIN) {
        &[]
    } else if split {
        &[("CAP_BPF", CAP_BPF), ("CAP_PERFMON", CAP_PERFMON)]
    } else {
        &[("CAP_SYS_ADMIN", CAP_SYS_ADMIN)]
    };
    let missing = needed.iter().filter(|(_, capability)| !has(*capability));
    let missing: Vec<_> = missing.map(|(name, _)| *name).collect();
    let remedy = if split {
        "run as root or with both CAP_BPF and CAP_PERFMON (systemd: AmbientCapabilities=)"
    } else {
        "run as root"
    };
    let named = missing.join(" and ");
    match missing.len() {
        0 => {}
        1 => {
            let finding = format!("{named} is missing");
            return Check::fail(id, Refusal::NotPermitted, finding, remedy);
        }
        _ => {
            let finding = format!("{named} are missing");
            return Check::fail(id, Refusal::NotPermitted, finding, remedy);
        }
    }
    let held = if has(CAP_SYS_ADMIN) {
        "CAP_SYS_ADMIN, which stands for CAP_BPF and CAP_PERFMON"
    } else {
        "CAP_BPF and CAP_PERFMON"
    };
    // The kernel asks for them in the initial user namespace.
    if facts.uid_map.as_deref().is_ok_and(|map| !parse::is_initial_user_namespace(map)) {
        return Check::fail(
            id,
            Refusal::NotPermitted,
            format!("{held}, but only within a user namespace, where they do not count for BPF"),
            "run outside of the user namespace (a rootless container is one)",
        );
    }
    Check::ok(id, held)
}

fn lockdown(facts: &Facts) -> Check {
    let id = "lockdown";
    let text = match &facts.lockdown {
        Ok(text) => text,
        Err(ErrorKind::NotFound) => {
            return Check::unknown(
                id,
                "there is no /sys/kernel/security/lockdown: securityfs may not be mounted, or the \
                 kernel is built without the lockdown LSM",
            );
        }
        Err(reason) => return unreadable(id, "/sys/kernel/security/lockdown", *reason),
    };
    match parse::lockdown(text) {
        Some("none") => Check::ok(id, "the kernel is not locked down"),
        Some("integrity") => {
            Check::info(id, "the kernel is locked down for integrity, which permits observing")
        }
        Some("confidentiality") => Check::warn(
            id,
            "the kernel is locked down for confidentiality: BPF helpers that read kernel memory are \
             refused; the probes call none of them",
            "if loading the probes fails, boot with lockdown=integrity",
        ),
        _ => Check::unknown(id, format!("/sys/kernel/security/lockdown says {:?}", text.trim())),
    }
}

fn memlock(facts: &Facts) -> Check {
    let id = "memlock";
    match (parse::version(&facts.release), facts.memlock) {
        (None, _) => Check::unknown(id, "depends on the kernel's release"),
        (Some(version), _) if version >= (5, 11) => {
            Check::ok(id, "the memory of BPF maps is charged to the cgroup")
        }
        (_, None) => Check::unknown(id, "RLIMIT_MEMLOCK cannot be read"),
        (_, Some(u64::MAX)) => Check::ok(id, "RLIMIT_MEMLOCK is unlimited"),
        (_, Some(limit)) => Check::warn(
            id,
            format!(
                "kernels before 5.11 take BPF maps out of RLIMIT_MEMLOCK, which is {limit} bytes"
            ),
            "set it to unlimited (ulimit -l, systemd: LimitMEMLOCK=infinity)",
        ),
    }
}

fn jit(facts: &Facts) -> Check {
    let id = "jit";
    let name = "net.core.bpf_jit_enable";
    match sysctl(&facts.bpf_jit_enable) {
        Ok(0) => Check::warn(
            id,
            format!("{name} is 0: the probes are interpreted, several times as slow"),
            format!("sysctl {name}=1"),
        ),
        Ok(value @ (1 | 2)) => Check::ok(id, format!("{name} is {value}: the probes are compiled")),
        Err(Odd::Unreadable(ErrorKind::NotFound)) => Check::info(
            id,
            format!("{name} does not show, as outside of the initial network namespace"),
        ),
        odd => odd_sysctl(id, name, odd),
    }
}

fn tracefs(facts: &Facts) -> Check {
    let id = "tracefs";
    let not_needed = "the probes attach by BTF and do not need it";
    match facts.mounts.as_deref().map(parse::tracefs) {
        Ok(Some(tracefs)) => {
            let seen = match facts.tcp_events {
                Err(ErrorKind::PermissionDenied) => ", which this process may not look into",
                _ => "",
            };
            Check::info(id, format!("mounted at {tracefs}{seen}; {not_needed}"))
        }
        Ok(None) => Check::info(id, format!("not mounted; {not_needed}")),
        Err(reason) => unreadable(id, "/proc/self/mounts", *reason),
    }
}

fn bpf_stats(facts: &Facts) -> Check {
    let id = "bpf_stats";
    let name = "kernel.bpf_stats_enabled";
    let counts = "tcp_autotune_probe_runs_total and tcp_autotune_probe_seconds_total";
    match sysctl(&facts.bpf_stats_enabled) {
        Ok(0) => Check::info(id, format!("{name} is 0: {counts} count only while it is 1")),
        Ok(1) => Check::info(id, format!("{name} is 1: {counts} count, at some 30 ns a run")),
        odd => odd_sysctl(id, name, odd),
    }
}

/// Why a sysctl has no value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Odd {
    /// It cannot be read.
    Unreadable(ErrorKind),
    /// It is not one number.
    NoNumber,
}

/// The value of a sysctl that is one number.
pub(super) fn sysctl(text: &super::Text) -> Result<i64, Odd> {
    parse::number(text.as_deref().map_err(|reason| Odd::Unreadable(*reason))?).ok_or(Odd::NoNumber)
}

/// A sysctl whose value no other arm knows.
pub(super) fn odd_sysctl(id: &'static str, name: &str, value: Result<i64, Odd>) -> Check {
    match value {
        Ok(value) => Check::unknown(id, format!("{name} is {value}, whose meaning is not known")),
        Err(Odd::Unreadable(reason)) => unreadable(id, name, reason),
        Err(Odd::NoNumber) => Check::unknown(id, format!("{name} has an unknown form")),
    }
}

pub(super) fn unreadable(id: &'static str, name: &str, reason: ErrorKind) -> Check {
    match reason {
        ErrorKind::NotFound => Check::unknown(id, format!("{name} does not exist here")),
        reason => Check::unknown(id, format!("{name} cannot be read: {reason}")),
    }
}
