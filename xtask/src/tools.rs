//! Programs a task needs beside cargo: found if they are there, installed if not, never silently.

use crate::shell::{self, Shell, cache_dir, run, succeeds};
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// Pinned, so that a new lint of theirs arrives with a change of ours. Both build with the pinned compiler.
const NEXTEST_VERSION: &str = "0.9.143";
const DENY_VERSION: &str = "0.20.2";
const WASM_TARGET: &str = "wasm32-wasip2";

/// Makes sure that the compiler can build components.
pub(crate) fn wasm_target(shell: &Shell) -> Result<()> {
    let output = shell.program("rustc").args(["--print", "target-libdir", "--target", WASM_TARGET]).output()?;
    let dir = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if output.status.success() && dir.is_dir() {
        return Ok(());
    }
    eprintln!("The compiler cannot build {WASM_TARGET} yet; adding it with rustup.");
    run(shell.program("rustup").args(["target", "add", WASM_TARGET]))
}

/// Makes sure that these programs are there; each is named like its Debian package.
pub(crate) fn debian_packages(names: &[&str]) -> Result<()> {
    let missing: Vec<&str> = names.iter().copied().filter(|name| !on_path(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    // SAFETY: geteuid has no precondition and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root || !on_path("apt-get") {
        bail!("these programs are missing: {list}. Install them, for example with: sudo apt-get install {list}");
    }
    eprintln!("Missing: {list}. Installing with apt-get.");
    let apt = |args: &[&str]| run(Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive"));
    apt(&["update", "--quiet"])?;
    apt(&[&["install", "--quiet", "--yes", "--no-install-recommends"], missing.as_slice()].concat())
}

fn on_path(name: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()))
}

/// The test runner: `None` if it is missing and cannot be had.
pub(crate) fn nextest(shell: &Shell) -> Option<PathBuf> {
    cargo_tool(shell, "cargo-nextest", NEXTEST_VERSION).unwrap_or_else(|error| {
        eprintln!("cargo-nextest cannot be installed ({error:#}); going on without it.");
        None
    })
}

/// The licence checker: `None` if it is missing and the registry cannot be reached, which is said.
pub(crate) fn deny(shell: &Shell) -> Result<Option<PathBuf>> {
    cargo_tool(shell, "cargo-deny", DENY_VERSION)
}

/// A program from the registry: from the path, from the cache, or built into the cache.
fn cargo_tool(shell: &Shell, name: &str, version: &str) -> Result<Option<PathBuf>> {
    if on_path(name) {
        return Ok(Some(name.into()));
    }
    let home = cache_dir()?.join("tools");
    let program = home.join("bin").join(name);
    if program.is_file() {
        return Ok(Some(program));
    }
    eprintln!("{name} is missing; building version {version} into {} (some minutes).", home.display());
    let mut install = shell.cargo(["install", "--quiet", "--locked", name, "--version", version, "--root"]);
    // Its own target directory: a tool's build must not evict what the workspace has built.
    let built = shell::run(install.arg(&home).env("CARGO_TARGET_DIR", shell.target.join("tools")));
    let Err(error) = built else { return Ok(Some(program)) };
    if succeeds(&mut shell.cargo(["info", "--quiet", name])) {
        return Err(error);
    }
    eprintln!("The package registry cannot be reached: {name} is left out.");
    Ok(None)
}
