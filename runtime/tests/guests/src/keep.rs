//! Rows of the table `kept`, written durably or locally.

use crate::{flag, number, required};
use wasmkeep_sdk::{Error, Request, Response, db, params};

/// [`db::exec`] or [`db::exec_durable`].
pub(crate) type Exec = fn(&str, &[db::Value]) -> Result<u64, db::Error>;

pub(crate) fn put(key: &str, value: &str, exec: Exec) -> Result<u64, db::Error> {
    exec("INSERT INTO kept VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", params![key, value])
}

fn exec_asked_for(request: &Request) -> Exec {
    if flag(request, "durable") { db::exec_durable } else { db::exec }
}

pub(crate) fn upsert(request: &Request, exec: Exec) -> Result<Response, Error> {
    let value = request.query("value").unwrap_or_default();
    put(&required(request, "key")?, &value, exec)?;
    Ok(Response::text(value))
}

pub(crate) fn insert_or_ignore(request: &Request) -> Result<Response, Error> {
    let value = request.query("value").unwrap_or_default();
    let exec = exec_asked_for(request);
    let changed = exec("INSERT OR IGNORE INTO kept VALUES (?, ?)", params![required(request, "key")?, value])?;
    Ok(Response::text(changed.to_string()))
}

/// The value of a row that must be there.
pub(crate) fn value(key: &str) -> Result<String, Error> {
    let value = db::scalar("SELECT CAST(value AS TEXT) FROM kept WHERE key = ?", params![key])?;
    value.ok_or_else(|| Error::not_found(format!("no key {key}")))
}

pub(crate) fn read(request: &Request) -> Result<Response, Error> {
    if let Some(key) = request.query("key") {
        return value(&key).map(Response::text);
    }
    let keys = db::query("SELECT key FROM kept ORDER BY key", params![])?.map(|row| row.get::<String>(0))?;
    Ok(Response::text(keys.join("\n")))
}

pub(crate) fn add(request: &Request) -> Result<Response, Error> {
    let key = request.query("key").unwrap_or_else(|| "n".to_owned());
    let exec = exec_asked_for(request);
    exec("INSERT INTO kept VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET value = value + 1", params![&key])?;
    value(&key).map(Response::text)
}

pub(crate) fn transaction(request: &Request) -> Result<Response, Error> {
    let (key, rows) = (required(request, "key")?, number(request, "rows")?.unwrap_or(2));
    db::transaction(|| {
        for row in 0..rows {
            put(&format!("{key}-{row}"), "", db::exec)?;
        }
        if flag(request, "fail") { Err(Error::conflict("failed as asked")) } else { Ok(()) }
    })?;
    Ok(Response::text(rows.to_string()))
}
