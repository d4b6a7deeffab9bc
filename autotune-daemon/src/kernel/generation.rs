//! Which growth formula the running kernel has, told from its BTF.
//!
//! Version numbers do not tell: distributions and stable trees backport the changes one by one.

use autotune_common::Generation;

use super::btf::{Btf, BtfError};

/// What a kernel's BTF says about its receive-buffer growth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detected {
    /// The growth formula, unless the BTF does not tell.
    pub generation: Option<Generation>,
    /// Why, as one sentence.
    pub evidence: String,
    /// The kernel has the tracepoint `tcp:tcp_rcvbuf_grow`.
    pub grow_tracepoint: bool,
    /// The kernel has the tracepoint `tcp:tcp_rcv_space_adjust`.
    pub space_adjust_tracepoint: bool,
    /// The kernel has the tracepoint `tcp:tcp_destroy_sock`.
    pub destroy_tracepoint: bool,
}

/// Tells the growth formula and the tracepoints of the kernel whose BTF this is.
#[must_use]
pub fn detect(btf: &Btf<'_>) -> Detected {
    let grow_tracepoint = btf.has_typedef("btf_trace_tcp_rcvbuf_grow");
    let (generation, evidence) = match generation(btf, grow_tracepoint) {
        Ok(told) => told,
        Err(error) => (None, format!("The BTF cannot be read: {error}.")),
    };
    Detected {
        generation,
        evidence,
        grow_tracepoint,
        space_adjust_tracepoint: btf.has_typedef("btf_trace_tcp_rcv_space_adjust"),
        destroy_tracepoint: btf.has_typedef("btf_trace_tcp_destroy_sock"),
    }
}

fn generation(
    btf: &Btf<'_>,
    grow_tracepoint: bool,
) -> Result<(Option<Generation>, String), BtfError> {
    if member(btf, "netns_ipv4", "sysctl_tcp_rcvbuf_low_rtt")?.is_some() {
        let evidence = "struct netns_ipv4 has sysctl_tcp_rcvbuf_low_rtt.";
        return Ok((Some(Generation::V6_19), evidence.to_owned()));
    }
    if let Some(params) = btf.function_params("tcp_rcvbuf_grow") {
        let generation = match params {
            1 => Some(Generation::V6_16),
            2 => Some(Generation::V6_18),
            _ => None,
        };
        let known = if generation.is_some() { "" } else { ", as in no known generation" };
        let plural = if params == 1 { "" } else { "s" };
        let evidence = format!(
            "The function tcp_rcvbuf_grow takes {params} parameter{plural}, and struct netns_ipv4 \
             lacks sysctl_tcp_rcvbuf_low_rtt{known}."
        );
        return Ok((generation, evidence));
    }
    if grow_tracepoint {
        let evidence = "The tracepoint tcp_rcvbuf_grow exists, but BTF lacks the function of that \
                        name, probably inlined, whose parameters would tell v6.16 from v6.18.";
        return Ok((None, evidence.to_owned()));
    }
    // Neither: the growth is a part of tcp_rcv_space_adjust.
    let Some(signed) = member(btf, "tcp_sock", "rcvq_space.space")? else {
        return Ok((None, "BTF lacks tcp_sock.rcvq_space.space.".to_owned()));
    };
    let scaling_ratio = member(btf, "tcp_sock", "scaling_ratio")?.is_some();
    let generation = match (signed, scaling_ratio) {
        (true, true) => Some(Generation::V6_12_35),
        (false, true) => Some(Generation::V6_6),
        (false, false) => Some(Generation::V4_16),
        (true, false) => None,
    };
    let evidence = format!(
        "BTF lacks tcp_rcvbuf_grow as function and as tracepoint, tcp_sock.rcvq_space.space is \
         {}signed, and tcp_sock {} scaling_ratio{}.",
        if signed { "" } else { "un" },
        if scaling_ratio { "has" } else { "lacks" },
        if generation.is_some() { "" } else { ", as in no known generation" },
    );
    Ok((generation, evidence))
}

