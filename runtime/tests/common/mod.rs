//! What tests of whole nodes share: built guests, a node in this process, a plain HTTP client.

#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod process;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use wasmkeep::config::{ClassConfig, NodeConfig};
use wasmkeep::node::{Node, NodeHandle};

/// The file of a built guest: from `WASMKEEP_GUESTS`, where `cargo xtask test` puts it.
pub(crate) fn guest(name: &str) -> PathBuf {
    let dir = std::env::var_os("WASMKEEP_GUESTS").expect("WASMKEEP_GUESTS names the built guests: run `cargo xtask test`");
    Path::new(&dir).join(format!("{name}.wasm"))
}

/// A node in this process, with data of its own.
pub(crate) struct TestNode {
    pub(crate) data: TempDir,
    pub(crate) config: NodeConfig,
    handle: Option<NodeHandle>,
}

impl TestNode {
    /// Serves the test guest as class `test`, and the examples.
    pub(crate) fn start(cores: usize) -> Self {
        Self::start_with(cores, |_| {})
    }

    pub(crate) fn start_with(cores: usize, change: impl FnOnce(&mut NodeConfig)) -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let class = |name, file| ClassConfig::new(name, guest(file));
        let classes =
            vec![class("test", "test_guest"), class("counter", "counter"), class("notes", "notes"), class("hello", "hello_http")];
        let mut config = NodeConfig { cores, classes, data_dir: data.path().join("data"), ..NodeConfig::default() };
        change(&mut config);
        let mut node = Self { data, config, handle: None };
        node.again();
        node
    }

    /// Stops the node as an operator would and waits for its end.
    pub(crate) fn stop(&mut self) {
        if let Some(handle) = self.handle.take() {
            handle.shutdown();
            handle.wait().expect("stops cleanly");
        }
    }

    /// Starts it on the same data.
    pub(crate) fn again(&mut self) {
        self.stop();
        self.handle = Some(Node::start(self.config.clone()).expect("starts"));
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.handle.as_ref().expect("runs").http_addr()
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.handle.as_ref().expect("runs").admin_addr()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.http())
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> (u16, String) {
        self.client().send("POST", path, body)
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.client().send("GET", path, "")
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            handle.stopper().abort();
            let _the_test_has_failed_already_if_this_does = handle.wait();
        }
    }
}

/// One connection that is kept.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("connects")
    }

    pub(crate) fn try_connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.try_send(method, path, body).expect("an answer")
    }

    pub(crate) fn try_send(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
        self.start(method, path, body)?;
        self.answer()
    }

    /// Sends a request without waiting for its answer.
    pub(crate) fn start(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<()> {
        let length = body.len();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(text.as_bytes())
    }

    pub(crate) fn answer(&mut self) -> std::io::Result<(u16, String)> {
        let bad = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if status == 0 {
                status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(bad)?;
            } else if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().map_err(|_| bad())?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}
