//! The `wasmkeep` binary as its operator sees it: starts, refusals, signals, exit statuses. No class of actors is needed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use wasmkeep::config::NodeConfig;
use wasmkeep::node::Node;

fn wasmkeep(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wasmkeep"));
    command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WASMKEEP_")) {
        command.env_remove(name);
    }
    command
}

fn serve(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = wasmkeep(directory);
    command.args(["serve", "--log", "json", "--cores", "1"]).args(arguments);
    command
}

const ANY_PORTS: [&str; 4] = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

/// A node in a process of its own.
struct Process {
    child: Child,
    stderr: BufReader<ChildStderr>,
    http: String,
    admin: String,
    pid: u32,
}

impl Process {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let serving = Self::line(&mut stderr, "serving");
        let text = |name: &str| serving[name].as_str().expect("an address").to_string();
        let pid = u32::try_from(serving["pid"].as_u64().expect("a pid")).expect("a pid");
        Self { http: text("http"), admin: text("admin"), pid, child, stderr }
    }

    /// The next log line with this message.
    fn line(stderr: &mut BufReader<ChildStderr>, message: &str) -> serde_json::Value {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(stderr.read_line(&mut line).expect("reads"), 0, "it ended without saying {message:?}:\n{seen}");
            match serde_json::from_str::<serde_json::Value>(&line) {
                Ok(json) if json["message"].as_str().is_some_and(|text| text.starts_with(message)) => return json,
                _ => seen.push_str(&line),
            }
        }
    }

    fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        // SAFETY: kill has no memory preconditions, and the child is ours and not reaped yet.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.http).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("sets");
        stream
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped_already = self.child.wait();
    }
}

fn get(stream: &mut TcpStream, path: &str) -> String {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).expect("sends");
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head");
        text.push(byte[0]);
    }
    let mut text = String::from_utf8(text).expect("text");
    let length =
        text.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |length| length.parse().expect("a number"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a body");
    text.push_str(&String::from_utf8_lossy(&body));
    text
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn refused(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().expect("runs");
    (output.status.code(), stderr(&output))
}

#[test]
fn a_second_process_on_one_data_directory_is_refused_and_told_the_pid() {
    let directory = TempDir::new().expect("a directory");
    let node = Process::start(serve(directory.path(), &ANY_PORTS));
    let (status, text) = refused(serve(directory.path(), &ANY_PORTS));
    assert_eq!(status, Some(5), "{text}");
    assert!(text.contains(&format!("in use by process {}", node.child.id())), "{text}");
    drop(node);
    // Killed, it holds nothing.
    let mut node = Process::start(serve(directory.path(), &ANY_PORTS));
    node.signal(libc::SIGTERM);
    assert_eq!(node.child.wait().expect("ends").code(), Some(0));
}

#[test]
fn sigterm_and_sigint_stop_cleanly_with_idle_connections_open() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let directory = TempDir::new().expect("a directory");
        let mut node = Process::start(serve(directory.path(), &ANY_PORTS));
        let mut stream = node.connect();
        assert!(get(&mut stream, "/nope/n").starts_with("HTTP/1.1 404"));
        let mut admin = TcpStream::connect(&node.admin).expect("connects");
        assert!(get(&mut admin, "/readyz").starts_with("HTTP/1.1 200"));
        node.signal(signal);
        assert_eq!(node.child.wait().expect("ends").code(), Some(0));
        Process::line(&mut node.stderr, "stopped");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("closed, not reset");
        assert!(rest.is_empty());
    }
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    for (signal, status) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let directory = TempDir::new().expect("a directory");
        let mut node = Process::start(serve(directory.path(), &ANY_PORTS));
        // Half a request keeps the drain going.
        let mut stream = node.connect();
        stream.write_all(b"POST /c/n HTTP/1.1\r\nhost: h\r\n").expect("sends");
        assert!(get(&mut node.connect(), "/nope/n").starts_with("HTTP/1.1 404"));
        node.signal(libc::SIGTERM);
        Process::line(&mut node.stderr, "stopping");
        node.signal(signal);
        assert_eq!(node.child.wait().expect("ends").code(), Some(status));
    }
}

