//! The command line: `--help` reads as documentation, errors are one line on stderr, exit statuses are typed.

mod actor;
mod kv;
mod kv_move;
mod output;
mod queue;
mod reach;
mod serve;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::{ConfigError, Settings, load_with};
use crate::core;
use crate::fatal::Fatal;

const AFTER_HELP: &str = "\
Every setting of `serve` is a flag, an environment variable and a key of the file, in this order of precedence:
  wasmkeep serve --event-wall 10s     WASMKEEP_EVENT_WALL=10s     [node] event-wall = \"10s\" in wasmkeep.toml

A file with one class of actors, served at http://127.0.0.1:8080/counter/{name}:
  app = \"acme/shop\"
  [actors.counter]
  component = \"counter.wasm\"
  access = \"public\"                # or \"internal\": only other actors may call it
  env = { STEP = \"1\" }

Exit statuses: 0 stopped as asked, 2 wrong command line, 3 wrong configuration, 4 a component cannot be served, 5 the data
directory is in use, 6 it cannot be used, 7 storage failed, 8 an address cannot be listened on, 9 the system refused something,
1 another error, 70 a bug; 130 and 143: a second SIGINT or SIGTERM.";

/// A node that runs WebAssembly actors, each with its own SQLite database and durable writes
#[derive(Parser)]
#[command(name = "wasmkeep", version, after_help = AFTER_HELP, max_term_width = 132)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a node
    ///
    /// Serves each class of actors at http://LISTEN/{class}/{name}/{path...}. SIGTERM or SIGINT drains and stops; a second one
    /// ends the process at once; SIGHUP takes access and variables anew from the configuration.
    Serve(Box<Settings>),
    /// Check a configuration file and the components it names, without running anything
    Check {
        /// The file
        #[arg(value_name = "FILE", default_value = "wasmkeep.toml")]
        file: PathBuf,
    },
    /// Look at actors of a running node
    #[command(subcommand)]
    Actor(actor::ActorCommand),
    /// Read, write and move native key-value classes of a running node
    #[command(subcommand)]
    Kv(kv::KvCommand),
    /// Look after native queues of a running node
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Look at a journal file
    #[command(subcommand)]
    Journal(JournalCommand),
}

#[derive(Subcommand)]
enum JournalCommand {
    /// Describe a journal file: its groups, whose commits they hold, and where it ends or is damaged
    Inspect {
        /// The file
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(settings) => serve::serve(&settings).map_err(Failure::from),
        Command::Check { file } => check(&file).map_err(Failure::from),
        Command::Actor(command) => command.run().map_err(Failure::Other),
        Command::Kv(command) => command.run().map_err(Failure::Other),
        Command::Queue(command) => command.run().map_err(Failure::Other),
        Command::Journal(JournalCommand::Inspect { file, json }) => {
            core::inspect_journal(&file, json).map(|text| output::print(&text)).map_err(Failure::from)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Fatal(fatal)) => {
            eprintln!("wasmkeep: {fatal}");
            ExitCode::from(fatal.exit_status())
        }
        Err(Failure::Other(text)) => {
            eprintln!("wasmkeep: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Why a command failed.
enum Failure {
    Fatal(Fatal),
    Other(String),
}

impl From<Fatal> for Failure {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}

/// `wasmkeep check`: the file alone, whatever flags and environment would add.
fn check(file: &Path) -> Result<(), Fatal> {
    let settings = Settings { config: Some(file.to_path_buf()), ..Settings::default() };
    let config = load_with(&settings, &|_| None)?;
    let mut problems = Vec::new();
    for class in &config.classes {
        if let Err(problem) = core::check_component(&class.component) {
            problems.push(format!("class {}: {problem}", class.name));
        }
    }
    if !problems.is_empty() {
        return Err(ConfigError { problems }.into());
    }
    println!("{}: ok, {} class(es) of app {}", file.display(), config.classes.len() + config.natives.len(), config.app);
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_of_serve_says_its_environment_variable() {
        let mut command = Cli::command();
        let serve = command.find_subcommand_mut("serve").expect("there is serve");
        for flag in serve.get_arguments().filter(|flag| flag.get_long() != Some("help")) {
            let name = flag.get_long().expect("serve has flags only");
            let variable = format!("WASMKEEP_{}", name.to_uppercase().replace('-', "_"));
            let by_clap = flag.get_env().is_some_and(|env| env == variable.as_str());
            let by_hand = flag.get_help().is_some_and(|help| help.to_string().contains(&format!("[env: {variable},")));
            assert!(by_clap || by_hand, "--{name} has no {variable}");
        }
    }
}
