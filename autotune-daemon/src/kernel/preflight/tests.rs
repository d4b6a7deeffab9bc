use std::io::ErrorKind;

use autotune_common::SockMember;

use super::*;
use crate::kernel::{
    running::{KernelError, Survey},
    synthetic::Kernel,
};

/// A 6.18 kernel as a distribution ships it, and root.
fn healthy() -> Facts {
    Facts {
        release: "6.18.0-1-amd64".to_owned(),
        btf: BTF.into(),
        kernel: surveyed(v6_18()),
        page_size: 4096,
        memlock: Some(8 << 20),
        status: text("Name:\tautotune\nCapEff:\t000001ffffffffff\n"),
        uid_map: text("         0          0 4294967295\n"),
        net_namespace: text("net:[4026531840]"),
        lockdown: text("[none] integrity confidentiality\n"),
        mounts: text("tracefs /sys/kernel/tracing tracefs rw,nosuid 0 0\n"),
        tcp_events: Ok(()),
        grow_event: Ok(()),
        bpf_jit_enable: text("1\n"),
        bpf_stats_enabled: text("0\n"),
        tcp_rmem: text("4096\t131072\t33554432\n"),
        tcp_window_scaling: text("1\n"),
        tcp_moderate_rcvbuf: text("1\n"),
        tcp_rcvbuf_low_rtt: ABSENT,
        tcp_shrink_window: text("0\n"),
        tcp_mem: text("190506\t254008\t381012\n"),
        rmem_max: text("212992\n"),
    }
}

const BTF: &str = "/sys/kernel/btf/vmlinux";
const ABSENT: Text = Err(ErrorKind::NotFound);

#[expect(clippy::unnecessary_wraps, reason = "as the facts have it")]
fn text(text: &str) -> Text {
    Ok(text.to_owned())
}

fn v6_18() -> Kernel {
    Kernel { lacks: |member| *member == SockMember::TcpRcvbufLowRtt, ..Kernel::default() }
}

fn surveyed(kernel: Kernel) -> Result<Survey, KernelError> {
    Survey::of(kernel.btf(), Path::new(BTF))
}

/// 6.12, which has neither the tracepoint nor the function.
fn without_grow_tracepoint() -> Facts {
    let kernel =
        Kernel { grow_params: None, grow_tracepoint: false, signed_space: false, ..v6_18() };
    Facts {
        release: "6.12.9+bpo-amd64".to_owned(),
        kernel: surveyed(kernel),
        grow_event: ABSENT.map(drop),
        ..healthy()
    }
}

fn without_btf() -> Facts {
    Facts { kernel: Survey::read(Path::new("/nonexistent/vmlinux")), ..healthy() }
}

/// As user nobody, who may not look into tracefs either.
fn without_capabilities() -> Facts {
    Facts {
        status: text("CapEff:\t0000000000000000\n"),
        tcp_events: Err(ErrorKind::PermissionDenied),
        grow_event: Err(ErrorKind::PermissionDenied),
        bpf_jit_enable: Err(ErrorKind::PermissionDenied),
        ..healthy()
    }
}

fn odd_sysctls() -> Facts {
    Facts {
        kernel: surveyed(Kernel::default()),
        release: "7.0.0-rc3".to_owned(),
        lockdown: ABSENT,
        mounts: text("proc /proc proc rw 0 0\n"),
        bpf_jit_enable: text("0\n"),
        bpf_stats_enabled: text("1\n"),
        tcp_rmem: text("4096\t6291456\t6291456\n"),
        tcp_moderate_rcvbuf: text("0\n"),
        tcp_rcvbuf_low_rtt: text("1000\n"),
        tcp_shrink_window: text("1\n"),
        tcp_mem: text("100\t200\t300\n"),
        rmem_max: text("2147483647\n"),
        ..healthy()
    }
}

#[track_caller]
fn snapshot(name: &str, facts: &Facts) {
    let preflight = Preflight::new(facts);
    let refused = preflight.refused().map_or_else(String::new, |refused| format!("\n{refused}\n"));
    insta::assert_snapshot!(format!("{name}_text"), format!("{preflight}{refused}"));
}

