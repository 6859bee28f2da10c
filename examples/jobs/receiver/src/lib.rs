//! Stands for somebody else's server: takes what is delivered, and fails when told to.
//!
//! | request | answer |
//! | --- | --- |
//! | `POST /` | 204, and the body is kept; 503 while it is to fail |
//! | `PUT /failures?count=N` | the next N deliveries fail |
//! | `GET /` | what was received, oldest first |

use wasmkeep_sdk::{Actor, Error, Request, Response, db, json, params};

struct Receiver;

impl Actor for Receiver {
    fn init() -> Result<(), Error> {
        db::transaction(|| {
            db::exec("CREATE TABLE IF NOT EXISTS received (id INTEGER PRIMARY KEY, body TEXT NOT NULL)", params![])?;
            db::exec("CREATE TABLE IF NOT EXISTS failures (id INTEGER PRIMARY KEY, count INTEGER NOT NULL)", params![])?;
            Ok(())
        })
    }

    fn request(request: Request) -> Result<Response, Error> {
        match (request.method(), request.segments().as_slice()) {
            ("POST", []) => receive(request.text()?),
            ("PUT", ["failures"]) => fail_next(&request),
            ("GET", []) => list(),
            _ => Err(Error::not_found("POST / delivers, PUT /failures?count=N fails the next N, GET / lists")),
        }
    }
}

fn receive(body: &str) -> Result<Response, Error> {
    let is_failing = db::exec_durable("UPDATE failures SET count = count - 1 WHERE count > 0", params![])? > 0;
    if is_failing {
        return Err(Error::new(503, "out-of-order", "told to fail"));
    }
    db::exec_durable("INSERT INTO received (body) VALUES (?)", params![body])?;
    Ok(Response::no_content())
}

fn fail_next(request: &Request) -> Result<Response, Error> {
    let count = request.query("count").and_then(|count| count.parse::<u32>().ok());
    let count = count.ok_or_else(|| Error::invalid("count is a number, as in /failures?count=2"))?;
    db::exec_durable("INSERT OR REPLACE INTO failures VALUES (1, ?)", params![count])?;
    Ok(Response::json(&json!({ "failing": count })))
}

fn list() -> Result<Response, Error> {
    let received = db::query("SELECT body FROM received ORDER BY id LIMIT 100", params![])?;
    let received = received.map(|row| row.get::<String>("body"))?;
    Ok(Response::json(&json!({ "received": received })))
}

wasmkeep_sdk::export!(Receiver);
