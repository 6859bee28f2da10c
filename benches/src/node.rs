//! A whole node as a process of its own, and a plain HTTP client for it.
//!
//! The node is this same program, started anew in the role of `wasmkeep serve`: whoever uses this calls [`play_role`] first
//! thing in `main`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use wasmkeep::limits::CORE_SWEEP_MS;

use crate::restart;

/// The environment variable that tells a child what it is.
const ROLE: &str = "BENCH_ROLE";
/// How long a client waits for an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(120);

/// Is what a parent said this process is, if one did; the caller then returns the status from `main`.
#[must_use]
pub fn play_role() -> Option<ExitCode> {
    match std::env::var(ROLE).ok()?.as_str() {
        "node" => Some(wasmkeep::cli::main()),
        "fill" => restart::fill_and_die(),
        other => panic!("{ROLE}={other}"),
    }
}

/// This program in a role, without settings that were meant for another node.
pub(crate) fn in_role(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WASMKEEP_")) {
        command.env_remove(name);
    }
    command.env(ROLE, role);
    command
}

/// The file of a built guest.
fn guest(name: &str) -> PathBuf {
    let dir = std::env::var_os("WASMKEEP_GUESTS").expect("WASMKEEP_GUESTS names the built guests: see `cargo xtask guests`");
    Path::new(&dir).join(format!("{name}.wasm"))
}

/// A node that serves the test guest as `test` and the counter as `counter`. Killed when dropped.
#[derive(Debug)]
pub struct Node {
    child: Child,
    http: SocketAddr,
    admin: SocketAddr,
}

impl Node {
    /// Starts it; returns when it serves.
    #[must_use]
    pub fn start(data: &Path, flags: &[&str]) -> Self {
        let mut command = in_role("node");
        command.args(["serve", "--log", "json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data"]).arg(data);
        for (class, file) in [("test", "test_guest"), ("counter", "counter")] {
            command.arg("--actor").arg(format!("{class}={}", guest(file).display()));
        }
        let mut child = command.args(flags).stderr(Stdio::piped()).spawn().expect("starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut said = String::new();
        let serving = loop {
            let line = lines.next().unwrap_or_else(|| panic!("the node ended before it served:\n{said}")).expect("reads");
            let json: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if json["message"].as_str().is_some_and(|text| text.starts_with("serving")) {
                break json;
            }
            said.push_str(&line);
        };
        let address = |name: &str| serving[name].as_str().and_then(|text| text.parse().ok()).expect("an address");
        // What it logs later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, http: address("http"), admin: address("admin") }
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A connection to it.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::connect(self.http)
    }

    /// The sum of all series of a metric whose labels hold a text.
    #[must_use]
    pub fn metric(&self, name: &str, label: &str) -> f64 {
        let page = Client::connect(self.admin).ok("GET", "/metrics", "");
        let of_name = page.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        of_name.filter(|line| line.contains(label)).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Waits until no actor is in memory.
    pub fn until_all_sleep(&self) {
        // The number is as of the core's last sweep: it must not be that of before the last actor woke.
        std::thread::sleep(Duration::from_millis(3 * CORE_SWEEP_MS));
        while self.metric("wasmkeep_actors", "loaded") > 0.5 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops it as an operator would: base files and catalogs then have everything.
    pub fn stop(mut self) {
        // SAFETY: the process is our child and was not waited for, so the number is its own.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        assert!(self.child.wait().expect("ends").success(), "the node did not stop cleanly");
    }

    /// Ends it with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("kills");
        self.child.wait().expect("ends");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped_already = self.child.wait();
    }
}

/// One kept connection.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Client {
    /// Connects.
    #[must_use]
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_nodelay(true).expect("a TCP option");
        stream.set_read_timeout(Some(ANSWER_WAIT)).expect("a TCP option");
        Self { stream: BufReader::new(stream), line: String::new() }
    }

    /// Asks and expects status 200.
    pub fn ok(&mut self, method: &str, path: &str, body: &str) -> String {
        let (status, answer) = self.ask(method, path, body);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    /// Asks and waits for the answer.
    pub fn ask(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.try_ask(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// The same, of a node that may be gone.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn try_ask(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}");
        self.stream.get_mut().write_all(head.as_bytes())?;
        let (mut status, mut length) = (0, 0);
        loop {
            self.line.clear();
            if self.stream.read_line(&mut self.line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = self.line.trim_end();
            match line.strip_prefix("content-length: ") {
                _ if line.is_empty() => break,
                Some(value) => length = value.parse().map_err(std::io::Error::other)?,
                None if status == 0 => status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0),
                None => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}
