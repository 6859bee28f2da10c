//! The application's face: takes deliveries over HTTP and hands them to the queue.
//!
//! | request | answer |
//! | --- | --- |
//! | `POST /deliveries?delay=S&dedupe=ID` with `{"to": "class/name", "body": "..."}` | 202, the message's id |
//! | `GET /queue` | the queue in numbers |
//! | `POST /queue/pause`, `POST /queue/resume` | 204 |
//! | `GET /dead?after=ID` | dead letters, with the reason of each |
//! | `POST /dead/redrive`, `POST /dead/purge`, both with `?id=ID` for one | how many |
//! | `PUT /addresses/NAME` with `class/name`, `DELETE /addresses/NAME` | 204; `to` may be NAME from then on |
//! | `GET /addresses` | their names |
//! | `PUT /digest?every=S` with a delivery | sends it again and again, until `DELETE /digest` |

mod addresses;
mod digest;

use serde::{Deserialize, Serialize};
use std::time::Duration;
use wasmkeep_sdk::queue::{Client, Message, Moved, Which};
use wasmkeep_sdk::{Actor, Error, Request, Response, json, serde_json};

/// What the queue carries.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Delivery {
    /// `class/name`; what a caller sends may be a name of the address book.
    to: String,
    body: String,
}

struct Web;

impl Actor for Web {
    fn init() -> Result<(), Error> {
        digest::create_schema()
    }

    fn request(request: Request) -> Result<Response, Error> {
        match (request.method(), request.segments().as_slice()) {
            ("POST", ["deliveries"]) => enqueue(&request),
            ("GET", ["queue"]) => stats(),
            ("POST", ["queue", "pause"]) => Ok(queue().pause().map(|()| Response::no_content())?),
            ("POST", ["queue", "resume"]) => Ok(queue().resume().map(|()| Response::no_content())?),
            ("GET", ["dead"]) => dead_letters(&request),
            ("POST", ["dead", "redrive"]) => all("redriven", &request, |which| queue().redrive(which)),
            ("POST", ["dead", "purge"]) => all("purged", &request, |which| queue().purge(which)),
            ("PUT", ["addresses", name]) => addresses::put(name, &request),
            ("DELETE", ["addresses", name]) => addresses::delete(name),
            ("GET", ["addresses"]) => addresses::list(),
            ("PUT", ["digest"]) => digest::start(&request),
            ("DELETE", ["digest"]) => digest::stop(),
            _ => Err(Error::not_found(format!("no {} {}", request.method(), request.path()))),
        }
    }

    fn alarm(_attempt: u32) -> Result<(), Error> {
        digest::send_due()
    }
}

fn queue() -> Client {
    Client::new("jobs-queue/main")
}

/// Accepted means kept: by the time that this answers the message is on disk.
fn enqueue(request: &Request) -> Result<Response, Error> {
    let body = read_delivery(request)?;
    let delay = number(request, "delay")?.unwrap_or(0);
    let dedupe_id = request.query("dedupe");
    let mut message = Message::new(&body).after(Duration::from_secs(delay));
    if let Some(id) = &dedupe_id {
        message = message.dedupe_id(id);
    }
    let sent = queue().send_message(message)?;
    Ok(Response::json(&json!({ "id": sent.id, "duplicate": sent.is_duplicate })).with_status(202))
}

/// A delivery as bytes, once it is known to be one.
fn read_delivery(request: &Request) -> Result<Vec<u8>, Error> {
    let mut delivery: Delivery = request.json()?;
    delivery.to = addresses::resolve(delivery.to)?;
    Ok(serde_json::to_vec(&delivery)?)
}

fn stats() -> Result<Response, Error> {
    let stats = queue().stats()?;
    Ok(Response::json(&json!({
        "visible": stats.visible,
        "delayed": stats.delayed,
        "leased": stats.leased,
        "dead": stats.dead,
        "paused": stats.is_paused,
    })))
}

fn dead_letters(request: &Request) -> Result<Response, Error> {
    let page = queue().dead_letters(number(request, "after")?.unwrap_or(0), 50)?;
    let letter = |letter: &wasmkeep_sdk::queue::DeadLetter| {
        let body = String::from_utf8_lossy(&letter.body).into_owned();
        json!({ "id": letter.id, "attempts": letter.attempts, "reason": letter.reason, "body": body })
    };
    let letters: Vec<_> = page.letters.iter().map(letter).collect();
    Ok(Response::json(&json!({ "dead": letters, "more": page.has_more })))
}

/// Does to one dead letter or to all what `one_batch` does to some of them.
fn all(
    done: &str,
    request: &Request,
    one_batch: impl Fn(&Which) -> Result<Moved, wasmkeep_sdk::queue::Error>,
) -> Result<Response, Error> {
    let mut next = Some(match number(request, "id")? {
        Some(id) => Which::DeadIds(vec![id]),
        None => Which::DeadOlderThan { age_ms: 0 },
    });
    let mut count = 0;
    while let Some(which) = next {
        let moved = one_batch(&which)?;
        count += moved.count;
        next = moved.next;
    }
    Ok(Response::json(&json!({ done: count })))
}

fn number(request: &Request, name: &str) -> Result<Option<u64>, Error> {
    let read = |text: String| text.parse().map_err(|_| Error::invalid(format!("{name} is a whole number")));
    request.query(name).map(read).transpose()
}

wasmkeep_sdk::export!(Web);
