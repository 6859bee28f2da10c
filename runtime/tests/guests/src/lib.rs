//! The guest that tests drive: each path does one thing a guest may do, or should not do.
//!
//! Parameters are in the query. Paths that write take `key` and `value` and use the table `kept (key PRIMARY KEY, value)`.
//!
//! | path | what it does |
//! | --- | --- |
//! | `/spin?ms=` | computes without end, or for so long |
//! | `/recurse` | recurses without end |
//! | `/allocate?mb=` | allocates without end, or so much |
//! | `/garbage?status=&name=&value=` | answers with this status and header, valid or not |
//! | `/trap?kind=panic,unreachable` | traps |
//! | `/sleep?ms=` | sleeps on the host's clock |
//! | `/sql` | runs the statements in the body, see `src/sql.rs` |
//! | `/durable-insert`, `/local-insert` | upserts a row |
//! | `/insert-or-ignore?durable=0,1` | inserts a row unless its key is there |
//! | `/read` | the row's value or 404; without a key all keys, one a line, sorted |
//! | `/add?durable=0,1` | adds one to the row `key` (or `n`) and answers the sum |
//! | `/memory-set?value=`, `/memory-get` | a value in the instance's memory only; 404 in a fresh one |
//! | `/memory-read` | keeps the row's value in memory only |
//! | `/endless-sql?in=` | a query without end; `in=transaction` behind an insert of `key` in an open transaction |
//! | `/open-transaction?durable=0,1` | upserts in a transaction that it leaves open |
//! | `/transaction?rows=&fail=` | inserts so many rows `key-0`… in one durable transaction; `fail=1` fails it at its end |
//! | `/call?class=&name=&path=&method=&keep=` | calls an actor and answers what it answered; `keep=1` keeps it in memory |
//! | `/call?…&send=` | as above, with the value of this row as the body |
//! | `/echo` | sends the body back; method, target and caller in `x-echo-` headers |
//! | `/headers` | the request's headers as JSON |
//! | `/values?bytes=` | edge values through the database and back: `ok` or what differs; with `bytes` a blob of that size |
//! | `/log?level=&message=` | logs; levels `stdout` and `stderr` print |
//! | `/env?name=` | a setting or 404 |
//! | `/self` | the actor's address |
//! | `/instance` | how many requests this instance has handled, this one included |
//! | `/inits` | how often `init` has run on this database |
//! | `/alarm-set?in-ms=`, `/alarm-get`, `/alarm-clear` | the alarm |
//! | `/alarm-set-and-trap?in-ms=` | sets it in an event that fails |
//! | `/queue-send?queue=&body=&copies=&delay-ms=&trap=` | sends to the queue `class/name`, answers the ids |
//! | `/queue-stats?queue=`, `/queue-nonsense?queue=` | its counts; a request it must refuse |
//! | `/wasmkeep-queue/v1/deliver` | keeps what a queue delivers, see `src/queue.rs` |
//! | `/deliveries`, `/handled` | how many deliveries came; how many messages were worked on with the row `handled` |
//! | `/alarms`, `/alarm-attempts` | how often it came and succeeded; the numbers of all attempts |

mod harm;
mod keep;
mod queue;
mod sql;
mod values;

use std::cell::{Cell, RefCell};
use wasmkeep_sdk::actors::{self, Address, CallError};
use wasmkeep_sdk::{Actor, Error, Request, Response, alarm, db, env, json, log, params};

thread_local! {
    static REQUESTS: Cell<u64> = const { Cell::new(0) };
    static MEMORY: RefCell<Option<String>> = const { RefCell::new(None) };
}

struct TestGuest;

impl Actor for TestGuest {
    fn init() -> Result<(), Error> {
        db::transaction(|| {
            db::exec("CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value)", params![])?;
            db::exec("CREATE TABLE IF NOT EXISTS count (what TEXT PRIMARY KEY, n INTEGER NOT NULL)", params![])?;
            count("init")
        })
    }

