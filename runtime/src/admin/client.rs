//! The command line's side of the admin listener: one request, one answer, no executor.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value as Json, json};

use super::AdminRequest;
use crate::config::Secret;
use crate::limits::{ADMIN_ANSWER_BYTES_MAX, ADMIN_WALL_MS_MAX};

const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// A little longer than the node's own limit, so that its answer is the one that is seen.
const ANSWER_WAIT: Duration = Duration::from_millis(ADMIN_WALL_MS_MAX + 5_000);
const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

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
        let (status, body) = self.exchange(&line, body.as_deref())?;
        let json: Json = serde_json::from_slice(&body)
            .map_err(|_| format!("{} did not answer as a node does (status {status})", self.address))?;
        if status == 200 {
            return Ok(json);
        }
        let detail = json.get("detail").and_then(Json::as_str).unwrap_or("it did not say why");
        Err(detail.to_string())
    }

    fn exchange(&self, line: &str, body: Option<&str>) -> Result<(u16, Vec<u8>), String> {
        let address = self.address;
        let fail = |error: std::io::Error| format!("asking the node at {address}: {error}");
        let mut stream = TcpStream::connect_timeout(&address, CONNECT_WAIT).map_err(|error| {
            format!("no node answers at {address} ({error}); start one, or name its admin listener with --admin")
        })?;
        stream.set_read_timeout(Some(ANSWER_WAIT)).map_err(fail)?;
        let mut head = format!("{line} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
        if let Some(Secret(token)) = &self.token {
            head.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        if let Some(body) = body {
            head.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        head.push_str(body.unwrap_or_default());
        stream.write_all(head.as_bytes()).map_err(fail)?;
        let mut answer = Vec::new();
        stream.take(ADMIN_ANSWER_BYTES_MAX as u64).read_to_end(&mut answer).map_err(fail)?;
        parse(&answer).ok_or_else(|| format!("{address} did not answer as a node does"))
    }
}

/// Status and body of an answer that ends with its connection. The node never sends one in chunks.
fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some((status, answer[end + 4..].to_vec()))
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
