//! `cargo xtask fuzz`: arbitrary messages to the state machines of key-value and queues, for as long as one likes.

use crate::shell::{Shell, run};
use anyhow::Result;

/// How long a run in CI takes, s.
pub(crate) const CI_SECONDS: u32 = 60;
/// How long the fuzzing tests go on; without it they take a fixed number of inputs.
const SECONDS_VARIABLE: &str = "WASMKEEP_FUZZ_SECONDS";

/// Not optimised: overflows are checked then, which is half of what it finds, and SQLite is optimised all the same.
pub(crate) fn messages(shell: &Shell, seconds: u32) -> Result<()> {
    let mut command = shell.cargo(["test", "--locked", "--package", "wasmkeep-classes", "--lib"]);
    command.args(["--", "--nocapture", "fuzz::"]);
    run(command.env(SECONDS_VARIABLE, seconds.to_string()))
}
