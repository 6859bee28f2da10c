//! One core's HTTP over loopback, with actors that do what the path says and a clock that moves when told.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::LocalSet;
use wasmkeep_storage::Address;
use wasmkeep_storage::clock::{Clock, ManualClock};

use crate::config::{Access, AppName, ClassConfig, LiveClasses};
use crate::event::{Outcome, Problem, Request, Response};
use crate::http::{Actors, HttpSetup, accept, serve};
use crate::metrics::Metrics;
use crate::node::Stop;

/// No test waits longer than this for a byte.
const PATIENCE: Duration = Duration::from_secs(30);

/// Actors that do what the path says.
#[derive(Clone)]
struct Desk {
    seen: std_mpsc::Sender<Seen>,
    release: Arc<Semaphore>,
}

/// What reached an actor.
#[derive(Debug)]
pub(super) enum Seen {
    Request(Address, Request),
    /// The wait for a held answer was given up.
    GivenUp,
}

struct GiveUp(Option<std_mpsc::Sender<Seen>>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        if let Some(seen) = self.0.take() {
            let _test_is_over = seen.send(Seen::GivenUp);
        }
    }
}

impl Actors for Desk {
    fn request(&self, _: Option<Address>, address: Address, request: Request) -> impl Future<Output = Outcome> + 'static {
        let desk = self.clone();
        async move {
            let path = request.path.clone();
            let body = request.body.clone();
            let _test_is_over = desk.seen.send(Seen::Request(address, request));
            let (verb, argument) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
            match verb {
                "hold" => {
                    let mut given_up = GiveUp(Some(desk.seen.clone()));
                    desk.release.acquire().await.expect("never closed").forget();
                    given_up.0 = None;
                    response(200, &[], body)
                }
                "big" => response(200, &[], vec![b'x'; argument.parse().expect("a number")].into()),
                "status" => response(argument.parse().expect("a number"), &[], Bytes::from_static(b"body")),
                "headers" => {
                    let list =
                        [("content-length", "7"), ("transfer-encoding", "chunked"), ("set-cookie", "a"), ("set-cookie", "b")];
                    response(200, &list, Bytes::from_static(b"body"))
                }
                "bad-header" => response(200, &[("x-a\r\nb", "c")], Bytes::new()),
                "bad-value" => response(200, &[("x-a", "b\nc")], Bytes::new()),
                "length-only" => response(200, &[("content-length", "42")], Bytes::new()),
                "full" => Outcome::Problem(Problem::MailboxFull),
                "trap" => Outcome::Problem(Problem::Trap("unreachable".into())),
                _ => response(200, &[], body),
            }
        }
    }
}

fn response(status: u16, headers: &[(&str, &str)], body: Bytes) -> Outcome {
    let headers = headers.iter().map(|(name, value)| ((*name).to_string(), value.as_bytes().to_vec())).collect();
    Outcome::Response(Response { status, headers, body })
}

/// A core's HTTP that serves the classes `c` (public) and `in` (internal).
pub(super) struct Served {
    pub(super) address: SocketAddr,
    pub(super) stop: watch::Sender<Stop>,
    pub(super) classes: watch::Sender<Arc<LiveClasses>>,
    pub(super) time: Arc<ManualClock>,
    pub(super) seen: std_mpsc::Receiver<Seen>,
    pub(super) release: Arc<Semaphore>,
    pub(super) metrics: Arc<Metrics>,
    thread: Option<JoinHandle<()>>,
}

pub(super) fn classes(inner: Access) -> Arc<LiveClasses> {
    let public = ClassConfig::new("c", "c.wasm");
    let internal = ClassConfig { access: inner, ..ClassConfig::new("in", "in.wasm") };
    Arc::new(LiveClasses::new(&[public, internal], &[]))
}

