//! `wasmkeep actor`: what a running node says about its actors.

use clap::Subcommand;
use serde_json::Value as Json;
use wasmkeep_storage::Address;

use super::output::{fields, print, table};
use super::reach::{Reach, parse_address};
use crate::admin::AdminRequest;

/// Actors asked for at once.
const PAGE: usize = 1000;

#[derive(Subcommand)]
pub(super) enum ActorCommand {
    /// List actors, by address
    List {
        /// Of this class only
        class: Option<String>,
        #[command(flatten)]
        reach: Reach,
    },
    /// Show one actor
    Show {
        /// Its address
        #[arg(value_name = "CLASS/NAME", value_parser = parse_address)]
        address: Address,
        #[command(flatten)]
        reach: Reach,
    },
    /// Run a statement in one actor's database, as one of its events
    Sql {
        /// Its address
        #[arg(value_name = "CLASS/NAME", value_parser = parse_address)]
        address: Address,
        /// The statement
        sql: String,
        #[command(flatten)]
        reach: Reach,
    },
}

impl ActorCommand {
    pub(super) fn run(self) -> Result<(), String> {
        match self {
            Self::List { class, reach } => list(class.as_deref(), &reach),
            Self::Show { address, reach } => {
                let actor = reach.client()?.ask(&AdminRequest::Show(address))?;
                print(&if reach.json { actor.to_string() } else { fields(&actor, "\n") });
                Ok(())
            }
            Self::Sql { address, sql, reach } => {
                let answer = reach.client()?.ask(&AdminRequest::Sql { address, sql })?;
                print(&if reach.json { answer.to_string() } else { table(&answer) });
                Ok(())
            }
        }
    }
}

/// One actor a line, page by page.
fn list(class: Option<&str>, reach: &Reach) -> Result<(), String> {
    let client = reach.client()?;
    let mut after = None;
    loop {
        let page = client.ask(&AdminRequest::List { class: class.map(String::from), after, limit: PAGE })?;
        for actor in page.get("actors").and_then(Json::as_array).into_iter().flatten() {
            print(&if reach.json { actor.to_string() } else { fields(actor, "\t") });
        }
        after = page.get("next").and_then(Json::as_str).map(String::from);
        if after.is_none() {
            return Ok(());
        }
    }
}
