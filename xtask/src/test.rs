//! `cargo xtask test`: the guests built, then every test of the workspace.

use crate::shell::{Shell, run};
use crate::{guests, tools};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// Crates with tests: the default members, and what is built for wasm but has functions that can be tested here.
const PACKAGES: [&str; 7] =
    ["wasmkeep", "wasmkeep-storage", "wasmkeep-classes", "wasmkeep-benches", "xtask", "wasmkeep-sdk", "notes"];
/// Crates whose documentation holds examples.
const DOCTEST_PACKAGES: [&str; 1] = ["wasmkeep-sdk"];
/// Programs that tests look into data with.
const DEBIAN_PACKAGES: [&str; 2] = ["sqlite3", "curl"];
/// Where tests find the built components.
pub(crate) const GUESTS_VARIABLE: &str = "WASMKEEP_GUESTS";
/// How often the kill test kills.
const KILLS_VARIABLE: &str = "WASMKEEP_KILLS";

/// Makes ready what tests need, then runs those that the filters choose, or all.
pub(crate) fn all(shell: &Shell, filters: &[String]) -> Result<()> {
    tools::debian_packages(&DEBIAN_PACKAGES)?;
    let guests = guests::build(shell)?;
    if filters.is_empty() {
        doctests(shell)?;
    }
    tests(shell, &guests, filters)
}

fn doctests(shell: &Shell) -> Result<()> {
    run(&mut with_packages(shell.cargo(["test", "--locked", "--doc"]), &DOCTEST_PACKAGES))
}

fn tests(shell: &Shell, guests: &Path, filters: &[String]) -> Result<()> {
    let mut command = with_packages(runner(shell), &PACKAGES);
    // Both runners take what follows as parts of names, any of which is enough.
    command.arg("--").args(filters).env(GUESTS_VARIABLE, guests);
    run(&mut command)
}

/// nextest: each test in a process of its own, in parallel. Without it cargo's own runner does, test binary by test binary.
fn runner(shell: &Shell) -> Command {
    match tools::nextest(shell) {
        Some(nextest) => {
            let mut command = shell.program(nextest);
            command.args(["nextest", "run", "--locked", "--no-fail-fast"]);
            command
        }
        None => shell.cargo(["test", "--locked", "--no-fail-fast", "--lib", "--bins", "--tests"]),
    }
}

fn with_packages(mut command: Command, packages: &[&str]) -> Command {
    for package in packages {
        command.args(["--package", package]);
    }
    command
}

/// `cargo xtask kill-test`: the same test as in every run, with more kills and as it would be in production.
pub(crate) fn kill(shell: &Shell, kills: u32) -> Result<()> {
    tools::debian_packages(&DEBIAN_PACKAGES)?;
    let guests = guests::build(shell)?;
    let mut command = shell.cargo(["test", "--locked", "--release", "--package", "wasmkeep", "--test", "kill"]);
    command.args(["--", "--nocapture", "--test-threads", "1"]);
    run(command.env(GUESTS_VARIABLE, guests).env(KILLS_VARIABLE, kills.to_string()))
}
