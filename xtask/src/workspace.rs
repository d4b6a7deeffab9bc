//! The workspace as cargo sees it.

use std::{
    collections::BTreeSet,
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// What `cargo metadata` says, as far as it is needed here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Metadata {
    /// Where cargo builds.
    pub(crate) target_directory: PathBuf,
    packages: Vec<Package>,
}

#[derive(Clone, Debug, Deserialize)]
struct Package {
    targets: Vec<Target>,
}

#[derive(Clone, Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

impl Metadata {
    pub(crate) fn read() -> anyhow::Result<Self> {
        let output = cargo()
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", output.status);
        }
        serde_json::from_slice(&output.stdout).context("cargo metadata printed something else")
    }

    /// Names of the integration tests.
    pub(crate) fn integration_tests(&self) -> BTreeSet<&str> {
        self.packages
            .iter()
            .flat_map(|package| &package.targets)
            .filter(|target| target.kind.iter().any(|kind| kind == "test"))
            .map(|target| target.name.as_str())
            .collect()
    }
}

/// The folder of the workspace.
pub(crate) fn root() -> &'static Path {
    let member = Path::new(env!("CARGO_MANIFEST_DIR"));
    member.parent().unwrap_or(member)
}

/// The cargo that runs this program, in the workspace's folder.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).stdin(Stdio::null());
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integration_tests_are_told_from_other_targets() {
        let metadata: Metadata = serde_json::from_str(
            r#"{"target_directory": "/t", "packages": [
                {"targets": [{"name": "a", "kind": ["lib"]}, {"name": "golden", "kind": ["test"]}]},
                {"targets": [{"name": "b", "kind": ["bin"]}, {"name": "live", "kind": ["test"]}]}
            ]}"#,
        )
        .unwrap();
        assert_eq!(
            metadata.integration_tests().into_iter().collect::<Vec<_>>(),
            ["golden", "live"]
        );
    }
}
