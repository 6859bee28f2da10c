//! `wasmkeep actor`: what a running node says about its actors.

use std::io::Write;

use clap::Subcommand;
use serde_json::Value as Json;
use wasmkeep_storage::Address;

use super::Reach;
use crate::admin::AdminRequest;
use crate::admin::client::AdminClient;
use crate::config::{Secret, check_actor_name, check_class_name};

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

/// `class/name`, the name as it is, not percent-encoded.
fn parse_address(text: &str) -> Result<Address, String> {
    let (class, name) = text.split_once('/').ok_or("an address is CLASS/NAME")?;
    check_class_name(class)?;
    check_actor_name(name)?;
    Ok(Address::new(class, name))
}

impl ActorCommand {
    pub(super) fn run(self) -> Result<(), String> {
        match self {
            Self::List { class, reach } => list(class.as_deref(), &reach),
            Self::Show { address, reach } => {
                let actor = client(&reach)?.ask(&AdminRequest::Show(address))?;
                print(&if reach.json { actor.to_string() } else { fields(&actor, "\n") });
                Ok(())
            }
            Self::Sql { address, sql, reach } => {
                let answer = client(&reach)?.ask(&AdminRequest::Sql { address, sql })?;
                print(&if reach.json { answer.to_string() } else { table(&answer) });
                Ok(())
            }
        }
    }
}

fn client(reach: &Reach) -> Result<AdminClient, String> {
    let read = |path| std::fs::read_to_string(path).map_err(|error| format!("--admin-token: {error}"));
    let token = reach.admin_token.as_ref().map(read).transpose()?.map(|token| Secret(token.trim().to_string()));
    Ok(AdminClient { address: reach.admin, token })
}

/// One actor a line, page by page.
fn list(class: Option<&str>, reach: &Reach) -> Result<(), String> {
    let client = client(reach)?;
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

/// An object as `address`, then `name=value` each.
fn fields(object: &Json, separator: &str) -> String {
    let mut parts: Vec<String> = object.get("address").map(cell).into_iter().collect();
    let rest = object.as_object().into_iter().flatten().filter(|(name, _)| *name != "address");
    parts.extend(rest.map(|(name, value)| format!("{name}={}", cell(value))));
    parts.join(separator)
}

/// Rows with a head, or how many rows a statement changed.
fn table(answer: &Json) -> String {
    let list = |value: &Json| value.as_array().into_iter().flatten().map(cell).collect::<Vec<_>>().join("\t");
    let columns = answer.get("columns").map(list).unwrap_or_default();
    if columns.is_empty() {
        return format!("{} row(s) changed", answer.get("changed").map_or_else(|| "0".into(), cell));
    }
    let rows = answer.get("rows").and_then(Json::as_array).into_iter().flatten().map(list);
    std::iter::once(columns).chain(rows).collect::<Vec<_>>().join("\n")
}

/// A value on a terminal: nothing in it can move the cursor or break the table.
fn cell(value: &Json) -> String {
    match value {
        Json::Null => "NULL".into(),
        Json::String(text) => {
            text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
        }
        other => other.to_string(),
    }
}

/// Prints a line; a reader that has gone, as `head` does, ends the output quietly.
pub(super) fn print(line: &str) {
    let _reader_is_gone = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_have_a_head_and_no_control_characters() {
        let answer = json!({"columns": ["a", "b"], "rows": [[1, "x\ty\u{1b}"], [null, {"hex": "00"}]]});
        assert_eq!(table(&answer), "a\tb\n1\tx\\ty\\u{1b}\nNULL\t{\"hex\":\"00\"}");
        assert_eq!(table(&json!({"columns": [], "rows": [], "changed": 3})), "3 row(s) changed");
    }

    #[test]
    fn addresses_on_the_command_line_are_not_encoded() {
        assert_eq!(parse_address("c/a/b%2F").expect("valid").name.as_ref(), "a/b%2F");
        for text in ["c", "c/", "C/x", "c/\u{7}"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
