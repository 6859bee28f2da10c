//! Peers measured beside our own code, in the same process and the same run.
//!
//! `wasmkeep-compare ring` compares ways for a core to write its journal; `--quick` runs each once and shortly, `--json` prints
//! one object per line. It is a program of its own so that the peers' crates are no dependencies of anything else.

mod ring;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| args.iter().any(|arg| arg == name);
    let known = |arg: &String| ["ring", "--quick", "--json"].contains(&arg.as_str());
    if args.first().is_none_or(|what| what != "ring") || !args.iter().all(known) {
        eprintln!("usage: wasmkeep-compare ring [--quick] [--json]");
        return ExitCode::from(2);
    }
    let cells = ring::compare(flag("--quick"));
    print!("{}", if flag("--json") { ring::json(&cells) } else { ring::table(&cells) });
    ExitCode::SUCCESS
}