/// Whether the member is signed; `None` when the kernel lacks it.
fn member(btf: &Btf<'_>, root: &str, path: &str) -> Result<Option<bool>, BtfError> {
    match btf.member(root, path) {
        Ok(member) => Ok(Some(member.signed)),
        Err(BtfError::MissingStruct(_) | BtfError::MissingMember { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use autotune_common::SockMember;

    use super::*;
    use crate::kernel::synthetic::Kernel;

    /// The kernel's evidence and generation.
    fn told(kernel: Kernel) -> (Option<Generation>, String) {
        let Detected { generation, evidence, .. } = detect(&Btf::parse(&kernel.btf()).unwrap());
        assert!(evidence.ends_with('.') && !evidence.contains("  "), "{evidence}");
        (generation, evidence)
    }

    /// A kernel as of 6.18.
    fn v6_18() -> Kernel {
        Kernel { lacks: |member| *member == SockMember::TcpRcvbufLowRtt, ..Kernel::default() }
    }

    /// A kernel as of 6.12.35.
    fn v6_12_35() -> Kernel {
        Kernel { grow_params: None, grow_tracepoint: false, ..v6_18() }
    }

    #[test]
    fn a_kernel_with_the_low_rtt_sysctl_is_v6_19() {
        let (generation, evidence) = told(Kernel::default());
        assert_eq!(generation, Some(Generation::V6_19));
        assert_eq!(evidence, "struct netns_ipv4 has sysctl_tcp_rcvbuf_low_rtt.");
    }

    #[test]
    fn the_low_rtt_sysctl_tells_even_where_the_function_is_inlined() {
        let kernel = Kernel { grow_params: None, ..Kernel::default() };
        assert_eq!(told(kernel).0, Some(Generation::V6_19));
    }

    #[test]
    fn the_parameters_tell_v6_16_from_v6_18() {
        let (generation, evidence) = told(v6_18());
        assert_eq!(generation, Some(Generation::V6_18));
        assert!(evidence.contains("takes 2 parameters"), "{evidence}");
        let (generation, evidence) = told(Kernel { grow_params: Some(1), ..v6_18() });
        assert_eq!(generation, Some(Generation::V6_16));
        assert!(evidence.contains("takes 1 parameter,"), "{evidence}");
    }

    #[test]
    fn other_parameters_are_of_no_known_generation() {
        for params in [0, 3] {
            let (generation, evidence) = told(Kernel { grow_params: Some(params), ..v6_18() });
            assert_eq!(generation, None);
            assert!(evidence.contains("no known generation"), "{evidence}");
        }
    }

    #[test]
    fn an_inlined_function_leaves_it_open() {
        let (generation, evidence) = told(Kernel { grow_params: None, ..v6_18() });
        assert_eq!(generation, None);
        assert!(evidence.contains("inlined"), "{evidence}");
    }

    #[test]
    fn a_signed_space_without_the_function_is_v6_12_35() {
        let (generation, evidence) = told(v6_12_35());
        assert_eq!(generation, Some(Generation::V6_12_35));
        assert!(evidence.contains("space is signed, and tcp_sock has"), "{evidence}");
    }

    #[test]
    fn the_scaling_ratio_tells_v4_16_from_v6_6() {
        let unsigned = Kernel { signed_space: false, ..v6_12_35() };
        let (generation, evidence) = told(unsigned);
        assert_eq!(generation, Some(Generation::V6_6));
        assert!(evidence.contains("space is unsigned, and tcp_sock has"), "{evidence}");
        let old = |member: &SockMember| {
            matches!(member, SockMember::TcpRcvbufLowRtt | SockMember::ScalingRatio)
        };
        let (generation, evidence) = told(Kernel { lacks: old, ..unsigned });
        assert_eq!(generation, Some(Generation::V4_16));
        assert!(evidence.contains("lacks scaling_ratio."), "{evidence}");
        let (generation, evidence) = told(Kernel { lacks: old, ..v6_12_35() });
        assert_eq!(generation, None);
        assert!(evidence.contains("no known generation"), "{evidence}");
    }

    #[test]
    fn a_btf_without_tcp_leaves_it_open() {
        let nothing = Kernel { lacks: |_| true, ..v6_12_35() };
        let (generation, evidence) = told(nothing);
        assert_eq!(generation, None);
        assert_eq!(evidence, "BTF lacks tcp_sock.rcvq_space.space.");
    }

    #[test]
    fn a_damaged_btf_is_not_taken_for_a_kernel_that_lacks_members() {
        let mut builder = crate::kernel::synthetic::Builder::new();
        let broken = [("sysctl_tcp_rcvbuf_low_rtt", 1000, 0)];
        builder.plain_struct("netns_ipv4", 4, &broken);
        let found = detect(&Btf::parse(&builder.build()).unwrap());
        assert_eq!(found.generation, None);
        assert_eq!(
            found.evidence,
            "The BTF cannot be read: malformed BTF: no type 1000 among its 1."
        );
    }

    #[test]
    fn tracepoints_are_told_apart() {
        let tracepoints = |kernel: Kernel| {
            let found = detect(&Btf::parse(&kernel.btf()).unwrap());
            (found.grow_tracepoint, found.space_adjust_tracepoint, found.destroy_tracepoint)
        };
        let none = Kernel {
            grow_tracepoint: false,
            space_adjust_tracepoint: false,
            destroy_tracepoint: false,
            ..Kernel::default()
        };
        assert_eq!(tracepoints(none), (false, false, false));
        let grow = Kernel { grow_tracepoint: true, ..none };
        assert_eq!(tracepoints(grow), (true, false, false));
        let space_adjust = Kernel { space_adjust_tracepoint: true, ..none };
        assert_eq!(tracepoints(space_adjust), (false, true, false));
        let destroy = Kernel { destroy_tracepoint: true, ..none };
        assert_eq!(tracepoints(destroy), (false, false, true));
    }

    #[test]
    fn the_running_kernel_is_told() {
        let path = "/sys/kernel/btf/vmlinux";
        let Ok(bytes) = std::fs::read(path) else {
            println!("SKIPPED: no {path} on this machine, so no real kernel's generation was told");
            return;
        };
        let found = detect(&Btf::parse(&bytes).unwrap());
        println!("{found:?}");
        assert!(found.space_adjust_tracepoint, "in every kernel since 4.16");
        assert!(found.destroy_tracepoint, "in every kernel since 4.16");
    }
}