    fn request(request: Request) -> Result<Response, Error> {
        REQUESTS.set(REQUESTS.get() + 1);
        match request.path() {
            "/spin" => harm::spin(&request),
            "/recurse" => harm::recurse(),
            "/allocate" => harm::allocate(&request),
            "/garbage" => harm::garbage(&request),
            "/trap" => harm::trap(&request),
            "/sleep" => harm::sleep(&request),
            "/endless-sql" => harm::endless_sql(&request),
            "/open-transaction" => harm::open_transaction(&request),
            "/sql" => sql::run(&request),
            "/values" => values::round_trip(&request),
            "/durable-insert" => keep::upsert(&request, db::exec_durable),
            "/local-insert" => keep::upsert(&request, db::exec),
            "/insert-or-ignore" => keep::insert_or_ignore(&request),
            "/read" => keep::read(&request),
            "/add" => keep::add(&request),
            "/transaction" => keep::transaction(&request),
            "/memory-set" => memory_set(required(&request, "value")?),
            "/memory-read" => memory_set(keep::value(&required(&request, "key")?)?),
            "/memory-get" => memory_get(),
            "/call" => call(&request),
            "/queue-send" => queue::send(&request),
            "/queue-stats" => queue::stats(&request),
            "/queue-nonsense" => queue::nonsense(&request),
            "/wasmkeep-queue/v1/deliver" => queue::deliver(&request),
            "/deliveries" => counted("deliveries"),
            "/handled" => counted("handled"),
            "/echo" => Ok(echo(request)),
            "/headers" => Ok(headers(&request)),
            "/log" => log_line(&request),
            "/env" => setting(&required(&request, "name")?),
            "/self" => Ok(Response::text(env::self_address().to_string())),
            "/instance" => Ok(Response::text(REQUESTS.get().to_string())),
            "/inits" => counted("init"),
            "/alarms" => counted("alarm"),
            "/alarm-set" => alarm_set(&request),
            "/alarm-set-and-trap" => {
                alarm_set(&request)?;
                harm::trap(&request)
            }
            "/alarm-attempts" => Ok(Response::text(attempts()?)),
            "/alarm-get" => Ok(Response::json(&json!({ "set": alarm::get().is_some() }))),
            "/alarm-clear" => {
                alarm::clear();
                Ok(Response::no_content())
            }
            path => Err(Error::not_found(format!("the test guest has no path {path}"))),
        }
    }

    fn alarm(attempt: u32) -> Result<(), Error> {
        alarm_came(attempt)
    }
}

fn count(what: &str) -> Result<(), Error> {
    db::exec_durable("INSERT INTO count VALUES (?, 1) ON CONFLICT (what) DO UPDATE SET n = n + 1", params![what])?;
    Ok(())
}

fn counted(what: &str) -> Result<Response, Error> {
    let n: i64 = db::scalar("SELECT n FROM count WHERE what = ?", params![what])?.unwrap_or(0);
    Ok(Response::text(n.to_string()))
}

fn memory_set(value: String) -> Result<Response, Error> {
    MEMORY.with_borrow_mut(|memory| *memory = Some(value.clone()));
    Ok(Response::text(value))
}

fn memory_get() -> Result<Response, Error> {
    let value = MEMORY.with_borrow(Clone::clone);
    value.map(Response::text).ok_or_else(|| Error::not_found("this instance keeps nothing"))
}

fn call(request: &Request) -> Result<Response, Error> {
    let target = Address::new(required(request, "class")?, required(request, "name")?);
    let method = request.query("method").unwrap_or_else(|| "POST".to_owned());
    let onward = Request::new(method, required(request, "path")?);
    let onward = match request.query("send") {
        Some(key) => onward.with_body(keep::value(&key)?),
        None => onward.with_body(request.body()),
    };
    match actors::call(&target, &onward) {
        Ok(response) => {
            if flag(request, "keep") {
                memory_set(String::from_utf8_lossy(response.body()).into_owned())?;
            }
            Ok(response)
        }
        Err(error) => Ok(Response::problem(502, call_error_name(error), &error.to_string())),
    }
}

