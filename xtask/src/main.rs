//! `cargo xtask TASK`: what this repository's developers and its CI do, as one program.
//!
//! It knows the other crates only by their names on cargo's command line, and starts everything it needs as a child process.

mod bench;
mod ci;
mod demo;
mod fuzz;
mod guests;
mod node;
mod readme;
mod shell;
mod test;
mod tools;

use clap::Parser;
use shell::Shell;
use std::process::ExitCode;

/// The project's tasks
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Build everything and serve all examples on all cores, in the foreground
    Demo(demo::Args),
    /// Build the guests and run the tests; filters choose tests by parts of their names
    Test {
        /// Parts of test names
        filters: Vec<String>,
    },
    /// Everything a change must pass: format, lints, licences, docs, tests, README, benches
    Ci,
    /// Kill a node under load again and again, and look for acknowledged writes that are gone
    KillTest {
        /// How often
        #[arg(long, default_value_t = 200)]
        kills: u32,
    },
    /// Give the state machines of key-value and queues arbitrary messages
    Fuzz {
        /// For how long
        #[arg(long, default_value_t = fuzz::CI_SECONDS)]
        seconds: u32,
    },
    /// Measure the rows of the table of goals and write docs/benchmarks.md and docs/benchmarks.json
    BenchReport(bench::Args),
    /// Build the components of examples and tests, and print where they are
    Guests,
    /// Run the commands of README.md against a node and compare what they print
    Readme,
}

fn main() -> ExitCode {
    match run(Task::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    let shell = Shell::open()?;
    match task {
        Task::Demo(args) => demo::run(&shell, &args),
        Task::Test { filters } => test::all(&shell, &filters),
        Task::Ci => ci::run_everything(&shell),
        Task::KillTest { kills } => test::kill(&shell, kills),
        Task::Fuzz { seconds } => fuzz::messages(&shell, seconds),
        Task::BenchReport(args) => bench::report(&shell, &args),
        Task::Guests => {
            println!("{}", guests::build(&shell)?.display());
            Ok(())
        }
        Task::Readme => readme::run(&shell),
    }
}
