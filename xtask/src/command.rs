//! Running other programs.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

/// Where administrators' programs lie, which a user's path may lack.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Shows the command, runs it, and fails with it.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let line = line(command);
    println!("$ {line}");
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Whether the command succeeds; it prints nothing.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The program of that name on the path, or where administrators' programs lie.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SYSTEM_FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// The command as one would type it, with the variables that it sets.
pub(crate) fn line(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| {
        // cargo wants flags apart by a control character.
        let value = value?.to_string_lossy().replace('\x1f', " ");
        Some(format!("{}={value}", name.to_string_lossy()))
    });
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    set.chain([program.into_owned()]).chain(args).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_types_it() {
        let mut command = Command::new("/usr/bin/apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").env_remove("HOME").args(["install", "-y"]);
        assert_eq!(line(&command), "DEBIAN_FRONTEND=noninteractive apt-get install -y");
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
