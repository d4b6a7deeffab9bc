//! What the kernel has: BTF, tracepoints, members, the growth formula.

use std::io::ErrorKind;

use autotune_common::Generation;

use super::{Check, Facts, Refusal, Status, parse};
use crate::kernel::running::{KernelError, Survey, Tracepoint, layout_finding};

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![release(facts), btf(facts)];
    match &facts.kernel {
        Ok(kernel) => {
            checks.extend(Tracepoint::ALL.map(|which| tracepoint(facts, kernel, which)));
            checks.push(members(kernel));
            checks.push(generation(kernel));
        }
        Err(_) => {
            let ids =
                Tracepoint::ALL.map(tracepoint_id).into_iter().chain(["members", "generation"]);
            checks.extend(ids.map(|id| Check::unknown(id, "only the BTF tells")));
        }
    }
    checks
}

fn release(facts: &Facts) -> Check {
    let id = "kernel_release";
    match parse::version(&facts.release) {
        Some(_) => Check::ok(id, format!("Linux {}", facts.release)),
        None => Check::unknown(id, format!("the release {:?} has no known form", facts.release)),
    }
}

fn btf(facts: &Facts) -> Check {
    let id = "btf";
    match &facts.kernel {
        Ok(_) => Check::ok(id, format!("{} describes the kernel", facts.btf.display())),
        Err(error) => {
            let refusal = match error {
                KernelError::NoBtf { reason, .. }
                    if reason.kind() == ErrorKind::PermissionDenied =>
                {
                    Refusal::NotPermitted
                }
                _ => Refusal::Unsupported,
            };
            Check::fail(id, refusal, error.finding(), error.remedy())
        }
    }
}

const fn tracepoint_id(which: Tracepoint) -> &'static str {
    match which {
        Tracepoint::Grow => "tracepoint_tcp_rcvbuf_grow",
        Tracepoint::SpaceAdjust => "tracepoint_tcp_rcv_space_adjust",
        Tracepoint::Destroy => "tracepoint_tcp_destroy_sock",
    }
}

fn tracepoint(facts: &Facts, kernel: &Survey, which: Tracepoint) -> Check {
    let id = tracepoint_id(which);
    if which.is_in(&kernel.detected) {
        return Check::ok(id, format!("the kernel has tcp:{}", which.name()));
    }
    let error = KernelError::NoTracepoint(which);
    let mut finding = format!("{} by its BTF", error.finding());
    let mut remedy = error.remedy();
    if which == Tracepoint::Grow
        && let Some(tracefs) = facts.mounts.as_deref().ok().and_then(parse::tracefs)
    {
        let event = format!("{tracefs}/events/tcp/{}", which.name());
        match (facts.grow_event, facts.tcp_events) {
            (Ok(()), _) => {
                finding.push_str(&format!(", but there is {event}"));
                let btf = facts.btf.display();
                remedy = format!("make sure that {btf} is the BTF of the running kernel");
            }
            (Err(ErrorKind::NotFound), Ok(())) => {
                finding.push_str(&format!(", and {tracefs}/events/tcp exists without {event}"));
            }
            (Err(ErrorKind::NotFound), Err(_)) => {
                finding.push_str(&format!(", and there is no {event}, nor {tracefs}/events/tcp"));
            }
            (Err(reason), _) => {
                finding.push_str(&format!("; {event} cannot be looked at: {reason}"));
            }
        }
    }
    Check::fail(id, Refusal::Unsupported, finding, remedy)
}

fn members(kernel: &Survey) -> Check {
    let id = "members";
    match &kernel.layout {
        Ok(layout) if layout.absent.is_empty() => {
            Check::ok(id, "the kernel has all members that the probes read")
        }
        Ok(layout) => {
            let names = layout.absent.iter().map(|member| member.path());
            let names: Vec<_> = names.map(|(root, path)| format!("{root}.{path}")).collect();
            Check::info(
                id,
                format!("the kernel lacks {}; the probes read 0 instead", names.join(", ")),
            )
        }
        Err(error) => {
            let remedy = KernelError::Layout(error.clone()).remedy();
            Check::fail(id, Refusal::Unsupported, layout_finding(error), remedy)
        }
    }
}

fn generation(kernel: &Survey) -> Check {
    let id = "generation";
    let evidence = kernel.detected.evidence.trim_end_matches('.');
    match kernel.detected.generation {
        Some(generation) => Check::ok(id, format!("{}: {evidence}", generation.as_str())),
        None => {
            let known = Generation::ALL.map(Generation::as_str).join(", ");
            let finding = format!("unknown, so that growths stay unverified: {evidence}");
            Check::new(id, Status::Warn, finding)
                .remedy(format!("if you know the formula, name it with --generation: {known}"))
        }
    }
}
