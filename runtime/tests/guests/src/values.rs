//! Values at the edges of what SQLite and the interface carry, through the database and back.

use crate::{number, sql};
use wasmkeep_sdk::db::{self, Value};
use wasmkeep_sdk::{Error, Request, Response, params};

pub(crate) fn round_trip(request: &Request) -> Result<Response, Error> {
    if let Some(bytes) = number(request, "bytes")? {
        return one_blob(usize::try_from(bytes).map_err(|_| Error::bad_request("that many bytes have no address here"))?);
    }
    let mut differing = Vec::new();
    for value in edge_values() {
        let came_back = through_the_database(&value)?;
        if !same(&value, &came_back) {
            differing.push(format!("{value:?} came back as {came_back:?}"));
        }
    }
    Ok(Response::text(if differing.is_empty() { "ok".to_owned() } else { differing.join("\n") }))
}

fn edge_values() -> Vec<Value> {
    let beyond_doubles = (1_i64 << 53) + 1;
    let integers = [0, -1, beyond_doubles, -beyond_doubles, 25_227_580_722_380_801, i64::MIN, i64::MAX].map(Value::Integer);
    let reals = [0.0, -0.0, 1.0, 0.1, f64::MIN_POSITIVE, 5e-324, f64::MAX, f64::INFINITY, f64::NEG_INFINITY].map(Value::Real);
    let texts = ["", "a\0b", "\0", "né 🦀 \u{10ffff}", "1", "1.0"].map(Value::from);
    let blobs = [vec![], vec![0], vec![0xff, 0, 0xfe]].map(Value::Blob);
    // SQLite has no NaN: it stores one as NULL, which is checked as what it becomes.
    [Value::Null, Value::Real(f64::NAN)].into_iter().chain(integers).chain(reals).chain(texts).chain(blobs).collect()
}

fn through_the_database(value: &Value) -> Result<Value, Error> {
    db::exec("CREATE TABLE IF NOT EXISTS edge (value)", params![])?;
    db::exec("DELETE FROM edge", params![])?;
    db::exec("INSERT INTO edge VALUES (?)", params![value])?;
    db::scalar("SELECT value FROM edge", params![])?.ok_or_else(|| Error::internal("the row is gone"))
}

/// Equal bit by bit, so that `-0.0` is not `0.0`.
fn same(sent: &Value, came_back: &Value) -> bool {
    match (sent, came_back) {
        (Value::Real(sent), Value::Null) => sent.is_nan(),
        (Value::Real(sent), Value::Real(came_back)) => sent.to_bits() == came_back.to_bits(),
        _ => sent == came_back,
    }
}

/// Writes a blob of this size and answers the size read back, or 422 with the error's kind.
fn one_blob(bytes: usize) -> Result<Response, Error> {
    db::exec("CREATE TABLE IF NOT EXISTS edge (value)", params![])?;
    db::exec("DELETE FROM edge", params![])?;
    if let Err(error) = db::exec("INSERT INTO edge VALUES (?)", params![vec![7_u8; bytes]]) {
        return Ok(Response::json(&sql::show_error(&error)).with_status(422));
    }
    let read: Vec<u8> = db::scalar("SELECT value FROM edge", params![])?.unwrap_or_default();
    let intact = read.len() == bytes && read.iter().all(|byte| *byte == 7);
    Ok(Response::text(if intact { bytes.to_string() } else { format!("{} bytes came back", read.len()) }))
}
