//! Takes deliveries from the queue and carries them to their receivers.
//!
//! `GET /` from outside shows what it did, newest first. A failed delivery is an attempt: the queue waits and delivers again, and
//! gives up after three.

use serde::Deserialize;
use wasmkeep_sdk::actors::{self, Address};
use wasmkeep_sdk::queue::{self, Handled, Received};
use wasmkeep_sdk::{Actor, Error, Request, Response, db, json, params, serde_json};

/// What the queue carries.
#[derive(Deserialize)]
struct Delivery {
    /// `class/name`.
    to: String,
    body: String,
}

struct Consumer;

impl Actor for Consumer {
    fn init() -> Result<(), Error> {
        Handled::new().create()?;
        const LOG: &str = "CREATE TABLE IF NOT EXISTS log (nr INTEGER PRIMARY KEY, message INTEGER NOT NULL,
            attempt INTEGER NOT NULL, outcome TEXT NOT NULL)";
        db::exec_durable(LOG, params![])?;
        Ok(())
    }

    fn request(request: Request) -> Result<Response, Error> {
        if let Some(answer) = queue::handle_delivery_allowing(&request, &["jobs-queue"], carry) {
            Handled::new().sweep()?;
            return Ok(answer);
        }
        match (request.method(), request.segments().as_slice()) {
            ("GET", []) => show_log(),
            _ => Err(Error::not_found("GET / shows what was delivered")),
        }
    }
}

fn carry(message: &Received<'_>) -> Result<(), Error> {
    let handled = Handled::new();
    if handled.is_handled(message)? {
        return Ok(());
    }
    let outcome = deliver(message);
    // Whoever is not told that it was delivered tries again: a receiver may see a delivery twice, if the node dies just here.
    match &outcome {
        Ok(()) => handled.once(message, || log(message, "delivered")).map(drop)?,
        Err(error) => log(message, error.detail())?,
    }
    outcome
}

fn deliver(message: &Received<'_>) -> Result<(), Error> {
    let delivery: Delivery = serde_json::from_slice(message.body())?;
    let (class, name) = delivery.to.split_once('/').unwrap_or((&delivery.to, "main"));
    let request = Request::post("/").with_header("x-delivery", message.id().to_string()).with_body(delivery.body);
    let answer = actors::call(&Address::new(class, name), &request)?;
    if answer.is_success() {
        return Ok(());
    }
    Err(Error::new(502, "not-delivered", format!("{} answered {}", delivery.to, answer.status())))
}

fn log(message: &Received<'_>, outcome: &str) -> Result<(), Error> {
    let id = i64::try_from(message.id()).unwrap_or(i64::MAX);
    db::exec("INSERT INTO log (message, attempt, outcome) VALUES (?, ?, ?)", params![id, message.attempt(), outcome])?;
    Ok(())
}

fn show_log() -> Result<Response, Error> {
    let rows = db::query("SELECT message, attempt, outcome FROM log ORDER BY nr DESC LIMIT 50", params![])?;
    let log = rows.map(|row| {
        let (id, attempt, outcome): (i64, i64, String) = (row.get("message")?, row.get("attempt")?, row.get("outcome")?);
        Ok::<_, Error>(json!({ "message": id, "attempt": attempt, "outcome": outcome }))
    })?;
    Ok(Response::json(&json!({ "log": log })))
}

wasmkeep_sdk::export!(Consumer);
