//! `cargo xtask bench-report`: the rows of the table of goals, measured; and the smoke test of all benches for `cargo xtask ci`.

use crate::guests;
use crate::shell::{Shell, run};
use crate::test::GUESTS_VARIABLE;
use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// One row only, for example D1 or A3; writes no file
    #[arg(long)]
    row: Option<String>,
    /// Print one JSON object per row, each on one line, and nothing else to the standard output
    #[arg(long)]
    json: bool,
    /// Actors made for row A2, whose goal is 1000000
    #[arg(long)]
    actors: Option<u64>,
}

/// Builds the guests and the report, and runs it. What is built says so on the error output.
pub(crate) fn report(shell: &Shell, args: &Args) -> Result<()> {
    let guests = guests::build(shell)?;
    let mut command = shell.cargo(["run", "--locked", "--release", "--package", "wasmkeep-benches", "--bin", "report", "--"]);
    if let Some(row) = &args.row {
        command.args(["--row", row]);
    }
    if args.json {
        command.arg("--json");
    }
    if let Some(actors) = args.actors {
        command.args(["--actors", &actors.to_string()]);
    }
    run(command.env(GUESTS_VARIABLE, guests))
}

/// Each bench once and as short as it can be: it must run, that is all.
pub(crate) fn smoke(shell: &Shell) -> Result<()> {
    let guests = guests::build(shell)?;
    let mut benches = shell.cargo(["bench", "--locked", "--package", "wasmkeep-benches", "--benches", "--", "--test"]);
    run(benches.env(GUESTS_VARIABLE, guests))?;
    run(&mut shell.cargo(["run", "--locked", "--release", "--package", "wasmkeep-compare", "--", "ring", "--quick"]))
}
