//! `cargo xtask ci`: all checks, each timed, all of them run even if one fails, a summary at the end.

use crate::shell::{Shell, run, succeeds};
use crate::{bench, fuzz, readme, test, tools};
use anyhow::{Result, bail};
use std::time::{Duration, Instant};

type Step = fn(&Shell) -> Result<()>;

/// In this order, so that what is quick and what others build upon comes first.
const STEPS: [(&str, Step); 8] = [
    ("format", format),
    ("licences", licences),
    ("clippy", clippy),
    ("docs", docs),
    ("tests", |shell| test::all(shell, &[])),
    ("fuzz", |shell| fuzz::messages(shell, fuzz::CI_SECONDS)),
    ("readme", readme::run),
    ("benches", bench::smoke),
];

fn run_all(shell: &Shell) -> Vec<(&'static str, Duration, Result<()>)> {
    let timed = |(name, step): (&'static str, Step)| {
        eprintln!("\n=== {name}");
        let start = now();
        let result = step(shell);
        let took = start.elapsed();
        let outcome = result.as_ref().map_or_else(|error| format!("FAILED: {error:#}"), |()| "passed".to_owned());
        eprintln!("=== {name}: {outcome} ({:.0} s)", took.as_secs_f64());
        (name, took, result)
    };
    STEPS.into_iter().map(timed).collect()
}

pub(crate) fn run_everything(shell: &Shell) -> Result<()> {
    let start = now();
    let results = run_all(shell);
    println!("\n=== summary after {:.0} s", start.elapsed().as_secs_f64());
    for (name, took, result) in &results {
        let outcome = result.as_ref().map_or_else(|error| format!("FAILED: {error:#}"), |()| "passed".to_owned());
        println!("{name:<10} {:>5.0} s  {outcome}", took.as_secs_f64());
    }
    let failed = results.iter().filter(|(_, _, result)| result.is_err()).count();
    println!("steps: {} passed, {failed} failed", results.len() - failed);
    if failed > 0 {
        bail!("{failed} of {} steps failed", results.len());
    }
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "a task measures its own steps; there is no node here whose time could be injected")]
fn now() -> Instant {
    Instant::now()
}

fn format(shell: &Shell) -> Result<()> {
    run(&mut shell.cargo(["fmt", "--all", "--check"]))
}

fn clippy(shell: &Shell) -> Result<()> {
    run(&mut shell.cargo(["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn docs(shell: &Shell) -> Result<()> {
    run(shell.cargo(["doc", "--locked", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Licences, banned crates and sources always; known vulnerabilities where their database can be fetched.
fn licences(shell: &Shell) -> Result<()> {
    let Some(deny) = tools::deny(shell)? else { return Ok(()) };
    let command = |args: &[&str]| {
        let mut command = shell.program(&deny);
        command.args(["--log-level", "warn", "--all-features"]).args(args);
        command
    };
    run(&mut command(&["check", "--hide-inclusion-graph", "licenses", "bans", "sources"]))?;
    if !succeeds(&mut command(&["fetch", "db"])) {
        eprintln!("The advisory database cannot be reached: known vulnerabilities are not looked for in this run.");
        return Ok(());
    }
    run(&mut command(&["check", "--disable-fetch", "advisories"]))
}
