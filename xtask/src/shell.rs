//! Child processes, and where things are: the repository and cargo's target directory.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What every task needs.
pub(crate) struct Shell {
    /// The repository.
    pub(crate) root: PathBuf,
    /// Where cargo puts what it builds, for this process's children too.
    pub(crate) target: PathBuf,
}

impl Shell {
    pub(crate) fn open() -> Result<Self> {
        // Asked when it runs: checkouts may share a target directory, and with it this program, built in another one.
        let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
        let root = Path::new(&manifest_dir).parent().context("the manifest of xtask has no parent")?.to_path_buf();
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => std::path::absolute(dir)?,
            // CI checks out anew each time, but a machine may keep its cache.
            None if std::env::var_os("CI").is_some() => cache_dir()?.join("target"),
            None => root.join("target"),
        };
        Ok(Self { root, target })
    }

    /// A program, started in the repository.
    pub(crate) fn program(&self, name: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(name);
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// Cargo, as it was called to start this program.
    pub(crate) fn cargo<const N: usize>(&self, args: [&str; N]) -> Command {
        let mut command = self.program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(args);
        command
    }
}

/// What is kept between runs and checkouts.
pub(crate) fn cache_dir() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").context("HOME is not set, so there is no place for a cache")?;
    Ok(PathBuf::from(home).join(".cache/wasmkeep"))
}

/// Says what it runs, runs it with this process's output, and fails if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = describe(command);
    eprintln!("$ {line}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("starting {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// Whether a command succeeds; what it prints is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// A command as one would type it, without its environment.
fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