fn call_error_name(error: CallError) -> &'static str {
    match error {
        CallError::NoSuchClass => "no-such-class",
        CallError::Forbidden => "forbidden",
        CallError::ReEntry => "re-entry",
        CallError::Busy => "busy",
        CallError::Timeout => "timeout",
        CallError::Unavailable => "unavailable",
        CallError::UnknownOutcome => "unknown-outcome",
        _ => "unheard-of",
    }
}

fn echo(request: Request) -> Response {
    let caller = env::caller().map_or_else(|| "none".to_owned(), |address| address.to_string());
    let content_type = request.header("content-type").unwrap_or("application/octet-stream").to_owned();
    Response::new(200)
        .with_header("content-type", content_type)
        .with_header("x-echo-method", request.method())
        .with_header("x-echo-target", request.target())
        .with_header("x-echo-caller", caller)
        .with_body(request.into_body())
}

fn headers(request: &Request) -> Response {
    let list: Vec<_> = request.headers().map(|(name, value)| json!([name, String::from_utf8_lossy(value)])).collect();
    Response::json(&list)
}

fn log_line(request: &Request) -> Result<Response, Error> {
    let message = required(request, "message")?;
    match request.query("level").as_deref() {
        Some("trace") => log::trace!("{message}"),
        Some("debug") => log::debug!("{message}"),
        Some("info") | None => log::info!("{message}"),
        Some("warn") => log::warn!("{message}"),
        Some("error") => log::error!("{message}"),
        Some("stdout") => println!("{message}"),
        Some("stderr") => eprintln!("{message}"),
        Some(other) => return Err(Error::bad_request(format!("no level {other}"))),
    }
    Ok(Response::no_content())
}

fn setting(name: &str) -> Result<Response, Error> {
    env::get(name).map(Response::text).ok_or_else(|| Error::not_found(format!("{name} is not set")))
}

/// What the alarm does is written down beforehand: `alarm-fails` so many attempts, then, if `alarm-again-ms` is there, set it anew.
fn alarm_came(attempt: u32) -> Result<(), Error> {
    let planned = |key: &str| -> Result<Option<u64>, Error> {
        let value: Option<String> = db::scalar("SELECT value FROM kept WHERE key = ?", params![key])?;
        Ok(value.and_then(|value| value.parse().ok()))
    };
    let so_far = format!("{} {attempt}", attempts()?);
    db::exec_durable("INSERT OR REPLACE INTO kept VALUES ('attempts', ?)", params![so_far.trim()])?;
    if u64::from(attempt) < planned("alarm-fails")?.unwrap_or(0) {
        // What a failed event sets does not count.
        alarm::clear();
        return Err(Error::internal("the alarm fails, as planned"));
    }
    if let Some(again_ms) = planned("alarm-again-ms")? {
        alarm::set_in(std::time::Duration::from_millis(again_ms));
    }
    count("alarm")
}

/// The numbers that the alarm came with, in order.
fn attempts() -> Result<String, Error> {
    Ok(db::scalar("SELECT value FROM kept WHERE key = 'attempts'", params![])?.unwrap_or_default())
}

fn alarm_set(request: &Request) -> Result<Response, Error> {
    alarm::set_in(std::time::Duration::from_millis(number(request, "in-ms")?.unwrap_or(0)));
    Ok(Response::no_content())
}

/// A query parameter that must be given.
fn required(request: &Request, name: &str) -> Result<String, Error> {
    request.query(name).ok_or_else(|| Error::bad_request(format!("{} needs ?{name}=", request.path())))
}

/// A query parameter that is a number if it is given.
fn number(request: &Request, name: &str) -> Result<Option<u64>, Error> {
    let parse = |text: String| text.parse().map_err(|_| Error::bad_request(format!("{name}={text} is no number")));
    request.query(name).map(parse).transpose()
}

/// Whether a query parameter is there and not `0`.
fn flag(request: &Request, name: &str) -> bool {
    request.query(name).is_some_and(|value| value != "0")
}

wasmkeep_sdk::export!(TestGuest);
