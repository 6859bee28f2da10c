//! The comparison of rings, which is a program of its own: its peers are no dependencies of ours.

use std::process::Command;

/// How it is run.
pub(crate) const COMMAND: &str = "cargo run --release --locked -p wasmkeep-compare -- ring";

/// Builds and runs it; returns its table.
pub(crate) fn measure() -> Result<String, String> {
    let mut words = COMMAND.split(' ');
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| words.next().unwrap_or_default().into());
    let output = Command::new(cargo).args(COMMAND.split(' ').skip(1)).output().map_err(|error| format!("{COMMAND}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{COMMAND}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{COMMAND}: {error}"))
}
