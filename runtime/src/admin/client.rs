//! The command line's side of the admin listener: one request, one answer, no executor.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};
use serde_json::{Value as Json, json};

use super::AdminRequest;
use crate::config::Secret;
use crate::limits::{ADMIN_ANSWER_BYTES_MAX, ADMIN_WALL_MS_MAX};

const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// A little longer than the node's own limit, so that its answer is the one that is seen.
const ANSWER_WAIT: Duration = Duration::from_millis(ADMIN_WALL_MS_MAX + 5_000);
const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A request of the command line to the service door that the admin listener offers.
#[derive(Clone, Debug)]
pub struct DoorRequest {
    /// The method.
    pub method: &'static str,
    /// Path and query, percent-encoded.
    pub target: String,
    /// Conditions.
    pub headers: Vec<(&'static str, String)>,
    /// What is written or sent; not what type it has, which is JSON if `is_json`.
    pub body: Vec<u8>,
    /// Whether the body is JSON and not bytes.
    pub is_json: bool,
}

/// What the door answered, if it did what was asked.
#[derive(Debug)]
pub struct DoorAnswer {
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
}

/// A running node's admin listener.
#[derive(Clone, Debug)]
pub struct AdminClient {
    /// Where it is.
    pub address: SocketAddr,
    /// What it asks for.
    pub token: Option<Secret>,
}

impl AdminClient {
    /// Asks and waits.
    ///
    /// # Errors
    /// What went wrong and, where that is known, what to do about it.
    pub fn ask(&self, request: &AdminRequest) -> Result<Json, String> {
        let (line, body) = match request {
            AdminRequest::List { class, after, limit } => {
                (format!("GET {}", list_path(class.as_deref(), after.as_deref(), *limit)), None)
            }
            AdminRequest::Show(address) => (format!("GET {}", actor_path(&address.class, &address.name)), None),
            AdminRequest::Sql { address, sql } => {
                (format!("POST {}/sql", actor_path(&address.class, &address.name)), Some(json!({ "sql": sql }).to_string()))
            }
        };
        let head = body.as_ref().map_or(String::new(), |_| "content-type: application/json\r\n".to_owned());
        let (status, answer) = self.exchange(&line, &head, body.as_ref().map(String::as_bytes))?;
        let json: Json = serde_json::from_slice(&answer.body)
            .map_err(|_| format!("{} did not answer as a node does (status {status})", self.address))?;
        if status == StatusCode::OK { Ok(json) } else { Err(detail(&json)) }
    }

    /// Asks the service door and waits.
    ///
    /// # Errors
    /// The type of the problem and what the node says about it, or why there is no answer.
    pub fn ask_door(&self, request: &DoorRequest) -> Result<DoorAnswer, String> {
        let DoorRequest { method, target, headers, body, is_json } = request;
        let mut head: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        if *is_json {
            head.push_str("content-type: application/json\r\n");
        }
        let body = (*method != "GET").then_some(&body[..]);
        let (status, answer) = self.exchange(&format!("{method} {target}"), &head, body)?;
        if status.is_success() {
            return Ok(answer);
        }
        let Ok(problem) = serde_json::from_slice::<Json>(&answer.body) else {
            return Err(format!("{} did not answer as a node does (status {status})", self.address));
        };
        let kind = problem.get("type").and_then(Json::as_str).unwrap_or("problem");
        Err(format!("{kind}: {}", detail(&problem)))
    }

    fn exchange(&self, line: &str, headers: &str, body: Option<&[u8]>) -> Result<(StatusCode, DoorAnswer), String> {
        let address = self.address;
        let unanswered = match body {
            Some(_) => "; it is not known whether it was done",
            None => "",
        };
        let fail = |error: std::io::Error| format!("asking the node at {address}: {error}{unanswered}");
        let mut stream = TcpStream::connect_timeout(&address, CONNECT_WAIT).map_err(|error| {
            format!("no node answers at {address} ({error}); start one, or name its admin listener with --admin")
        })?;
        stream.set_read_timeout(Some(ANSWER_WAIT)).map_err(fail)?;
        let mut head = format!("{line} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}");
        if let Some(Secret(token)) = &self.token {
            head.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        if let Some(body) = body {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        // A refusal may come before all of the body has been read, and is worth more than the failed write.
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.unwrap_or_default()));
        let mut answer = Vec::new();
        let received = stream.take(ADMIN_ANSWER_BYTES_MAX as u64).read_to_end(&mut answer);
        if let Some(parsed) = parse(&answer) {
            return Ok(parsed);
        }
        sent.and(received).map_err(fail)?;
        Err(format!("{address} did not answer as a node does{unanswered}"))
    }
}

/// What a problem says.
fn detail(problem: &Json) -> String {
    problem.get("detail").and_then(Json::as_str).unwrap_or("it did not say why").to_owned()
}

/// An answer in full, which ends with its connection. The node never sends one in chunks.
fn parse(answer: &[u8]) -> Option<(StatusCode, DoorAnswer)> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let mut lines = std::str::from_utf8(&answer[..end]).ok()?.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        headers.append(HeaderName::try_from(name).ok()?, HeaderValue::try_from(value.trim()).ok()?);
    }
    let body = answer[end + 4..].to_vec();
    let length: Option<usize> = headers.get(http::header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    // An answer that ended too early is none.
    length.is_none_or(|length| length == body.len()).then_some((status, DoorAnswer { headers, body }))
}

/// Bytes as one part of a path, or as a parameter's value.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    percent_encode(bytes, PART).to_string()
}

fn actor_path(class: &str, name: &str) -> String {
    format!("/admin/actors/{class}/{}", utf8_percent_encode(name, PART))
}

fn list_path(class: Option<&str>, after: Option<&str>, limit: usize) -> String {
    let mut path = format!("/admin/actors?limit={limit}");
    for (key, value) in [("class", class), ("after", after)] {
        if let Some(value) = value {
            path.push_str(&format!("&{key}={}", utf8_percent_encode(value, PART)));
        }
    }
    path
}
