//! `wasmkeep kv show|reshard|import`: a whole key-value class of a running node. The node does the work; these start and watch it.

use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value as Json, json};

use super::output::print;
use super::reach::{Reach, parse_class, request};
use crate::admin::client::DoorRequest;

/// How often a move is looked at.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Subcommand)]
pub(super) enum MoveCommand {
    /// Show a class's number of shards and the last move of its keys
    Show {
        /// The class
        #[arg(value_name = "CLASS", value_parser = parse_class)]
        class: String,
        #[command(flatten)]
        reach: Reach,
    },
    /// Move a class's keys to another number of shards
    ///
    /// While they are copied the class serves reads and refuses writes. A move that was interrupted goes on when it is asked for
    /// again; until the copy is complete, asking for the old number gives it up.
    Reshard {
        /// The class
        #[arg(value_name = "CLASS", value_parser = parse_class)]
        class: String,
        /// The new number of shards, 1 to 4096
        #[arg(value_name = "SHARDS")]
        shards: u32,
        #[command(flatten)]
        reach: Reach,
    },
    /// Copy another class's keys, with their values and ends, into a class
    ///
    /// The other class may be a component's; it serves on and keeps its keys. Without --overwrite, keys that are there already stay
    /// as they are.
    Import {
        /// The class that is written
        #[arg(value_name = "CLASS", value_parser = parse_class)]
        class: String,
        /// The class that is read
        #[arg(long, value_name = "CLASS", value_parser = parse_class)]
        from: String,
        /// How many shards that one has, if its first shard was never written
        #[arg(long, value_name = "SHARDS")]
        from_shards: Option<u32>,
        /// Write over keys that are there already
        #[arg(long)]
        overwrite: bool,
        #[command(flatten)]
        reach: Reach,
    },
}

impl MoveCommand {
    pub(super) fn run(self) -> Result<(), String> {
        match self {
            Self::Show { class, reach } => {
                let status = show(&class, &reach)?;
                print(&if reach.json { status.to_string() } else { lines(&status) });
                Ok(())
            }
            Self::Reshard { class, shards, reach } => {
                let end = watch(&class, "reshard", &json!({ "shards": shards }), &reach)?;
                if !reach.json {
                    print(&format!("{} rows copied; write shards = {shards} in [kv.{class}] before the next start", rows(&end)));
                }
                Ok(())
            }
            Self::Import { class, from, from_shards, overwrite, reach } => {
                let asked = json!({ "from": from, "from_shards": from_shards, "overwrite": overwrite });
                let end = watch(&class, "import", &asked, &reach)?;
                if !reach.json {
                    print(&format!("{} rows copied", rows(&end)));
                }
                Ok(())
            }
        }
    }
}

fn show(class: &str, reach: &Reach) -> Result<Json, String> {
    reach.door_json(&request("GET", format!("/admin/kv/{class}")))
}

/// Starts a move and waits for its end, which it prints if that is to be JSON; says on standard error what the move is doing.
fn watch(class: &str, operation: &str, asked: &Json, reach: &Reach) -> Result<Json, String> {
    let target = format!("/admin/kv/{class}/{operation}");
    let body = asked.to_string().into_bytes();
    let mut status = reach.door_json(&DoorRequest { body, is_json: true, ..request("POST", target) })?;
    let mut said = String::new();
    loop {
        let field = |name: &str| status["move"][name].as_str().unwrap_or_default().to_owned();
        let step = field("step");
        if step != said && !step.is_empty() {
            eprintln!("{step}");
            said = step;
        }
        match field("state").as_str() {
            "running" => std::thread::sleep(LOOK),
            "failed" => return Err(field("error")),
            "done" => break,
            // Its node has started anew meanwhile and knows of none.
            _ => return Err("the node was restarted, which ends a move; ask for it again, and it goes on".into()),
        }
        status = show(class, reach)?;
    }
    if reach.json {
        print(&status.to_string());
    }
    Ok(status)
}

fn rows(status: &Json) -> u64 {
    status["move"]["rows"].as_u64().unwrap_or(0)
}

/// `shards 8`, and what became of the last move.
fn lines(status: &Json) -> String {
    let shards = format!("shards\t{}", status["shards"]);
    let last = &status["move"];
    let field = |name: &str| last[name].as_str();
    let Some((what, state)) = field("what").zip(field("state")) else { return shards };
    let detail = field("error").or(field("step")).unwrap_or_default();
    format!("{shards}\nmove\t{what}: {state}, {} rows copied; {detail}", rows(status))
}
