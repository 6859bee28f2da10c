//! What the admin listener says, and to whom.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::LocalSet;
use wasmkeep_storage::Address;

use super::client::AdminClient;
use super::{AdminRequest, AdminSetup, serve};
use crate::config::{AppName, Secret};
use crate::data_dir::DataDir;
use crate::http::accept;
use crate::metrics::Metrics;
use crate::node::Phase;

struct Listener {
    address: SocketAddr,
    phase: Phase,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

const TOKEN: &str = "0123456789abcdef";

impl Listener {
    fn start(token: Option<&str>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let phase = Phase::default();
        let setup = AdminSetup {
            token: token.map(|token| Secret(token.into())),
            loopback: true,
            phase: phase.clone(),
            metrics: Arc::new(Metrics::new(AppName::default())),
            cores: Arc::new(OnceLock::new()),
            natives: Vec::new(),
            data: Arc::new(DataDir::open(directory.path()).expect("opens")),
        };
        let _core = setup.metrics.core(0);
        let socket = accept::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("binds");
        let address = socket.local_addr().expect("bound");
        let (stop, stopped) = watch::channel(false);
        let runtime = Builder::new_current_thread().enable_all().build().expect("builds");
        let listener = {
            let _context = runtime.enter();
            accept::listen(socket).expect("listens")
        };
        let thread = thread::spawn(move || runtime.block_on(LocalSet::new().run_until(serve(listener, setup, stopped))));
        Self { address, phase, stop, thread: Some(thread), _directory: directory }
    }

    /// Status and text of an answer to these lines.
    fn ask(&self, line: &str, headers: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("sets");
        stream.write_all(format!("{line} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n").as_bytes()).expect("sends");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        (text.split(' ').nth(1).expect("a status").parse().expect("a number"), text)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        let _failed_anyway = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn health_is_about_the_process_and_readiness_about_serving() {
    let listener = Listener::start(None);
    assert_eq!(listener.ask("GET /healthz", "").0, 200);
    let (status, text) = listener.ask("GET /readyz", "");
    assert!(status == 503 && text.contains("\"unavailable\""), "{text}");
    listener.phase.set(Phase::SERVING);
    assert_eq!(listener.ask("GET /readyz", "").0, 200);
    assert_eq!(listener.ask("HEAD /readyz", "").0, 200);
    listener.phase.set(Phase::DRAINING);
    let (status, text) = listener.ask("GET /readyz", "");
    assert!(status == 503 && text.contains("\"draining\""), "{text}");
    listener.phase.set(Phase::SERVING);
    assert_eq!(listener.ask("GET /readyz", "").0, 503, "a node that drains never serves again");
    assert_eq!(listener.ask("GET /healthz", "").0, 200);
}

#[test]
fn metrics_are_text_and_other_paths_are_problems() {
    let listener = Listener::start(None);
    let (status, text) = listener.ask("GET /metrics", "");
    assert_eq!(status, 200);
    assert!(text.contains("content-type: text/plain; version=0.0.4"), "{text}");
    assert!(text.contains("wasmkeep_http_connections{core=\"0\"} 0"), "{text}");
    for line in ["GET /", "GET /metricsx", "POST /metrics", "DELETE /admin/actors/c/n", "GET /admin/actorsx", "GET /admin"] {
        let (status, text) = listener.ask(line, "");
        assert!(status == 404 && text.contains("application/problem+json") && text.contains("\"not-found\""), "{line}: {text}");
    }
}

#[test]
fn a_token_is_asked_for_everything_but_the_probes() {
    let listener = Listener::start(Some(TOKEN));
    for path in ["/healthz", "/readyz"] {
        assert_ne!(listener.ask(&format!("GET {path}"), "").0, 401, "{path}");
    }
    for path in ["/metrics", "/admin/actors", "/unknown"] {
        for header in [
            "",
            "authorization: Bearer\r\n",
            "authorization: Bearer \r\n",
            "authorization: Bearer 0123456789abcde\r\n",
            "authorization: Bearer 0123456789abcdef0\r\n",
            "authorization: Bearer 0123456789abcdef0123456789abcdef\r\n",
            "authorization: Basic 0123456789abcdef\r\n",
            "authorization: 0123456789abcdef\r\n",
        ] {
            let (status, text) = listener.ask(&format!("GET {path}"), header);
            assert!(status == 401 && text.contains("www-authenticate: Bearer"), "{path} {header}: {text}");
        }
    }
    for scheme in ["Bearer", "bearer"] {
        assert_eq!(listener.ask("GET /metrics", &format!("authorization: {scheme} {TOKEN}\r\n")).0, 200);
    }
}

#[test]
fn a_page_in_a_browser_reaches_nothing_through_a_foreign_name() {
    let listener = Listener::start(None);
    for (host, status) in
        [("evil.example", 401), ("evil.example:9090", 401), ("localhost:9090", 200), ("127.0.0.1", 200), ("[::1]:9090", 200)]
    {
        assert_eq!(listener.ask("GET /metrics", &format!("host: {host}\r\n")).0, status, "{host}");
    }
    let body = r#"{"sql":"select 1"}"#;
    let length = format!("content-length: {}\r\ncontent-type: text/plain\r\n\r\n{body}", body.len());
    assert_eq!(listener.ask("POST /admin/actors/c/n/sql", &length).0, 400);
}

#[test]
fn questions_about_actors_are_checked_before_they_reach_a_core() {
    let listener = Listener::start(None);
    for (line, status) in [
        ("GET /admin/actors?limit=0", 400),
        ("GET /admin/actors?limit=x", 400),
        ("GET /admin/actors?colour=red", 400),
        ("GET /admin/actors/c", 400),
        ("GET /admin/actors/C/n", 400),
        ("GET /admin/actors/c/n/x", 400),
        ("GET /admin/actors/c/%00", 400),
        // These are right, and there is no core yet.
        ("GET /admin/actors", 503),
        ("GET /admin/actors?class=c&after=c%2Fn&limit=10", 503),
        ("GET /admin/actors/c/a%2Fb", 503),
    ] {
        assert_eq!(listener.ask(line, "").0, status, "{line}");
    }
    for (body, status) in [("{}", 400), ("{\"sql\":1}", 400), ("{\"sql\":\"x\",\"y\":1}", 400), ("{\"sql\":\"x\"}", 503)] {
        let headers = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        assert_eq!(listener.ask("POST /admin/actors/c/n/sql", &headers).0, status, "{body}");
    }
}

#[test]
fn the_command_line_says_what_the_node_said_and_who_does_not_answer() {
    let listener = Listener::start(Some(TOKEN));
    let show = AdminRequest::Show(Address::new("c", "odd / name? é"));
    let mut client = AdminClient { address: listener.address, token: None };
    assert!(client.ask(&show).expect_err("no token").contains("--admin-token"));
    client.token = Some(Secret(TOKEN.into()));
    assert_eq!(client.ask(&show).expect_err("no core yet"), "the node is starting");
    drop(listener);
    assert!(client.ask(&show).expect_err("nobody is there").contains("--admin"));
}
