//! What tests of whole nodes share: built guests, a node in this process, a plain HTTP client.

#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod disk;
pub(crate) mod door;
pub(crate) mod process;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use disk::TestDisk;
use tempfile::TempDir;
use wasmkeep::config::{ClassConfig, NodeConfig};
use wasmkeep::fatal::Fatal;
use wasmkeep::node::{Node, NodeHandle};
use wasmkeep_storage::clock::{AheadClock, Clock};

/// The file of a built guest: from `WASMKEEP_GUESTS`, where `cargo xtask test` puts it.
pub(crate) fn guest(name: &str) -> PathBuf {
    let dir = std::env::var_os("WASMKEEP_GUESTS").expect("WASMKEEP_GUESTS names the built guests: run `cargo xtask test`");
    Path::new(&dir).join(format!("{name}.wasm"))
}

/// A node in this process, with data of its own.
pub(crate) struct TestNode {
    pub(crate) data: TempDir,
    pub(crate) config: NodeConfig,
    /// What its storage is on, if not the machine's disk.
    pub(crate) disk: Option<TestDisk>,
    /// What it lives by: the machine's time, put forward when told.
    pub(crate) time: Arc<AheadClock>,
    handle: Option<NodeHandle>,
}

impl TestNode {
    /// Serves the test guest as class `test`, and the examples.
    pub(crate) fn start(cores: usize) -> Self {
        Self::start_with(cores, |_| {})
    }

    pub(crate) fn start_with(cores: usize, change: impl FnOnce(&mut NodeConfig)) -> Self {
        Self::start_on(None, cores, change)
    }

    pub(crate) fn start_on(disk: Option<&TestDisk>, cores: usize, change: impl FnOnce(&mut NodeConfig)) -> Self {
        let mut node = Self::prepare(disk, cores, change);
        node.again();
        node
    }

    /// Everything but the start.
    pub(crate) fn prepare(disk: Option<&TestDisk>, cores: usize, change: impl FnOnce(&mut NodeConfig)) -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let class = |name, file| ClassConfig::new(name, guest(file));
        let classes =
            vec![class("test", "test_guest"), class("counter", "counter"), class("notes", "notes"), class("hello", "hello_http")];
        let mut config = NodeConfig { cores, classes, data_dir: data.path().join("data"), ..NodeConfig::default() };
        change(&mut config);
        Self { data, config, disk: disk.cloned(), time: Arc::default(), handle: None }
    }

    /// Stops the node as an operator would and waits for its end.
    pub(crate) fn stop(&mut self) {
        if let Some(handle) = self.handle.take() {
            handle.shutdown();
            handle.wait().expect("stops cleanly");
        }
    }

    /// Begins to stop it; the thread ends when it has stopped.
    pub(crate) fn stop_later(&mut self) -> std::thread::JoinHandle<()> {
        let handle = self.handle.take().expect("runs");
        handle.shutdown();
        std::thread::spawn(move || handle.wait().expect("stops cleanly"))
    }

    /// Starts it on the same data.
    pub(crate) fn again(&mut self) {
        self.try_again().expect("starts");
    }

    /// Starts it on the same data, if it can.
    pub(crate) fn try_again(&mut self) -> Result<(), Fatal> {
        self.stop();
        let config = self.config.clone();
        let disk = self.disk.as_ref().map(|disk| disk.node_disk(&config.data_dir));
        self.handle = Some(Node::start_by(config, Clock::Ahead(Arc::clone(&self.time)), disk)?);
        Ok(())
    }

    /// Ends it without a clean stop of its clients.
    pub(crate) fn abort(&mut self) {
        if let Some(handle) = self.handle.take() {
            // A node waits for its disk, whatever happens.
            self.disk.iter().for_each(|disk| {
                disk.unhook();
                disk.release();
            });
            handle.stopper().abort();
            let _how = handle.wait();
        }
    }

    /// The sum of the series that begin so.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let (_, page) = Client::connect(self.admin()).send("GET", "/metrics", "");
        let lines = page.lines().filter(|line| line.starts_with(series));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.handle.as_ref().expect("runs").http_addr()
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.handle.as_ref().expect("runs").admin_addr()
    }

    /// Where the service door is.
    pub(crate) fn api(&self) -> SocketAddr {
        self.handle.as_ref().expect("runs").api_addr().expect("it has a service door")
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
        self.abort();
    }
}

/// Asks again and again until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("a minute went by and still not: {what}");
}

/// One connection that is kept.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    /// The head of the last answer, in lower case.
    pub(crate) head: String,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("connects")
    }

    pub(crate) fn try_connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { stream: BufReader::new(stream), head: String::new() })
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.try_send(method, path, body).expect("an answer")
    }

    pub(crate) fn try_send(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
        self.start(method, path, body)?;
        self.answer()
    }

    /// Sends bytes and answers bytes.
    pub(crate) fn try_send_bytes(&mut self, path: &str, body: &[u8]) -> std::io::Result<(u16, Vec<u8>)> {
        self.start_with("POST", path, "", body)?;
        self.answer_bytes()
    }

    /// Sends a request without waiting for its answer.
    pub(crate) fn start(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<()> {
        self.start_with(method, path, "", body.as_bytes())
    }

    /// The same with headers, each with its line's end.
    pub(crate) fn start_with(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> std::io::Result<()> {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n"
        );
        self.stream.get_mut().write_all(&[head.as_bytes(), body].concat())
    }

    /// Whether an answer, or the connection's end, is there already.
    pub(crate) fn has_answer(&mut self) -> bool {
        if !self.stream.buffer().is_empty() {
            return true;
        }
        let stream = self.stream.get_ref();
        stream.set_nonblocking(true).expect("sets");
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false).expect("sets");
        !peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    pub(crate) fn answer(&mut self) -> std::io::Result<(u16, String)> {
        let (status, body) = self.answer_bytes()?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    pub(crate) fn answer_bytes(&mut self) -> std::io::Result<(u16, Vec<u8>)> {
        let bad = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        let (mut status, mut length) = (0, 0);
        self.head.clear();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            self.head.push_str(&line.to_lowercase());
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
        Ok((status, body))
    }
}
