//! Measures rows of the table of goals and writes `docs/benchmarks.md` and `docs/benchmarks.json`.
//!
//! `report` measures all rows and the comparison of rings; `report --row A1` measures one row and writes no file; `--json` prints
//! an object per row on one line each instead of the table. `--actors N` is for row A2, whose goal is a million. It runs in the
//! repository's root and needs the built guests: `cargo xtask bench-report` sees to both.

mod actors;
mod durable;
mod page;
mod ring;
mod row;

use std::process::ExitCode;

use row::Row;
use wasmkeep_benches::known::KNOWN_MIN;
use wasmkeep_benches::node;

/// Actors of row A2 unless told otherwise: a million of them are a million files, which takes a quarter of an hour.
const ACTORS_DEFAULT: u64 = 100_000;

/// What the command line asks for.
struct Asked {
    row: Option<String>,
    json: bool,
    actors: u64,
}

fn asked() -> Result<Asked, String> {
    let mut asked = Asked { row: None, json: false, actors: ACTORS_DEFAULT };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--json" => asked.json = true,
            "--row" => asked.row = Some(value()?),
            "--actors" => asked.actors = value()?.parse().map_err(|error| format!("--actors: {error}"))?,
            other => return Err(format!("{other}: there are --row ROW, --json and --actors N (a million is {KNOWN_MIN})")),
        }
    }
    Ok(asked)
}

/// Measures the rows that are asked for, in the table's order.
fn measure(asked: &Asked) -> Result<Vec<Row>, String> {
    let is_asked = |name: &str| asked.row.as_deref().is_none_or(|row| row == name);
    let mut rows = durable::rows(&is_asked);
    rows.extend(actors::rows(&is_asked, asked.actors));
    match &asked.row {
        Some(row) if rows.is_empty() => {
            Err(format!("row {row} is not among {} and {}", durable::NAMES.join(", "), actors::NAMES.join(", ")))
        }
        _ => Ok(rows),
    }
}

fn write(rows: &[Row]) -> std::io::Result<()> {
    let rings = ring::measure().unwrap_or_else(|error| format!("Not measured: {error}\n"));
    std::fs::write("docs/benchmarks.md", page::page(rows, &rings))?;
    let objects: Vec<_> = rows.iter().map(|row| format!("  {}", row.json())).collect();
    std::fs::write("docs/benchmarks.json", format!("[\n{}\n]\n", objects.join(",\n")))
}

fn run() -> Result<(), String> {
    let asked = asked()?;
    let rows = measure(&asked)?;
    if asked.json {
        rows.iter().for_each(|row| println!("{}", row.json()));
    } else {
        print!("{}", page::table(&rows));
    }
    if asked.row.is_none() {
        write(&rows).map_err(|error| format!("docs/: {error}; run it from the repository's root"))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    if let Some(status) = node::play_role() {
        return status;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("report: {error}");
            ExitCode::FAILURE
        }
    }
}
