//! A client of the service door: any method, headers and bytes, one connection that is kept.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One connection.
pub(crate) struct DoorClient {
    stream: BufReader<TcpStream>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// Its status and the type of its problem.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        (self.status, self.json()["type"].as_str().expect("a text").to_owned())
    }
}

impl DoorClient {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_nodelay(true).expect("sets");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("sets");
        Self { stream: BufReader::new(stream) }
    }

    /// Sends a request with these header lines, each ending in CR LF, and reads its answer.
    pub(crate) fn send(&mut self, method: &str, target: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
        self.start(method, target, headers, body);
        self.answer(method == "HEAD").expect("an answer")
    }

    /// Sends a request without waiting for its answer.
    pub(crate) fn start(&mut self, method: &str, target: &str, headers: &str, body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        let host = if headers.contains("host: ") { "" } else { "host: localhost\r\n" };
        let head = format!("{method} {target} HTTP/1.1\r\n{host}{headers}content-length: {}\r\n\r\n", body.len());
        let bytes = [head.as_bytes(), body].concat();
        // A node that refuses a body may have answered before all of it was sent.
        let _answered_early = self.stream.get_mut().write_all(&bytes);
    }

    pub(crate) fn answer(&mut self, is_head: bool) -> std::io::Result<Answer> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_owned();
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        let status = lines[0].split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let header = |line: &String| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        let headers: Vec<_> = lines[1..].iter().filter_map(header).collect();
        let mut answer = Answer { status, headers, body: Vec::new() };
        let length = answer.header("content-length").map_or(0, |length| length.parse().expect("a number"));
        if !is_head && !matches!(status, 204 | 304) {
            answer.body = vec![0; length];
            self.stream.read_exact(&mut answer.body)?;
        }
        Ok(answer)
    }

    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.send("GET", target, "", "")
    }

    pub(crate) fn post(&mut self, target: &str, body: impl AsRef<[u8]>) -> Answer {
        self.send("POST", target, "", body)
    }

    pub(crate) fn put(&mut self, target: &str, body: impl AsRef<[u8]>) -> Answer {
        self.send("PUT", target, "", body)
    }

    pub(crate) fn post_json(&mut self, target: &str, body: &serde_json::Value) -> Answer {
        self.send("POST", target, "content-type: application/json\r\n", body.to_string())
    }
}
