//! A job that comes again and again: the actor's alarm, made into a timetable.
//!
//! An alarm may come twice and may come late. So each turn has a number, which is the dedupe id of its message, and after a
//! pause of hours there is one turn, not thousands.

use crate::{number, queue, read_delivery};
use std::time::{Duration, UNIX_EPOCH};
use wasmkeep_sdk::queue::Message;
use wasmkeep_sdk::{Error, Request, Response, alarm, db, json, params};

pub(crate) fn create_schema() -> Result<(), Error> {
    const DIGEST: &str = "CREATE TABLE IF NOT EXISTS digest (id INTEGER PRIMARY KEY, every INTEGER NOT NULL,
        due INTEGER NOT NULL, body BLOB NOT NULL)";
    db::exec_durable(DIGEST, params![])?;
    Ok(())
}

pub(crate) fn start(request: &Request) -> Result<Response, Error> {
    let every = number(request, "every")?.and_then(|every| u32::try_from(every).ok()).filter(|every| *every > 0);
    let every = every.ok_or_else(|| Error::invalid("every is a number of seconds from 1, as in /digest?every=60"))?;
    let body = read_delivery(request)?;
    let due = now_s()? + i64::from(every);
    db::exec_durable("INSERT OR REPLACE INTO digest VALUES (1, ?, ?, ?)", params![every, due, body])?;
    set_alarm(due);
    Ok(Response::json(&json!({ "every": every })))
}

pub(crate) fn stop() -> Result<Response, Error> {
    db::exec_durable("DELETE FROM digest", params![])?;
    alarm::clear();
    Ok(Response::no_content())
}

pub(crate) fn send_due() -> Result<(), Error> {
    let rows = db::query("SELECT every, due, body FROM digest", params![])?;
    let Some(row) = rows.first() else { return Ok(()) };
    let (every, due, body): (i64, i64, &[u8]) = (row.get("every")?, row.get("due")?, row.get("body")?);
    let now = now_s()?;
    if due <= now {
        // If this fails the alarm comes again, and sends under the same id.
        queue().send_message(Message::new(body).dedupe_id(&format!("digest-{due}")))?;
    }
    let next = next_turn(due, every, now);
    db::exec_durable("UPDATE digest SET due = ?", params![next])?;
    set_alarm(next);
    Ok(())
}

/// The first turn after `now`; turns that were missed are left out.
fn next_turn(due: i64, every: i64, now: i64) -> i64 {
    if due > now { due } else { due + ((now - due) / every + 1) * every }
}

fn set_alarm(at_s: i64) {
    alarm::set(UNIX_EPOCH + Duration::from_secs(at_s.unsigned_abs()));
}

fn now_s() -> Result<i64, Error> {
    db::scalar("SELECT unixepoch()", params![])?.ok_or_else(|| Error::internal("SQLite knows no time"))
}

#[cfg(test)]
mod tests {
    use super::next_turn;

    #[test]
    fn turns_that_were_missed_are_left_out() {
        assert_eq!((next_turn(100, 60, 100), next_turn(100, 60, 159), next_turn(100, 60, 160)), (160, 160, 220));
        assert_eq!((next_turn(100, 60, 99), next_turn(100, 60, 100_000)), (100, 100_060));
    }
}
