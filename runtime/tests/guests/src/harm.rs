//! What a node must survive.

use crate::{flag, keep, number, required};
use std::hint::black_box;
use std::time::{Duration, Instant};
use wasmkeep_sdk::{Error, Request, Response, db, params};

#[allow(clippy::disallowed_methods, reason = "inside a guest this asks the node, whose clock is the injected one")]
pub(crate) fn spin(request: &Request) -> Result<Response, Error> {
    let budget = number(request, "ms")?.map(Duration::from_millis);
    let start = Instant::now();
    let mut turns = 0_u64;
    while budget.is_none_or(|budget| start.elapsed() < budget) {
        for _ in 0..100_000 {
            turns = black_box(turns.wrapping_add(1));
        }
    }
    Ok(Response::text(turns.to_string()))
}

pub(crate) fn recurse() -> Result<Response, Error> {
    Ok(Response::text(descend(0).to_string()))
}

/// The array and the addition behind the call keep the compiler from making a loop of it.
#[allow(unconditional_recursion, reason = "that is what it is for")]
fn descend(depth: u64) -> u64 {
    let frame = black_box([depth; 16]);
    descend(depth + 1).wrapping_add(black_box(frame)[3])
}

pub(crate) fn allocate(request: &Request) -> Result<Response, Error> {
    const CHUNK_BYTES: usize = 1 << 20;
    let limit = number(request, "mb")?.map_or(usize::MAX, |mb| usize::try_from(mb).unwrap_or(usize::MAX));
    let mut chunks = Vec::new();
    while chunks.len() < limit {
        chunks.push(black_box(vec![1_u8; CHUNK_BYTES]));
    }
    Ok(Response::text(format!("{} MB", chunks.len())))
}

pub(crate) fn garbage(request: &Request) -> Result<Response, Error> {
    let status = number(request, "status")?.map_or(Ok(200), u16::try_from);
    let response = Response::new(status.map_err(|_| Error::bad_request("status is a u16"))?);
    let (Some(name), Some(value)) = (request.query("name"), request.query("value")) else {
        return Ok(response);
    };
    Ok(response.with_header(name, value))
}

pub(crate) fn trap(request: &Request) -> Result<Response, Error> {
    match request.query("kind").as_deref() {
        #[cfg(target_family = "wasm")]
        Some("unreachable") => core::arch::wasm32::unreachable(),
        _ => panic!("a panic that was asked for"),
    }
}

pub(crate) fn sleep(request: &Request) -> Result<Response, Error> {
    let ms = number(request, "ms")?.unwrap_or(u64::from(u32::MAX));
    std::thread::sleep(Duration::from_millis(ms));
    Ok(Response::text(format!("{ms} ms")))
}

pub(crate) fn endless_sql(request: &Request) -> Result<Response, Error> {
    if request.query("in").as_deref() == Some("transaction") {
        db::exec("BEGIN", params![])?;
        keep::put(&required(request, "key")?, "endless", db::exec_durable)?;
    }
    let query = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n";
    let rows: i64 = db::scalar(query, params![])?.unwrap_or(0);
    Ok(Response::text(rows.to_string()))
}

pub(crate) fn open_transaction(request: &Request) -> Result<Response, Error> {
    let exec = if flag(request, "durable") { db::exec_durable } else { db::exec };
    db::exec("BEGIN", params![])?;
    keep::put(&required(request, "key")?, "left open", exec)?;
    Ok(Response::text("left open"))
}