impl Served {
    pub(super) fn start() -> Self {
        let (clock, time) = Clock::manual();
        let (seen_sender, seen) = std_mpsc::channel();
        let release = Arc::new(Semaphore::new(0));
        let metrics = Arc::new(Metrics::new(AppName::default()));
        let (stop, stopped) = watch::channel(Stop::No);
        let (classes, classes_receiver) = watch::channel(classes(Access::Internal));
        let (sender, incoming) = mpsc::channel(64);
        let desk = Desk { seen: seen_sender, release: Arc::clone(&release) };
        let setup = HttpSetup {
            incoming,
            door: None,
            stop: stopped.clone(),
            classes: classes_receiver,
            metrics: metrics.core(0),
            clock,
            sweep: Duration::from_millis(1),
        };
        let socket = accept::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("binds");
        let address = socket.local_addr().expect("bound");
        let (ready, is_ready) = std_mpsc::channel();
        let body = move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("builds");
            let local = LocalSet::new();
            runtime.block_on(local.run_until(async move {
                let listener = accept::listen(socket).expect("listens");
                ready.send(()).expect("the test waits");
                tokio::task::spawn_local(accept::deal(listener, vec![sender], stopped));
                serve(desk, setup).await;
            }));
        };
        let thread = Some(thread::spawn(body));
        is_ready.recv().expect("starts");
        Self { address, stop, classes, time, seen, release, metrics, thread }
    }

    pub(super) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// The next request that reached an actor.
    pub(super) fn request(&self) -> (Address, Request) {
        match self.seen.recv_timeout(PATIENCE) {
            Ok(Seen::Request(address, request)) => (address, request),
            other => panic!("no request came: {other:?}"),
        }
    }

    /// Returns once the core has read what clients sent before: every answer to this connection takes a turn of the core, and
    /// each turn polls every socket that has bytes.
    pub(super) fn settle(&self) {
        let mut client = self.client();
        for _ in 0..20 {
            assert_eq!(client.get("/settle/n").status, 404);
        }
    }

    /// Waits until serving has ended.
    pub(super) fn join(mut self) {
        self.thread.take().expect("joined once").join().expect("no panic");
    }

    /// Waits until a line is on the metrics page. The page follows the core by one sweep.
    pub(super) fn await_metric(&self, line: &str) {
        for _ in 0..PATIENCE.as_millis() / 5 {
            if self.metrics.render().lines().any(|found| found == line) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("{line} never came in\n{}", self.metrics.render());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.send_replace(Stop::Now);
        if let Some(thread) = self.thread.take() {
            let _the_test_failed_anyway = thread.join();
        }
    }
}

/// A client that sends bytes as they are.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    buffer: Vec<u8>,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    headers: HashMap<String, Vec<String>>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|values| values[0].as_str())
    }

    pub(super) fn all(&self, name: &str) -> Vec<String> {
        self.headers.get(name).cloned().unwrap_or_default()
    }

    pub(super) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let json: serde_json::Value = serde_json::from_slice(&self.body).expect("JSON");
        assert_eq!(json["status"], self.status);
        json["type"].as_str().expect("a type").to_string()
    }
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("sets");
        stream.set_write_timeout(Some(PATIENCE)).expect("sets");
        Self { stream, buffer: Vec::new() }
    }

    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("sends");
    }

    pub(super) fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n"));
        self.answer()
    }

    pub(super) fn post(&mut self, path: &str, body: &[u8]) -> Answer {
        self.send(format!("POST {path} HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n", body.len()));
        self.send(body);
        self.answer()
    }

    pub(super) fn answer(&mut self) -> Answer {
        self.read_answer(true).expect("an answer")
    }

    /// An answer without a body, whatever its length says.
    pub(super) fn answer_to_head(&mut self) -> Answer {
        self.read_answer(false).expect("an answer")
    }

    /// Reads until the node closes; what came.
    pub(super) fn rest(mut self) -> Vec<u8> {
        // A reset closes too.
        let _reset = self.stream.read_to_end(&mut self.buffer);
        self.buffer
    }

    pub(super) fn read_answer(&mut self, with_body: bool) -> Option<Answer> {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            self.more()?;
        };
        let head = String::from_utf8(self.buffer[..end].to_vec()).expect("a head is text");
        self.buffer.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok()).expect("a status");
        let mut headers: HashMap<String, Vec<String>> = HashMap::new();
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            headers.entry(name.to_string()).or_default().push(value.to_string());
        }
        if status == 100 {
            return self.read_answer(with_body);
        }
        let length = headers.get("content-length").map_or(0, |values| values[0].parse().expect("a length"));
        let length = if with_body { length } else { 0 };
        while self.buffer.len() < length {
            self.more()?;
        }
        Some(Answer { status, headers, body: self.buffer.drain(..length).collect() })
    }

    fn more(&mut self) -> Option<()> {
        let mut chunk = vec![0; 256 * 1024];
        let count = self.stream.read(&mut chunk).ok().filter(|count| *count > 0)?;
        self.buffer.extend_from_slice(&chunk[..count]);
        Some(())
    }
}
