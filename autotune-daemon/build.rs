//! Builds the eBPF object into `OUT_DIR`, where `probe.rs` embeds it.

use std::{env, path::PathBuf, process::ExitCode};

use ebpf_build::Toolchain;

fn main() -> ExitCode {
    let (Some(out_dir), Some(manifest_dir)) =
        (env::var_os("OUT_DIR"), env::var_os("CARGO_MANIFEST_DIR"))
    else {
        return fail("OUT_DIR and CARGO_MANIFEST_DIR are set by cargo: run this through cargo");
    };
    let out_dir = PathBuf::from(out_dir);
    let manifest_dir = PathBuf::from(manifest_dir);
    let Some(workspace) = manifest_dir.parent() else {
        return fail("the crate lies in the workspace's folder");
    };
    for path in ["autotune-ebpf", "autotune-common", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(path).display());
    }
    println!("cargo::rerun-if-env-changed=AUTOTUNE_EBPF_RUSTC");
    println!("cargo::rustc-env=AUTOTUNE_REVISION={}", revision(workspace));

    let features: &[&str] =
        if env::var_os("CARGO_FEATURE_PROBE_LOG").is_some() { &["log"] } else { &[] };
    let object = Toolchain::find().and_then(|toolchain| {
        println!("cargo::rerun-if-changed={}", toolchain.linker.display());
        toolchain.build(workspace, &out_dir.join("ebpf"), features)
    });
    let object = match object {
        Ok(object) => object,
        Err(error) => return fail(&error.to_string()),
    };
    let embedded = out_dir.join("autotune-ebpf.o");
    match std::fs::copy(&object, &embedded) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("could not copy {}: {error}", object.display())),
    }
}

/// cargo prints these lines under "error:", in place of a linker's.
fn fail(message: &str) -> ExitCode {
    for line in message.lines() {
        println!("cargo::error={line}");
    }
    ExitCode::FAILURE
}

/// The commit that is being built, or `unknown` outside a checkout.
fn revision(workspace: &std::path::Path) -> String {
    println!("cargo::rerun-if-changed={}", workspace.join(".git/HEAD").display());
    let output = std::process::Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .current_dir(workspace)
        .output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}
