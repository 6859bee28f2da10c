//! A counter that survives anything: the smallest useful actor.
//!
//! | request | effect | answer |
//! | --- | --- | --- |
//! | `POST /` | adds one, durably: the answer leaves when it is on disk | `{"count":n}` |
//! | `POST /local` | adds one; a crash may lose it | `{"count":n}` |
//! | `GET /` | reads | `{"count":n}` |

use wasmkeep_sdk::{Actor, Error, Request, Response, db, json, params};

struct Counter;

impl Actor for Counter {
    fn init() -> Result<(), Error> {
        db::exec_durable(
            "CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY CHECK (id = 1), n INTEGER NOT NULL)",
            params![],
        )?;
        Ok(())
    }

    fn request(request: Request) -> Result<Response, Error> {
        const ADD_ONE: &str = "INSERT INTO counter VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = n + 1";
        match (request.method(), request.path()) {
            ("POST", "/") => {
                db::exec_durable(ADD_ONE, params![])?;
            }
            ("POST", "/local") => {
                db::exec(ADD_ONE, params![])?;
            }
            ("GET", "/") => {}
            (_, "/" | "/local") => return Err(Error::method_not_allowed("POST adds one, GET / reads")),
            (_, path) => return Err(Error::not_found(format!("no path {path}; there are / and /local"))),
        }
        let count: i64 = db::scalar("SELECT n FROM counter", params![])?.unwrap_or(0);
        Ok(Response::json(&json!({ "count": count })))
    }
}

wasmkeep_sdk::export!(Counter);
