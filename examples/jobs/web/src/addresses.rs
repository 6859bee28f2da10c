//! An address book in key-value: short names for receivers, shared by all actors of the application.

use wasmkeep_sdk::{Error, Request, Response, json, kv};

/// The number of shards is a part of how the keys are stored: it stays.
const SHARDS: u32 = 4;

const PREFIX: &str = "address/";

fn settings() -> kv::Client {
    kv::Client::new("jobs-settings", SHARDS)
}

/// The receiver that `to` means: `class/name` is one itself, anything else is looked up.
pub(crate) fn resolve(to: String) -> Result<String, Error> {
    if to.contains('/') {
        return Ok(to);
    }
    let entry = settings().get(&format!("{PREFIX}{to}"))?;
    let entry = entry.ok_or_else(|| Error::invalid(format!("to is class/name or a known address; \"{to}\" is neither")))?;
    Ok(String::from_utf8_lossy(&entry.value).into_owned())
}

pub(crate) fn put(name: &str, request: &Request) -> Result<Response, Error> {
    let target = request.text()?;
    if !target.contains('/') {
        return Err(Error::invalid("the body is class/name, as in jobs-receiver/ada"));
    }
    settings().put(&format!("{PREFIX}{name}"), target)?;
    Ok(Response::no_content())
}

pub(crate) fn delete(name: &str) -> Result<Response, Error> {
    settings().delete(&format!("{PREFIX}{name}"))?;
    Ok(Response::no_content())
}

pub(crate) fn list() -> Result<Response, Error> {
    let page = settings().list(PREFIX, None, 100)?;
    let name = |listed: &kv::Listed| String::from_utf8_lossy(&listed.key[PREFIX.len()..]).into_owned();
    let names: Vec<String> = page.keys.iter().map(name).collect();
    Ok(Response::json(&json!({ "addresses": names, "more": page.has_more })))
}
