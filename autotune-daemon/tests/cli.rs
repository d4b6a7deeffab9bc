//! The binary as a user meets it: what it prints where, and its exit status.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails, or says that it was skipped"
)]

use std::{
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use serde_json::Value;

/// User and group nobody.
const NOBODY: u32 = 65534;

/// Runs the binary, which should end by itself soon.
fn autotune(args: &[&str]) -> Output {
    assert_cmd::Command::new(env!("CARGO_BIN_EXE_autotune"))
        .args(args)
        .timeout(Duration::from_secs(60))
        .output()
        .unwrap()
}

/// The exit status is this, and stderr is one line: that line.
#[track_caller]
fn fails_with_one_line(output: &Output, status: i32) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("autotune: ") && stderr.ends_with('\n'), "{stderr}");
    stderr.trim_end().to_owned()
}

/// Nothing but the usage is complained about.
#[track_caller]
fn is_usage_error(args: &[&str], complaint: &str) {
    let output = autotune(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
    assert!(stderr.contains(complaint), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?}");
}

/// Whether the test can go on: it needs root, and a kernel that can be observed.
fn can_observe() -> bool {
    if !is_root() {
        return false;
    }
    let doctor = autotune(&["doctor"]);
    if !doctor.status.success() {
        println!("SKIPPED: {}", String::from_utf8_lossy(&doctor.stderr).trim_end());
    }
    doctor.status.success()
}

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("SKIPPED: needs root");
    }
    root
}

/// Runs a copy of the binary, which others can reach, as nobody.
fn autotune_as_nobody(args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("autotune");
    std::fs::copy(env!("CARGO_BIN_EXE_autotune"), &copy).unwrap();
    for path in [folder.path(), &copy] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    Command::new(&copy).args(args).current_dir("/").uid(NOBODY).gid(NOBODY).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn status_of<'a>(report: &'a Value, id: &str) -> &'a str {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["id"] == id).unwrap()["status"].as_str().unwrap()
}

#[test]
fn doctor_as_root_tells_whether_this_kernel_can_be_observed() {
    if !is_root() {
        return;
    }
    let output = autotune(&["doctor", "--format", "json"]);
    let report = json(&output);
    assert_eq!((&report["version"], &report["type"]), (&Value::from(1), &Value::from("doctor")));
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(report["kernel_release"], release.trim_end());
    assert_eq!(status_of(&report, "capabilities"), "ok");
    if report["can_observe"] == true {
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stderr.is_empty());
        assert_eq!(status_of(&report, "btf"), "ok");
    } else {
        let line = fails_with_one_line(&output, 3);
        println!("SKIPPED: {line}");
    }
    let text = String::from_utf8(autotune(&["doctor"]).stdout).unwrap();
    let conclusion = text.lines().last().unwrap();
    let expected =
        if report["can_observe"] == true { "This kernel can be" } else { "This kernel cannot be" };
    assert!(conclusion.starts_with(expected), "{conclusion}");
}

#[test]
fn a_bad_btf_file_is_an_unsupported_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(file("empty"), "").unwrap();
    std::fs::write(file("text"), "This is no type information.\n").unwrap();
    for (name, complaint) in
        [("missing", "there is no "), ("empty", "is empty"), ("text", "byte 0 starts the number")]
    {
        let path = file(name);
        for command in ["doctor", "daemon"] {
            let output = autotune(&[command, "--btf", &path]);
            let line = fails_with_one_line(&output, 3);
            assert!(line.contains(&path) && line.contains(complaint), "{command}: {line}");
            assert_eq!(output.stdout.is_empty(), command == "daemon", "{command}");
        }
    }
}

#[test]
fn doctor_reports_in_json_also_what_it_cannot_find() {
    let output = autotune(&["doctor", "--format", "json", "--btf", "/nonexistent/btf"]);
    let report = json(&output);
    assert_eq!(report["can_observe"], false);
    assert_eq!(report["generation"], Value::Null);
    assert_eq!(status_of(&report, "btf"), "fail");
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    is_usage_error(&[], "Usage");
    is_usage_error(&["divine"], "divine");
    for command in ["daemon", "doctor"] {
        is_usage_error(&[command, "--no-such-flag"], "--no-such-flag");
    }
    is_usage_error(&["doctor", "--format", "xml"], "text, json");
    is_usage_error(&["daemon", "--generation", "v6.17"], "v6.16, v6.18");
    for size in ["0", "3", "5", "2097152", "-4", "4k"] {
        is_usage_error(&["daemon", &format!("--ring.size={size}")], "--ring.size");
    }
}

#[test]
fn an_address_that_cannot_be_listened_on_is_named_with_its_flag() {
    if !can_observe() {
        return;
    }
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    for (address, complaint, status) in [
        (taken.as_str(), "in use", 1),
        ("nonsense", "not host:port", 2),
        ("127.0.0.1:99999", "not host:port", 2),
        ("", "not host:port", 2),
    ] {
        let output = autotune(&["daemon", "--web.listen-address", address]);
        let line = fails_with_one_line(&output, status);
        let named = line.contains(address) && line.contains("--web.listen-address");
        assert!(named && line.contains(complaint), "{line}");
    }
}

#[test]
fn an_unprivileged_user_is_told_which_capabilities_are_missing() {
    if !can_observe() {
        return;
    }
    for command in ["daemon", "doctor"] {
        let output = autotune_as_nobody(&[command]);
        let line = fails_with_one_line(&output, 4);
        assert!(line.starts_with("autotune: not permitted: CAP_BPF and CAP_PERFMON"), "{line}");
        assert!(!line.to_lowercase().contains("memlock"), "{line}");
    }
    let report = json(&autotune_as_nobody(&["doctor", "--format=json"]));
    assert_eq!(report["can_observe"], false);
    assert_eq!(status_of(&report, "capabilities"), "fail");
    assert_eq!(status_of(&report, "btf"), "ok");
}

#[test]
fn with_one_of_the_capabilities_the_other_is_named() {
    if !can_observe() {
        return;
    }
    let setpriv = "/usr/bin/setpriv";
    if !Path::new(setpriv).exists() {
        println!("SKIPPED: needs {setpriv}");
        return;
    }
    for (held, missing) in [("bpf", "CAP_PERFMON is missing"), ("perfmon", "CAP_BPF is missing")] {
        let mut command = assert_cmd::Command::new(setpriv);
        command.arg(format!("--bounding-set=-all,+{held}"));
        command.args([env!("CARGO_BIN_EXE_autotune"), "daemon"]);
        let output = command.timeout(Duration::from_secs(60)).output().unwrap();
        let line = fails_with_one_line(&output, 4);
        assert!(line.contains(missing), "{line}");
    }
}
