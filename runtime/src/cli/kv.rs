//! `wasmkeep kv`: native key-value classes of a running node, through the service door that its admin listener offers.

use std::ffi::{OsStr, OsString};

use clap::{Args, Subcommand};
use http::header;
use serde_json::{Value as Json, json};

use super::kv_move::MoveCommand;
use super::output::{bytes_cell, print, print_bytes};
use super::reach::{Parameters, Reach, bytes, from_stdin, parse_class, parse_wait, request};
use crate::admin::client::{DoorAnswer, DoorRequest, encode};
use crate::door::{put_bytes, take_bytes};

/// Rows asked for at once.
const PAGE: u64 = 1000;

#[derive(Subcommand)]
pub(super) enum KvCommand {
    /// Print a key's value as it is
    Get {
        #[command(flatten)]
        key: Key,
        #[command(flatten)]
        reach: Reach,
    },
    /// Write what comes from standard input, all its bytes, and print the new version
    Put {
        #[command(flatten)]
        key: Key,
        /// Only if the key has this version
        #[arg(long, value_name = "VERSION", conflicts_with = "if_absent")]
        if_version: Option<i64>,
        /// Only if there is no such key
        #[arg(long)]
        if_absent: bool,
        /// Let the key end after so long, as 30s or 7d; without it, it lives on for ever
        #[arg(long, value_name = "DURATION", value_parser = parse_wait)]
        ttl: Option<String>,
        #[command(flatten)]
        how: How,
        #[command(flatten)]
        reach: Reach,
    },
    /// Delete a key
    Delete {
        #[command(flatten)]
        key: Key,
        /// Only if the key has this version
        #[arg(long, value_name = "VERSION")]
        if_version: Option<i64>,
        #[command(flatten)]
        how: How,
        #[command(flatten)]
        reach: Reach,
    },
    /// List keys in byte order, a line each: key, version and, if asked for, value, parted by tabs
    List {
        /// The class
        #[arg(value_name = "CLASS", value_parser = parse_class)]
        class: String,
        /// Of this beginning only
        #[arg(long, default_value = "")]
        prefix: OsString,
        /// Behind this key
        #[arg(long, value_name = "KEY")]
        after: Option<OsString>,
        /// At most so many; all without it
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
        /// With their values
        #[arg(long)]
        values: bool,
        #[command(flatten)]
        reach: Reach,
    },
    #[command(flatten)]
    Move(MoveCommand),
}

#[derive(Args)]
pub(super) struct Key {
    /// The class
    #[arg(value_name = "CLASS", value_parser = parse_class)]
    class: String,
    /// The key, any bytes
    key: OsString,
}

/// How a write is done.
#[derive(Args)]
pub(super) struct How {
    /// Do not wait for the disk: a crash may forget the write
    #[arg(long)]
    local: bool,
    /// An operation id: repeated with the same one within an hour, the write is done once
    #[arg(long, value_name = "ID")]
    op: Option<OsString>,
}

impl KvCommand {
    pub(super) fn run(self) -> Result<(), String> {
        match self {
            Self::Get { key, reach } => {
                let answer = reach.door(&request("GET", key.target(Parameters::default())))?;
                if reach.json {
                    print(&value(&key, &answer).to_string());
                } else {
                    print_bytes(&answer.body);
                }
                Ok(())
            }
            Self::Put { key, if_version, if_absent, ttl, how, reach } => {
                let parameters = how.parameters().with("ttl", ttl.as_deref().map(str::as_bytes));
                let mut headers = if_match(if_version);
                if if_absent {
                    headers.push(("if-none-match", "*".into()));
                }
                let target = key.target(parameters);
                let answer = reach.door(&DoorRequest { headers, body: from_stdin()?, ..request("PUT", target) })?;
                let version = version(&answer);
                print(&if reach.json { json!({ "version": version }).to_string() } else { version.to_string() });
                Ok(())
            }
            Self::Delete { key, if_version, how, reach } => {
                let target = key.target(how.parameters());
                reach.door(&DoorRequest { headers: if_match(if_version), ..request("DELETE", target) })?;
                if reach.json {
                    print(&json!({ "deleted": true }).to_string());
                }
                Ok(())
            }
            Self::List { class, prefix, after, limit, values, reach } => list(&class, &prefix, after, limit, values, &reach),
            Self::Move(command) => command.run(),
        }
    }
}

impl Key {
    fn target(&self, parameters: Parameters) -> String {
        parameters.of(&format!("/kv/{}/{}", self.class, encode(bytes(&self.key))))
    }
}

impl How {
    fn parameters(&self) -> Parameters {
        Parameters::default().flag("local", self.local).with("op", self.op.as_deref().map(bytes))
    }
}

fn if_match(version: Option<i64>) -> Vec<(&'static str, String)> {
    version.map(|version| ("if-match", format!("\"{version}\""))).into_iter().collect()
}

/// The version that the answer's ETag says.
fn version(answer: &DoorAnswer) -> Json {
    let tag = answer.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok());
    tag.and_then(|tag| tag.trim_matches('"').parse::<i64>().ok()).map_or(Json::Null, Json::from)
}

/// A key and what was read of it, bytes spelled as the door does in JSON.
fn value(key: &Key, answer: &DoorAnswer) -> Json {
    let mut object = serde_json::Map::new();
    put_bytes(&mut object, "key", bytes(&key.key));
    put_bytes(&mut object, "value", &answer.body);
    object.insert("version".into(), version(answer));
    let ttl_ms = answer.headers.get("x-wasmkeep-ttl-ms").and_then(|ms| ms.to_str().ok()?.parse::<u64>().ok());
    if let Some(ttl_ms) = ttl_ms {
        object.insert("ttl_ms".into(), ttl_ms.into());
    }
    object.into()
}

/// Rows page by page, each behind the last key of the one before. Pages get smaller if the values of one are too much at once.
fn list(
    class: &str,
    prefix: &OsStr,
    after: Option<OsString>,
    limit: Option<u64>,
    values: bool,
    reach: &Reach,
) -> Result<(), String> {
    let mut after = after.map(|after| bytes(&after).to_vec());
    let (mut left, mut page_rows) = (limit.unwrap_or(u64::MAX), PAGE);
    while left > 0 {
        let rows = left.min(page_rows).to_string();
        let parameters = Parameters::default()
            .with("prefix", Some(bytes(prefix)).filter(|prefix| !prefix.is_empty()))
            .with("after", after.as_deref())
            .with("limit", Some(rows.as_bytes()))
            .flag("values", values);
        let page = match reach.door_json(&request("GET", parameters.of(&format!("/kv/{class}")))) {
            Err(error) if error.starts_with("too-large") && page_rows > 1 => {
                page_rows /= 10;
                continue;
            }
            page => page?,
        };
        let rows = page.get("rows").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
        for row in rows {
            print(&if reach.json { row.to_string() } else { line(row) });
        }
        left = left.saturating_sub(rows.len() as u64);
        let last = rows.last().map(|row| take_bytes(row, "key")).transpose()?;
        if page.get("more") != Some(&Json::Bool(true)) || last.is_none() {
            break;
        }
        after = last;
    }
    Ok(())
}

fn line(row: &Json) -> String {
    let version = row.get("version").map(Json::to_string);
    [bytes_cell(row, "key"), version, bytes_cell(row, "value")].into_iter().flatten().collect::<Vec<_>>().join("\t")
}
