//! Keys of a running node's classes moved by the command line: to another number of shards, through a kill, out of a component.

mod common;

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::door::DoorClient;
use common::process::{Process, serve_configured};
use common::{Client, guest};
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use wasmkeep_classes::kv::client;
use wasmkeep_classes::kv::protocol::{Expect, Options, Write};
use wasmkeep_classes::kv::{Shards, shard_name};

struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn configured(&self, shards: u32) -> Command {
        let config = self.directory.path().join("wasmkeep.toml");
        std::fs::write(&config, format!("[kv.settings]\nshards = {shards}\n")).expect("writes");
        let test = format!("test={}", guest("test_guest").display());
        let old = format!("old={}", guest("jobs_settings").display());
        let file = config.display().to_string();
        serve_configured(&self.data(), &["--config", &file, "--cores", "2", "--actor", &test, "--actor", &old])
    }

    fn serve(&self, shards: u32) -> Process {
        Process::start(self.configured(shards))
    }
}

fn command(node: &Process, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wasmkeep"));
    command.args(line.split(' ')).arg("--admin").arg(node.admin.to_string()).env_remove("WASMKEEP_ADMIN_TOKEN");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(node: &Process, line: &str) -> Output {
    command(node, line).output().expect("ends")
}

fn ok(node: &Process, line: &str) -> String {
    let output = run(node, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn refused(node: &Process, line: &str) -> String {
    let output = run(node, line);
    assert_eq!(output.status.code(), Some(1), "{line}");
    String::from_utf8(output.stderr).expect("text")
}

/// Writes `count` keys of so many bytes each through the operator's door.
fn fill(node: &Process, count: usize, bytes: usize) {
    let mut door = DoorClient::connect(node.admin);
    let value = "v".repeat(bytes);
    for first in (0..count).step_by(8) {
        let writes = (first..count.min(first + 8)).map(|n| json!({ "do": "put", "key": key(n), "value": value }));
        let body = json!({ "write": writes.collect::<Vec<_>>() }).to_string();
        let answer = door.send("POST", "/kv/settings", "content-type: application/json\r\n", body);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

fn key(n: usize) -> String {
    format!("key-{n:05}")
}

/// The keys that the node serves.
fn keys(node: &Process) -> Vec<String> {
    let lines = ok(node, "kv list settings");
    lines.lines().map(|line| line.split('\t').next().expect("a first field").to_owned()).collect()
}

fn status(node: &Process) -> Json {
    serde_json::from_str(&ok(node, "kv show settings --json")).expect("JSON")
}

#[test]
fn a_class_has_another_number_of_shards_at_once_and_at_the_next_start() {
    let place = Place::new();
    let node = place.serve(3);
    fill(&node, 200, 10);
    let expected: Vec<_> = (0..200).map(key).collect();
    assert_eq!(ok(&node, "kv show settings"), "shards\t3\n");
    let mut door = DoorClient::connect(node.admin);
    let printed = ok(&node, "kv reshard settings 7");
    assert!(printed.ends_with(" rows copied; write shards = 7 in [kv.settings] before the next start\n"), "{printed}");
    assert_eq!(keys(&node), expected);
    // The same connection, which knew the old number.
    assert_eq!(door.send("PUT", "/kv/settings/key-00003", "", "new").status, 204);
    assert_eq!(door.send("GET", "/kv/settings/key-00003", "", "").body, b"new");
    let found = status(&node);
    assert_eq!((&found["shards"], &found["move"]["state"]), (&json!(7), &json!("done")), "{found}");
    assert!(found["move"]["rows"].as_u64().is_some_and(|rows| rows > 100), "{found}");
    assert_eq!(node.stop().0, Some(0));

    let refused = place.configured(3).output().expect("ends");
    let log = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(6) && log.contains("wasmkeep kv reshard settings 3"), "{log}");
    let node = place.serve(7);
    assert_eq!(keys(&node), expected);
    assert_eq!(DoorClient::connect(node.admin).send("GET", "/kv/settings/key-00003", "", "").body, b"new");
    ok(&node, "kv reshard settings 2");
    assert_eq!(keys(&node), expected);
    assert_eq!(node.stop().0, Some(0));
    assert_eq!(keys(&place.serve(2)), expected);
}

/// Starts a move and waits until it says that it does `step`.
fn start_until(node: &Process, line: &str, step: &str) -> std::process::Child {
    let mut child = command(node, line).spawn().expect("starts");
    let steps = std::io::BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut steps = steps.map_while(Result::ok);
    assert!(steps.any(|said| said.starts_with(step)), "it never said {step:?}");
    child
}

#[test]
fn a_move_goes_on_after_the_node_was_killed() {
    let place = Place::new();
    let mut node = place.serve(2);
    // Enough to be looked at while it is copied.
    fill(&node, 400, 200_000);
    let expected: Vec<_> = (0..400).map(key).collect();
    let mut started = start_until(&node, "kv reshard settings 5", "copying shard");
    assert_eq!(status(&node)["move"]["state"], "running");
    let other = refused(&node, "kv reshard settings 4");
    assert!(other.contains("reshard settings to 5 shards: is under way"), "{other}");
    let mut door = DoorClient::connect(node.admin);
    assert_eq!(door.send("PUT", "/kv/settings/x", "", "y").problem(), (503, "unavailable".into()));
    node.kill();
    started.wait().expect("it ends with its node");

    let node = place.serve(2);
    assert_eq!(status(&node)["move"], Json::Null);
    assert_eq!(keys(&node), expected, "all is read meanwhile");
    let other = refused(&node, "kv reshard settings 4");
    assert!(other.contains("a move of the keys to 5 shards has begun: finish it with 5 shards, or give it up with 2"), "{other}");
    ok(&node, "kv reshard settings 5");
    assert_eq!(keys(&node), expected);
    assert_eq!(node.stop().0, Some(0));
    assert_eq!(keys(&place.serve(5)), expected);
}

#[test]
fn the_keys_of_a_component_are_imported() {
    let place = Place::new();
    let node = place.serve(2);
    let mut client = Client::connect(node.http);
    let shards = Shards::new(3).expect("few");
    for n in 0..50 {
        let key = key(n);
        let write = Write::Put { key: key.as_bytes(), value: b"theirs", expect: Expect::Any, ttl_ms: None };
        let call = client::write(shards, &write, Options::new()).expect("valid");
        let name = shard_name(shards.of(key.as_bytes()));
        let path = format!("/test/forwarder/call?class=old&name={name}&path=/{}", call.path);
        assert_eq!(client.try_send_bytes(&path, &call.body).expect("an answer").0, 200);
    }
    DoorClient::connect(node.admin).send("PUT", "/kv/settings/key-00007", "", "ours");
    let value = |n| ok(&node, &format!("kv get settings {}", key(n)));
    assert_eq!(ok(&node, "kv import settings --from old"), "49 rows copied\n");
    assert_eq!((value(7), value(8)), ("ours".into(), "theirs".into()));
    assert_eq!(keys(&node), (0..50).map(key).collect::<Vec<_>>());
    assert_eq!(ok(&node, "kv import settings --from old --overwrite"), "50 rows copied\n");
    assert_eq!(value(7), "theirs");
}

#[test]
fn what_makes_no_sense_is_refused_in_words() {
    let place = Place::new();
    let node = place.serve(2);
    assert!(refused(&node, "kv reshard settings 0").contains("shards"));
    assert!(refused(&node, "kv reshard settings 5000").contains("4096"));
    assert!(refused(&node, "kv reshard other 3").contains("no key-value class \"other\""));
    assert!(refused(&node, "kv import settings --from settings").contains("into itself"));
    assert!(refused(&node, "kv import settings --from nowhere").contains("no class \"nowhere\""));
    let not_one = refused(&node, "kv import settings --from test");
    assert!(not_one.contains("test is no key-value class"), "{not_one}");
    let mut door = DoorClient::connect(node.admin);
    assert_eq!(door.send("POST", "/admin/kv/settings/reshard", "", "{\"shards\":3}").problem().0, 400, "a page could send that");
    let json = "content-type: application/json\r\n";
    assert_eq!(door.send("POST", "/admin/kv/settings/reshard", json, "{\"shard\":3}").problem().0, 400);
    assert_eq!(door.send("POST", "/admin/kv/settings/other", json, "{}").problem().0, 404);
    let last = &status(&node)["move"];
    assert_eq!((&last["state"], &last["what"]), (&json!("failed"), &json!("import test into settings")));
    assert!(is_unchanged(&place.data()));
}

/// Whether the data directory has the number that it was made with.
fn is_unchanged(data: &Path) -> bool {
    std::fs::read_to_string(data.join("node.json")).expect("reads").contains("\"settings\":2")
}
