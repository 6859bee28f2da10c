//! The components that are written in this repository: the examples and the guest that tests drive.

use crate::shell::{Shell, run};
use crate::tools;
use anyhow::{Result, ensure};
use std::path::PathBuf;

/// Class names and packages of the examples, as `examples/wasmkeep.toml` serves them.
pub(crate) const EXAMPLES: [(&str, &str); 8] = [
    ("counter", "counter"),
    ("notes", "notes"),
    ("hello", "hello-http"),
    ("jobs-web", "jobs-web"),
    ("jobs-consumer", "jobs-consumer"),
    ("jobs-receiver", "jobs-receiver"),
    ("jobs-queue", "jobs-queue"),
    ("jobs-settings", "jobs-settings"),
];
/// What tests serve: a guest that does what it is told, and a queue class that is configured by its environment.
const TEST_GUESTS: [&str; 2] = ["test-guest", "test-queue"];

/// Builds the examples and returns the directory with their components.
pub(crate) fn build_examples(shell: &Shell) -> Result<PathBuf> {
    build_packages(shell, &EXAMPLES.map(|(_, package)| package))
}

/// Builds all components and returns their directory. Tests look there for theirs and the examples.
pub(crate) fn build(shell: &Shell) -> Result<PathBuf> {
    let examples = EXAMPLES.map(|(_, package)| package);
    build_packages(shell, &[&examples[..], &TEST_GUESTS].concat())
}

fn build_packages(shell: &Shell, packages: &[&str]) -> Result<PathBuf> {
    tools::wasm_target(shell)?;
    let mut command = shell.cargo(["build", "--locked", "--release", "--target", "wasm32-wasip2"]);
    for package in packages {
        command.args(["--package", package]);
    }
    run(&mut command)?;
    let dir = shell.target.join("wasm32-wasip2/release");
    for package in packages {
        let file = component(&dir, package);
        ensure!(is_component(&std::fs::read(&file)?), "{} is no component", file.display());
    }
    Ok(dir)
}

/// The file that cargo makes of a package.
pub(crate) fn component(dir: &std::path::Path, package: &str) -> PathBuf {
    dir.join(package.replace('-', "_")).with_extension("wasm")
}

/// The binary format's first eight bytes tell a component (layer 1) from a core module (layer 0).
fn is_component(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\0asm") && bytes.get(6..8) == Some(&[1, 0])
}
