//! Queues: sending to them, asking them, and taking what they deliver.

use crate::{count, flag, harm, keep, number, required};
use wasmkeep_sdk::actors::{self, Address};
use wasmkeep_sdk::classes::queue::client::{self, Call};
use wasmkeep_sdk::classes::queue::protocol::{Message, Outcome, Settlement};
use wasmkeep_sdk::classes::queue::{decode_delivery, encode_outcomes};
use wasmkeep_sdk::queue::{Handled, handle_delivery};
use wasmkeep_sdk::{Error, Request, Response, db, env, json, params};

/// Calls the queue `?queue=class/name` and answers what it answered.
fn ask(request: &Request, call: Call) -> Result<Response, Error> {
    let queue = required(request, "queue")?;
    let (class, name) = queue.split_once('/').ok_or_else(|| Error::bad_request("?queue=class/name"))?;
    let onward = Request::new("POST", format!("/{}", call.path)).with_body(call.body);
    match actors::call(&Address::new(class, name), &onward) {
        Ok(response) => Ok(response),
        Err(error) => Ok(Response::problem(502, crate::call_error_name(error), &error.to_string())),
    }
}

/// Answers the ids, one a line; with `trap=1` it traps once they are there.
pub(crate) fn send(request: &Request) -> Result<Response, Error> {
    let body = required(request, "body")?;
    let message =
        Message { body: body.as_bytes(), delay_ms: number(request, "delay-ms")?.unwrap_or(0), dedupe_id: None, ordering_key: None };
    let copies = usize::try_from(number(request, "copies")?.unwrap_or(1)).unwrap_or(1);
    let answer = ask(request, client::send(&vec![message; copies]).map_err(refused)?)?;
    if answer.status() != 200 {
        return Ok(answer);
    }
    if flag(request, "trap") {
        return harm::trap(request);
    }
    let sent = client::sent(answer.status(), answer.body()).map_err(|error| Error::internal(error.to_string()))?;
    Ok(Response::text(sent.iter().map(|sent| sent.id.to_string()).collect::<Vec<_>>().join("\n")))
}

/// Answers the counts as JSON.
pub(crate) fn stats(request: &Request) -> Result<Response, Error> {
    let answer = ask(request, client::stats())?;
    let Ok(stats) = client::stats_read(answer.status(), answer.body()) else { return Ok(answer) };
    Ok(Response::json(&json!({
        "live": stats.visible + stats.delayed + stats.leased + stats.blocked,
        "leased": stats.leased,
        "dead": stats.dead,
        "acked": stats.counters.acked,
        "retried": stats.counters.retried,
    })))
}

/// Sends bytes that mean nothing.
pub(crate) fn nonsense(request: &Request) -> Result<Response, Error> {
    ask(request, Call { path: "wasmkeep-queue/v1/send", body: b"nonsense".to_vec() })
}

/// Records what came durably, one row a message with what the row `life` was each time, unless the row `fail` is there; acks all
/// of it after `sleep-ms`. With the row `handled` it works as a consumer that knows what it has handled. A message `send-back`
/// makes it send another one to its own queue first, and other messages harm it (`harmed`).
pub(crate) fn deliver(request: &Request) -> Result<Response, Error> {
    let leased = decode_delivery(request.body()).map_err(refused)?;
    count("deliveries")?;
    if keep::value("fail").is_ok() {
        return Err(Error::internal("it fails, as planned"));
    }
    if keep::value("handled").is_ok() {
        return once(request);
    }
    if let Ok(ms) = keep::value("sleep-ms") {
        std::thread::sleep(std::time::Duration::from_millis(ms.parse().unwrap_or(0)));
    }
    let caller = env::caller().map_or_else(|| "none".to_owned(), |address| address.to_string());
    let mut outcomes = Vec::new();
    for message in &leased {
        let body = String::from_utf8_lossy(message.body);
        if body == "send-back" {
            send_back(&caller)?;
        }
        if let Some(answer) = harmed(request, &body)? {
            return Ok(answer);
        }
        if let Some(outcome) = told(&body) {
            outcomes.extend(outcome.map(|outcome| Settlement { lease: message.lease, outcome }));
            continue;
        }
        let (row, life) = (format!("got:{caller}:{}:{body}", message.lease.id), keep::value("life").unwrap_or_default());
        let again = "INSERT INTO kept VALUES (?, ?) ON CONFLICT DO UPDATE SET value = value || ' ' || excluded.value";
        db::exec_durable(again, params![row, life])?;
        outcomes.push(Settlement { lease: message.lease, outcome: Outcome::Ack });
    }
    Ok(Response::new(200).with_body(encode_outcomes(&outcomes).map_err(refused)?))
}

/// Does its work and fails after it, as if its answer had been lost; knows what it has done when the message comes again.
fn once(request: &Request) -> Result<Response, Error> {
    let handled = Handled::new();
    handled.create()?;
    let answer = handle_delivery(request, |message| {
        let is_new = handled.once(message, || count("handled"))?;
        if is_new { Err(Error::internal("its answer is lost")) } else { Ok(()) }
    });
    answer.ok_or_else(|| Error::bad_request("no delivery"))
}

/// What a consumer must not do, where a message makes it.
fn harmed(request: &Request, body: &str) -> Result<Option<Response>, Error> {
    match body {
        "trap" => harm::trap(request),
        "spin" => harm::spin(request),
        "allocate" => harm::allocate(request),
        "garbage" => Ok(Response::new(200).with_body("no outcomes")),
        "no-content" => Ok(Response::no_content()),
        _ => return Ok(None),
    }
    .map(Some)
}

/// The outcome that a message asks for; `Some(None)` for none at all.
fn told(body: &str) -> Option<Option<Outcome<'static>>> {
    match body {
        "retry" => Some(Some(Outcome::Retry { delay_ms: None, error: "told to" })),
        "retry-at-once" => Some(Some(Outcome::Retry { delay_ms: Some(0), error: "told to" })),
        "extend" => Some(Some(Outcome::Extend { visibility_ms: 120_000 })),
        "ignore" => Some(None),
        _ => None,
    }
}

/// Sends one message to the queue that waits for this very answer.
fn send_back(queue: &str) -> Result<(), Error> {
    let (class, name) = queue.split_once('/').unwrap_or((queue, ""));
    let call = client::send(&[Message { body: b"sent-back", ..Message::default() }]).map_err(refused)?;
    let onward = Request::new("POST", format!("/{}", call.path)).with_body(call.body);
    let answer = actors::call(&Address::new(class, name), &onward).map_err(|error| Error::internal(error.to_string()))?;
    if answer.status() == 200 { Ok(()) } else { Err(Error::internal(format!("the queue answered {}", answer.status()))) }
}

fn refused(invalid: wasmkeep_sdk::classes::queue::protocol::Invalid) -> Error {
    Error::bad_request(invalid.to_string())
}