#[test]
fn report_of_a_healthy_kernel() {
    snapshot("healthy", &healthy());
    insta::assert_json_snapshot!("healthy_json", Preflight::new(&healthy()));
}

#[test]
fn report_without_btf() {
    snapshot("no_btf", &without_btf());
    insta::assert_json_snapshot!("no_btf_json", Preflight::new(&without_btf()));
}

#[test]
fn report_of_an_old_kernel() {
    snapshot("old_kernel", &without_grow_tracepoint());
    insta::assert_json_snapshot!("old_kernel_json", Preflight::new(&without_grow_tracepoint()));
}

#[test]
fn report_without_capabilities() {
    snapshot("no_capabilities", &without_capabilities());
}

#[test]
fn report_under_lockdown() {
    let facts = Facts { lockdown: text("none integrity [confidentiality]\n"), ..healthy() };
    snapshot("confidentiality", &facts);
}

#[test]
fn report_of_odd_sysctls() {
    snapshot("odd_sysctls", &odd_sysctls());
}

/// The check of that name.
#[track_caller]
fn check(facts: &Facts, id: &str) -> Check {
    let checks = Preflight::new(facts).checks;
    checks.into_iter().find(|check| check.id == id).unwrap()
}

#[test]
fn identifiers_are_unique_and_every_obstacle_has_a_remedy() {
    let all = [
        healthy(),
        without_btf(),
        without_grow_tracepoint(),
        without_capabilities(),
        odd_sysctls(),
    ];
    let mut ids = Vec::new();
    for facts in &all {
        let checks = Preflight::new(facts).checks;
        let mut these: Vec<_> = checks.iter().map(|check| check.id).collect();
        for check in &checks {
            let advised = matches!(check.status, Status::Warn | Status::Fail(_));
            assert_eq!(check.remedy.is_some(), advised, "{check:?}");
            assert!(!check.finding.ends_with('.') && !check.finding.contains("  "), "{check:?}");
            assert!(check.id.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{check:?}");
        }
        if ids.is_empty() {
            ids.clone_from(&these);
        }
        assert_eq!(these, ids, "the same checks everywhere");
        these.sort_unstable();
        these.dedup();
        assert_eq!(these.len(), ids.len());
    }
}

#[test]
fn exactly_the_missing_capabilities_are_named() {
    let with = |capabilities: &[u32], release: &str| {
        let bits: u64 = capabilities.iter().map(|bit| 1 << bit).sum();
        let status = text(&format!("CapEff:\t{bits:016x}\n"));
        let facts = Facts { status, release: release.to_owned(), ..healthy() };
        Preflight::new(&facts).refused().map(|refused| refused.finding)
    };
    let missing = |finding: &str| Some(finding.to_owned());
    assert_eq!(with(&[], "6.18.0"), missing("CAP_BPF and CAP_PERFMON are missing"));
    assert_eq!(with(&[39], "6.18.0"), missing("CAP_PERFMON is missing"));
    assert_eq!(with(&[38], "6.18.0"), missing("CAP_BPF is missing"));
    assert_eq!(with(&[38, 39], "6.18.0"), None);
    assert_eq!(with(&[21], "6.18.0"), None);
    assert_eq!(with(&[38, 39], "5.7.0"), missing("CAP_SYS_ADMIN is missing"));
    assert_eq!(with(&[38, 39], "5.8.0"), None);
    assert_eq!(with(&[21], "5.7.0"), None);
}

#[test]
fn capabilities_of_a_user_namespace_do_not_count() {
    let facts = Facts { uid_map: text("0 1000 1\n"), ..healthy() };
    let refused = Preflight::new(&facts).refused().unwrap();
    assert_eq!(refused.refusal, Refusal::NotPermitted);
    assert!(refused.finding.contains("user namespace"), "{refused}");
}

#[test]
fn unknown_capabilities_do_not_refuse() {
    let facts = Facts { status: ABSENT, uid_map: ABSENT, ..healthy() };
    assert_eq!(check(&facts, "capabilities").status, Status::Unknown);
    assert_eq!(Preflight::new(&facts).refused(), None);
}

#[test]
fn what_the_kernel_lacks_counts_before_what_is_not_permitted() {
    let facts = Facts { status: text("CapEff:\t0\n"), ..without_grow_tracepoint() };
    let refused = Preflight::new(&facts).refused().unwrap();
    assert_eq!(refused.refusal, Refusal::Unsupported);
    assert!(refused.to_string().contains("what else is missing"), "{refused}");
}

#[test]
fn btf_that_may_not_be_read_is_not_permitted() {
    let reason = ErrorKind::PermissionDenied.into();
    let kernel = Err(KernelError::NoBtf { path: BTF.into(), reason });
    let refused = Preflight::new(&Facts { kernel, ..healthy() }).refused().unwrap();
    assert_eq!(refused.refusal, Refusal::NotPermitted);
}

#[test]
fn tracefs_tells_a_missing_mount_a_missing_event_and_a_missing_permission_apart() {
    let found = |facts: Facts| check(&facts, "tracepoint_tcp_rcvbuf_grow").finding;
    let base = "this kernel has no tracepoint tcp:tcp_rcvbuf_grow by its BTF";
    let event = "/sys/kernel/tracing/events/tcp/tcp_rcvbuf_grow";
    let old = without_grow_tracepoint;
    let unmounted = found(Facts { mounts: text(""), ..old() });
    assert_eq!(unmounted, base);
    let lacks_event = found(old());
    assert_eq!(
        lacks_event,
        format!("{base}, and /sys/kernel/tracing/events/tcp exists without {event}")
    );
    let lacks_group = found(Facts { tcp_events: ABSENT.map(drop), ..old() });
    assert_eq!(
        lacks_group,
        format!("{base}, and there is no {event}, nor /sys/kernel/tracing/events/tcp")
    );
    let denied = Err(ErrorKind::PermissionDenied);
    let denied = found(Facts { tcp_events: denied, grow_event: denied, ..old() });
    assert_eq!(denied, format!("{base}; {event} cannot be looked at: permission denied"));
    let other_kernel = check(&Facts { grow_event: Ok(()), ..old() }, "tracepoint_tcp_rcvbuf_grow");
    assert_eq!(other_kernel.finding, format!("{base}, but there is {event}"));
    assert!(other_kernel.remedy.unwrap().contains("the BTF of the running kernel"));

    let mounted = |facts: Facts| check(&facts, "tracefs");
    for facts in [healthy(), odd_sysctls(), without_capabilities()] {
        assert_eq!(mounted(facts).status, Status::Info);
    }
    assert!(mounted(odd_sysctls()).finding.starts_with("not mounted"));
    assert!(mounted(without_capabilities()).finding.contains("may not look into"));
}

#[test]
fn all_missing_members_are_named_and_absent_optional_ones_are_no_obstacle() {
    let lacks = |member: &SockMember| {
        matches!(member, SockMember::SkRcvbuf | SockMember::CopiedSeq | SockMember::TcpUsecTs)
    };
    let kernel = surveyed(Kernel { lacks, ..Kernel::default() });
    let facts = Facts { kernel, ..healthy() };
    let refused = Preflight::new(&facts).refused().unwrap();
    assert_eq!(refused.finding, "this kernel's BTF lacks sock.sk_rcvbuf, tcp_sock.copied_seq");
    assert_eq!(refused.refusal, Refusal::Unsupported);

    let kernel =
        surveyed(Kernel { lacks: |member| *member == SockMember::TcpUsecTs, ..Kernel::default() });
    let members = check(&Facts { kernel, ..healthy() }, "members");
    assert_eq!(members.status, Status::Info);
    assert!(members.finding.contains("tcp_sock.tcp_usec_ts"), "{members:?}");
    let kernel = surveyed(Kernel::default());
    assert_eq!(check(&Facts { kernel, ..healthy() }, "members").status, Status::Ok);
}

#[test]
fn each_tracepoint_is_checked() {
    for (kernel, id, since) in [
        (Kernel { grow_tracepoint: false, ..v6_18() }, "tracepoint_tcp_rcvbuf_grow", "6.16"),
        (
            Kernel { space_adjust_tracepoint: false, ..v6_18() },
            "tracepoint_tcp_rcv_space_adjust",
            "4.18",
        ),
        (Kernel { destroy_tracepoint: false, ..v6_18() }, "tracepoint_tcp_destroy_sock", "4.16"),
    ] {
        let facts = Facts { kernel: surveyed(kernel), grow_event: ABSENT.map(drop), ..healthy() };
        let failed = Preflight::new(&facts).checks;
        let failed: Vec<_> = failed.into_iter().filter(|c| c.status != Status::Ok).collect();
        let failed: Vec<_> =
            failed.iter().filter(|c| matches!(c.status, Status::Fail(_))).collect();
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert_eq!(failed[0].id, id);
        let remedy = failed[0].remedy.as_deref().unwrap();
        assert_eq!(remedy, format!("Linux {since} and later have it"));
    }
}

#[test]
fn an_unknown_generation_is_no_obstacle() {
    let kernel = surveyed(Kernel { grow_params: None, ..v6_18() });
    let facts = Facts { kernel, ..healthy() };
    let generation = check(&facts, "generation");
    assert_eq!(generation.status, Status::Warn);
    assert!(generation.finding.contains("inlined"), "{generation:?}");
    assert!(generation.remedy.unwrap().contains("--generation"));
    assert_eq!(Preflight::new(&facts).refused(), None);
}

#[test]
fn memlock_matters_before_5_11_only() {
    let at = |release: &str, memlock| {
        check(&Facts { release: release.to_owned(), memlock, ..healthy() }, "memlock")
    };
    let old = at("5.10.200", Some(65_536));
    assert_eq!(old.status, Status::Warn);
    assert!(old.finding.contains("65536 bytes"), "{old:?}");
    assert_eq!(at("5.10.200", Some(u64::MAX)).status, Status::Ok);
    assert_eq!(at("5.10.200", None).status, Status::Unknown);
    for release in ["5.11.0", "6.18.0"] {
        let new = at(release, Some(0));
        assert_eq!(new.finding, "the memory of BPF maps is charged to the cgroup");
        assert_eq!((new.status, new.remedy), (Status::Ok, None));
    }
    assert_eq!(at("weird", Some(0)).status, Status::Unknown);
}

#[test]
fn a_refusal_on_a_current_kernel_does_not_mention_memlock() {
    let facts = Facts { memlock: Some(0), ..without_capabilities() };
    let refused = Preflight::new(&facts).refused().unwrap().to_string();
    assert!(!refused.to_lowercase().contains("memlock"), "{refused}");
}

#[test]
fn lockdown_is_told_apart() {
    let of = |lockdown| check(&Facts { lockdown, ..healthy() }, "lockdown").status;
    assert_eq!(of(text("[none] integrity confidentiality\n")), Status::Ok);
    assert_eq!(of(text("none [integrity] confidentiality\n")), Status::Info);
    assert_eq!(of(text("none integrity [confidentiality]\n")), Status::Warn);
    assert_eq!(of(text("gibberish\n")), Status::Unknown);
    assert_eq!(of(Err(ErrorKind::PermissionDenied)), Status::Unknown);
    let absent = check(&Facts { lockdown: ABSENT, ..healthy() }, "lockdown");
    assert_eq!(absent.status, Status::Unknown);
    assert!(absent.finding.contains("securityfs may not be mounted"), "{absent:?}");
}

#[test]
fn a_buffer_that_cannot_grow_is_a_warning() {
    let of = |tcp_rmem: &str| check(&Facts { tcp_rmem: text(tcp_rmem), ..healthy() }, "tcp_rmem");
    assert_eq!(of("4096 131072 131073").status, Status::Ok);
    let equal = of("4096 131072 131072");
    assert_eq!(equal.status, Status::Warn);
    assert!(equal.finding.contains("no more than that"), "{equal:?}");
    let below = of("4096 131072 131071");
    assert_eq!(below.status, Status::Warn);
    assert!(below.finding.contains("below that"), "{below:?}");
    assert_eq!(of("4096 131072").status, Status::Unknown);
}

#[test]
fn the_window_scale_follows_the_larger_limit() {
    let of = |tcp_rmem: &str, rmem_max: Text| {
        let facts = Facts { tcp_rmem: text(tcp_rmem), rmem_max, ..healthy() };
        check(&facts, "window_scale").finding
    };
    let rmem = of("4096 131072 33554432", text("212992"));
    assert!(rmem.contains("scale of 10,") && rmem.contains("67107840 bytes"), "{rmem}");
    let rmem_max = of("4096 131072 6291456", text("2147483647"));
    assert!(
        rmem_max.contains("scale of 14,") && rmem_max.contains("1073725440 bytes"),
        "{rmem_max}"
    );
    let hidden = of("4096 131072 6291456", ABSENT);
    assert!(hidden.contains("scale of 7,"), "{hidden}");
    let off = Facts { tcp_window_scaling: text("0\n"), ..healthy() };
    assert_eq!(check(&off, "window_scale").status, Status::Warn);
}

/// `SO_RCVBUF` obeys `rmem_max`, autotuning does not.
#[test]
fn tcp_rmem_above_rmem_max_is_no_warning() {
    let facts =
        Facts { tcp_rmem: text("4096 131072 114440916"), rmem_max: text("212992"), ..healthy() };
    for check in Preflight::new(&facts).checks {
        assert_ne!(check.status, Status::Warn, "{check:?}");
    }
    assert!(check(&facts, "rmem_max").finding.contains("may well be larger"));
}

#[test]
fn a_socket_that_may_take_all_tcp_memory_is_a_warning() {
    let of = |max: u64, pages: u64, page_size| {
        let tcp_rmem = text(&format!("4096 131072 {max}"));
        let tcp_mem = text(&format!("1 1 {pages}"));
        check(&Facts { tcp_rmem, tcp_mem, page_size, ..healthy() }, "tcp_mem").status
    };
    assert_eq!(of(4_096_000, 1000, 4096), Status::Ok);
    assert_eq!(of(4_096_001, 1000, 4096), Status::Warn);
    assert_eq!(of(4_096_001, 1000, 65_536), Status::Ok);
    assert_eq!(of(i64::MAX.unsigned_abs(), i64::MAX.unsigned_abs(), 65_536), Status::Ok);
    let hidden = Facts { tcp_mem: ABSENT, ..healthy() };
    assert_eq!(check(&hidden, "tcp_mem").status, Status::Info);
}

#[test]
fn a_missing_low_rtt_sysctl_is_strange_on_v6_19_only() {
    let id = "tcp_rcvbuf_low_rtt";
    assert_eq!(check(&healthy(), id).status, Status::Info);
    let strange = Facts { kernel: surveyed(Kernel::default()), ..healthy() };
    assert_eq!(check(&strange, id).status, Status::Unknown);
    let of = |value: &str| check(&Facts { tcp_rcvbuf_low_rtt: text(value), ..healthy() }, id);
    assert!(of("1000\n").finding.contains("of 1000 us"));
    assert_eq!(of("0\n").status, Status::Ok);
    assert_eq!(of("-1\n").status, Status::Unknown);
}

#[test]
fn this_machine_is_gathered_without_a_panic() {
    let facts = Facts::gather(Path::new("/nonexistent/vmlinux"));
    assert!(!facts.release.is_empty());
    assert!(facts.page_size.is_power_of_two());
    let preflight = Preflight::new(&facts);
    assert_eq!(preflight.refused().unwrap().refusal, Refusal::Unsupported);
}

proptest::proptest! {
    /// Whatever the kernel's files say, there is a report.
    #[test]
    fn no_text_panics(texts in proptest::collection::vec("[0-9\\[\\]a-z \\n:/-]{0,40}", 8)) {
        let mut texts = texts.into_iter();
        let mut next = || Ok(texts.next().unwrap_or_default());
        let facts = Facts {
            status: next(),
            mounts: next(),
            lockdown: next(),
            tcp_rmem: next(),
            tcp_mem: next(),
            rmem_max: next(),
            tcp_moderate_rcvbuf: next(),
            release: next().unwrap_or_default(),
            ..healthy()
        };
        let preflight = Preflight::new(&facts);
        serde_json::to_string(&preflight).unwrap();
        proptest::prop_assert!(!preflight.to_string().is_empty());
    }
}
