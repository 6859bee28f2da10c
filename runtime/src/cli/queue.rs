//! `wasmkeep queue`: native queues of a running node, through the service door that its admin listener offers.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};
use wasmkeep_storage::Address;

use super::output::{bytes_cell, cell, fields, print};
use super::reach::{Parameters, Reach, bytes, from_stdin, parse_address, parse_wait, request};
use crate::admin::client::{DoorRequest, encode};
use crate::config::parse_duration;

/// Dead letters asked for at once.
const PAGE: u64 = 100;

#[derive(Subcommand)]
pub(super) enum QueueCommand {
    /// Show a queue in numbers
    Stats {
        #[command(flatten)]
        queue: Queue,
    },
    /// Send what comes from standard input, all its bytes, as one message, and print its id
    Send {
        #[command(flatten)]
        queue: Queue,
        /// Do not hand it out before so long, as 30s or 7d
        #[arg(long, value_name = "DURATION", value_parser = parse_wait)]
        delay: Option<String>,
        /// A dedupe id: sent again with the same one within the class's window, the message is kept once
        #[arg(long, value_name = "ID")]
        dedupe: Option<OsString>,
        /// An ordering key, in classes that have them
        #[arg(long)]
        key: Option<OsString>,
    },
    /// List dead letters by id: id, attempts, reason and body, parted by tabs
    Dead {
        #[command(flatten)]
        queue: Queue,
        /// Behind this id
        #[arg(long, value_name = "ID", default_value_t = 0)]
        after: u64,
        /// At most so many; all without it
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// Make dead letters messages again
    Redrive {
        #[command(flatten)]
        queue: Queue,
        #[command(flatten)]
        which: WhichDead,
    },
    /// Delete dead letters, or the messages that wait
    Purge {
        #[command(flatten)]
        queue: Queue,
        #[command(flatten)]
        which: WhichDead,
        /// Not dead letters: all messages that the queue has now
        #[arg(long, group = "which")]
        live: bool,
    },
    /// Stop leases and deliveries; messages are still accepted
    Pause {
        #[command(flatten)]
        queue: Queue,
    },
    /// Go on with leases and deliveries
    Resume {
        #[command(flatten)]
        queue: Queue,
    },
}

#[derive(Args)]
pub(super) struct Queue {
    /// The queue's address
    #[arg(value_name = "CLASS/NAME", value_parser = parse_address)]
    address: Address,
    #[command(flatten)]
    reach: Reach,
}

/// Which dead letters. One of them must be said.
#[derive(Args)]
#[group(id = "which", required = true, multiple = false)]
pub(super) struct WhichDead {
    /// The dead letter of this id; may be given many times
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<u64>,
    /// Those that failed for good so long ago or longer, as 1h or 7d
    #[arg(long, value_name = "DURATION", value_parser = parse_wait)]
    older_than: Option<String>,
    /// All of them
    #[arg(long)]
    all: bool,
}

impl WhichDead {
    /// As the door takes it.
    fn form(&self) -> Result<Json, String> {
        let Some(age) = &self.older_than else {
            return Ok(if self.all { json!({ "dead_older_than_ms": 0 }) } else { json!({ "dead_ids": self.ids }) });
        };
        let age_ms = u64::try_from(parse_duration(age)?.as_millis()).unwrap_or(u64::MAX);
        Ok(json!({ "dead_older_than_ms": age_ms }))
    }
}

impl QueueCommand {
    pub(super) fn run(self) -> Result<(), String> {
        match self {
            Self::Stats { queue } => {
                let stats = queue.json("GET", "/stats")?;
                print(&if queue.reach.json { stats.to_string() } else { numbers(&stats) });
                Ok(())
            }
            Self::Send { queue, delay, dedupe, key } => {
                let parameters = Parameters::default()
                    .with("delay", delay.as_deref().map(str::as_bytes))
                    .with("dedupe", dedupe.as_deref().map(bytes))
                    .with("key", key.as_deref().map(bytes));
                let target = parameters.of(&queue.path(""));
                let sent = queue.reach.door_json(&DoorRequest { body: from_stdin()?, ..request("POST", target) })?;
                print(&if queue.reach.json { sent.to_string() } else { sent.get("id").map(cell).unwrap_or_default() });
                Ok(())
            }
            Self::Dead { queue, after, limit } => dead(&queue, after, limit),
            Self::Redrive { queue, which } => queue.move_all("/redrive", which.form()?, "redriven"),
            Self::Purge { queue, live: true, .. } => queue.move_all("/purge", json!({ "live": true }), "purged"),
            Self::Purge { queue, which, .. } => queue.move_all("/purge", which.form()?, "purged"),
            Self::Pause { queue } => queue.switch("/pause", true),
            Self::Resume { queue } => queue.switch("/resume", false),
        }
    }
}

impl Queue {
    fn path(&self, what: &str) -> String {
        format!("/queues/{}/{}{what}", self.address.class, encode(self.address.name.as_bytes()))
    }

    fn json(&self, method: &'static str, what: &str) -> Result<Json, String> {
        self.reach.door_json(&request(method, self.path(what)))
    }

    fn switch(&self, what: &str, is_paused: bool) -> Result<(), String> {
        self.reach.door(&request("POST", self.path(what)))?;
        if self.reach.json {
            print(&json!({ "paused": is_paused }).to_string());
        }
        Ok(())
    }

    /// Asks a batch at a time until there is no next one. A failure says how many were moved before.
    fn move_all(&self, what: &str, first: Json, word: &str) -> Result<(), String> {
        let (mut count, mut next) = (0, first);
        while !next.is_null() {
            let asked = DoorRequest { body: next.to_string().into(), is_json: true, ..request("POST", self.path(what)) };
            let mut moved = self.reach.door_json(&asked).map_err(|error| format!("{error} ({count} {word} before)"))?;
            count += moved.get("count").and_then(Json::as_u64).unwrap_or(0);
            next = moved.get_mut("next").map_or(Json::Null, Json::take);
        }
        print(&if self.reach.json { json!({ "count": count }).to_string() } else { format!("{count} {word}") });
        Ok(())
    }
}

/// A number a line, those since the queue was opened under names of their own.
fn numbers(stats: &Json) -> String {
    let lines = stats.as_object().into_iter().flatten().map(|(name, value)| match value.as_object() {
        Some(_) => format!("{name}: {}", fields(value, " ")),
        None => format!("{name}={}", cell(value)),
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn dead(queue: &Queue, mut after: u64, limit: Option<u64>) -> Result<(), String> {
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0 {
        let page = queue.json("GET", &format!("/dead?after={after}&limit={}", left.min(PAGE)))?;
        let letters = page.get("letters").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
        for letter in letters {
            print(&if queue.reach.json { letter.to_string() } else { line(letter) });
        }
        left = left.saturating_sub(letters.len() as u64);
        let last = letters.last().and_then(|letter| letter.get("id")).and_then(Json::as_u64);
        match last {
            Some(last) if page.get("more") == Some(&Json::Bool(true)) => after = last,
            _ => break,
        }
    }
    Ok(())
}

fn line(letter: &Json) -> String {
    let known = ["id", "attempts", "reason"].map(|name| letter.get(name).map(cell).unwrap_or_default());
    format!("{}\t{}", known.join("\t"), bytes_cell(letter, "body").unwrap_or_default())
}
