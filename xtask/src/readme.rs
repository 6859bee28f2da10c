//! The commands of README.md, run as printed.
//!
//! Blocks marked `console` are a dialogue: a line that begins with `$ ` is a command, the lines up to the next one are what it
//! prints. `$ cargo xtask demo` starts a node, or starts it again. Ports and data directory are replaced by private ones, so
//! that this runs beside anything else.

use crate::node::{self, Built, Place, Running};
use crate::shell::Shell;
use anyhow::{Context, Result, ensure};
use std::process::Command;

const START: &str = "cargo xtask demo";
const KILL: &str = "kill ";

/// One command and what it prints.
#[derive(PartialEq, Eq, Debug)]
struct Line {
    command: String,
    prints: String,
}

pub(crate) fn run(shell: &Shell) -> Result<()> {
    let lines = dialogue(&std::fs::read_to_string(shell.root.join("README.md"))?);
    ensure!(lines.iter().any(|line| line.command == START), "README.md never runs `{START}`");
    ensure!(lines.iter().filter(|line| line.command.starts_with("curl")).count() >= 3, "README.md shows too few curl lines");
    crate::tools::debian_packages(&["curl"])?;
    let built = node::build(shell)?;
    let dir = shell.target.join(format!("readme-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let place = node::private_place(&dir)?;
    let outcome = converse(&built, &place, &lines);
    std::fs::remove_dir_all(&dir)?;
    outcome
}

fn converse(built: &Built, place: &Place, lines: &[Line]) -> Result<()> {
    let mut running: Option<Running> = None;
    for line in lines {
        eprintln!("$ {}", line.command);
        if line.command == START {
            running = Some(Running::start(built, place)?);
            continue;
        }
        let printed = shell_prints(&relocate(&line.command, place))?;
        ensure!(
            printed.trim_end() == relocate(&line.prints, place).trim_end(),
            "`{}` prints\n{printed}\nbut README.md says\n{}",
            line.command,
            line.prints
        );
        if line.command.starts_with(KILL) {
            running.take().context("README.md kills a node that it has not started")?.wait()?;
        }
    }
    Ok(())
}

fn relocate(text: &str, place: &Place) -> String {
    text.replace("127.0.0.1:8080", &place.listen.to_string())
        .replace("127.0.0.1:9090", &place.admin.to_string())
        .replace("wasmkeep-data", &place.data.display().to_string())
}

fn shell_prints(command: &str) -> Result<String> {
    let output = Command::new("bash").args(["-c", command]).output().context("starting bash")?;
    ensure!(output.status.success(), "`{command}`: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn dialogue(markdown: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut inside = false;
    let mut continued = false;
    for text in markdown.lines() {
        if let Some(info) = text.strip_prefix("```") {
            inside = !inside && info == "console";
            continue;
        }
        if !inside {
            continue;
        }
        let command = text.strip_prefix("$ ");
        if let Some(command) = command {
            lines.push(Line { command: command.to_owned(), prints: String::new() });
        } else if let Some(line) = lines.last_mut() {
            let part = if continued { &mut line.command } else { &mut line.prints };
            part.push_str(text);
            part.push('\n');
        }
        continued = (command.is_some() || continued) && text.ends_with('\\');
        if continued && let Some(line) = lines.last_mut().filter(|_| command.is_some()) {
            line.command.push('\n');
        }
    }
    for line in &mut lines {
        line.command.truncate(line.command.trim_end().len());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_what_they_print_are_told_apart() {
        let markdown = "text\n```sh\n$ not run\n```\n```console\n$ one\n1\n2\n$ two \\\n   more\n$ three\n```\n$ outside\n";
        let line = |command: &str, prints: &str| Line { command: command.into(), prints: prints.into() };
        assert_eq!(dialogue(markdown), [line("one", "1\n2\n"), line("two \\\n   more", ""), line("three", "")]);
    }
}