#[test]
fn a_node_that_is_process_one_stops_on_sigterm() {
    let directory = TempDir::new().expect("a directory");
    let may = Command::new("unshare")
        .args(["--pid", "--fork", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !may {
        println!("this machine lets nobody make a process namespace: nothing to see here");
        return;
    }
    let plain = serve(directory.path(), &ANY_PORTS);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]).arg(plain.get_program()).args(plain.get_args());
    command.current_dir(directory.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut node = Process::start(command);
    assert_eq!(node.pid, 1);
    let children = format!("/proc/{0}/task/{0}/children", node.child.id());
    let inner: i32 = std::fs::read_to_string(children).expect("reads").trim().parse().expect("one child");
    // SAFETY: kill has no memory preconditions; the process is the child of our own child, which still waits for it.
    assert_eq!(unsafe { libc::kill(inner, libc::SIGTERM) }, 0);
    let status = node.child.wait().expect("ends");
    assert_eq!((status.code(), status.signal()), (Some(0), None));
}

#[test]
fn a_typo_in_the_file_is_refused_with_its_line_and_the_nearest_key() {
    let directory = TempDir::new().expect("a directory");
    std::fs::write(directory.path().join("wasmkeep.toml"), "app = \"a/b\"\n[node]\nevent-wal = \"1s\"\n").expect("writes");
    for mut command in [serve(directory.path(), &ANY_PORTS), wasmkeep(directory.path())] {
        if command.get_args().count() == 0 {
            command.arg("check");
        }
        let (status, text) = refused(command);
        assert_eq!(status, Some(3), "{text}");
        assert!(
            text.starts_with("wasmkeep: wasmkeep.toml:3: unknown key \"event-wal\" in [node]; did you mean \"event-wall\"?"),
            "{text}"
        );
    }
    assert!(!directory.path().join("wasmkeep-data").exists(), "a node that does not start leaves nothing behind");
}

#[test]
fn check_says_what_is_wrong_with_each_component() {
    let directory = TempDir::new().expect("a directory");
    std::fs::write(directory.path().join("core.wasm"), b"\0asm\x01\0\0\0").expect("writes");
    std::fs::write(directory.path().join("text.wasm"), b"hello").expect("writes");
    let file =
        "[actors.a]\ncomponent = \"core.wasm\"\n[actors.b]\ncomponent = \"text.wasm\"\n[actors.c]\ncomponent = \"none.wasm\"\n";
    std::fs::write(directory.path().join("app.toml"), file).expect("writes");
    let mut command = wasmkeep(directory.path());
    command.args(["check", "app.toml"]);
    let (status, text) = refused(command);
    assert_eq!(status, Some(3), "{text}");
    for needle in ["class a: ", "class b: ", "class c: ", "wasm32-wasip2"] {
        assert!(text.contains(needle), "{text}");
    }
}

#[test]
fn a_flag_goes_before_the_environment_and_the_environment_before_the_file() {
    let directory = TempDir::new().expect("a directory");
    std::fs::write(
        directory.path().join("wasmkeep.toml"),
        "[node]\nlisten = \"127.0.0.4:0\"\nadmin = \"127.0.0.4:0\"\nlog = \"json\"\n",
    )
    .expect("writes");
    let start = |environment: Option<&str>, flag: Option<&str>| {
        let mut command = wasmkeep(directory.path());
        command.args(["serve", "--cores", "1"]);
        if let Some(value) = environment {
            command.env("WASMKEEP_LISTEN", value);
        }
        if let Some(value) = flag {
            command.args(["--listen", value]);
        }
        let node = Process::start(command);
        assert!(node.admin.starts_with("127.0.0.4:"));
        node.http.clone()
    };
    assert!(start(None, None).starts_with("127.0.0.4:"));
    assert!(start(Some("127.0.0.3:0"), None).starts_with("127.0.0.3:"));
    assert!(start(Some("127.0.0.3:0"), Some("127.0.0.2:0")).starts_with("127.0.0.2:"));
}

#[test]
fn an_address_that_is_taken_is_named() {
    let directory = TempDir::new().expect("a directory");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = taken.local_addr().expect("bound").to_string();
    for (flag, other) in [("--listen", "--admin"), ("--admin", "--listen")] {
        let (status, text) = refused(serve(directory.path(), &[flag, &address, other, "127.0.0.1:0"]));
        assert_eq!(status, Some(8), "{text}");
        assert!(text.contains(&format!("cannot listen on {address} ({flag})")), "{text}");
    }
}

#[test]
fn sighup_with_a_wrong_file_changes_nothing_and_says_so() {
    let directory = TempDir::new().expect("a directory");
    let mut node = Process::start(serve(directory.path(), &ANY_PORTS));
    std::fs::write(directory.path().join("wasmkeep.toml"), "ap = 1").expect("writes");
    node.signal(libc::SIGHUP);
    let line = Process::line(&mut node.stderr, "the configuration is not reloaded");
    assert!(line["message"].as_str().is_some_and(|text| text.contains("did you mean \"app\"?")), "{line}");
    std::fs::write(directory.path().join("wasmkeep.toml"), "app = \"a/b\"").expect("writes");
    node.signal(libc::SIGHUP);
    Process::line(&mut node.stderr, "access and variables are reloaded");
    assert!(get(&mut node.connect(), "/nope/n").starts_with("HTTP/1.1 404"));
}

#[test]
fn connections_are_dealt_to_the_cores_in_turn() {
    let directory = TempDir::new().expect("a directory");
    let config = NodeConfig { cores: 4, data_dir: directory.path().join("data"), ..NodeConfig::default() };
    let node = Node::start(config).expect("starts");
    let mut streams: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(node.http_addr()).expect("connects")).collect();
    for stream in &mut streams {
        assert!(get(stream, "/nope/n").starts_with("HTTP/1.1 404"));
    }
    let page = get(&mut TcpStream::connect(node.admin_addr()).expect("connects"), "/metrics");
    for core in 0..4 {
        let line = format!("wasmkeep_http_connections{{core=\"{core}\"}} 10");
        assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
    }
    drop(streams);
    node.shutdown();
    node.wait().expect("stops cleanly");
}

#[test]
fn a_node_can_be_started_again_in_one_process() {
    let directory = TempDir::new().expect("a directory");
    for _ in 0..3 {
        let config = NodeConfig { cores: 2, data_dir: directory.path().join("data"), ..NodeConfig::default() };
        let node = Node::start(config).expect("starts");
        assert!(get(&mut TcpStream::connect(node.http_addr()).expect("connects"), "/nope/n").starts_with("HTTP/1.1 404"));
        node.shutdown();
        node.wait().expect("stops cleanly");
    }
}
