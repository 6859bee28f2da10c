//! `wasmkeep kv` and `wasmkeep queue` against a running node: what they print, what they refuse, and that bytes stay what they are.

mod common;

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use common::process::{Process, serve_configured};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

const CONFIG: &str = "
[kv.settings]
shards = 3
[queues.mail]
max-attempts = 1
[queues.jobs]
ordering = true
";

struct Shell {
    node: Process,
    admin: SocketAddr,
    directory: TempDir,
}

/// What a command did.
struct Done {
    out: Vec<u8>,
    err: String,
    is_success: bool,
}

impl Shell {
    fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let config = directory.path().join("wasmkeep.toml");
        std::fs::write(&config, CONFIG).expect("writes");
        let config = config.display().to_string();
        let arguments = [&["--config", &config, "--cores", "2"], arguments].concat();
        let node = Process::start(serve_configured(&directory.path().join("data"), &arguments));
        Self { admin: node.admin, node, directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Runs `wasmkeep` with these arguments, parted by blanks, and this on its standard input.
    fn run(&self, line: &str, stdin: &[u8]) -> Done {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wasmkeep"));
        command.args(line.split(' ')).arg("--admin").arg(self.admin.to_string()).env_remove("WASMKEEP_ADMIN_TOKEN");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let mut pipe = child.stdin.take().expect("piped");
        // Whoever is refused at once reads nothing.
        let _refused = pipe.write_all(stdin);
        drop(pipe);
        let output = child.wait_with_output().expect("ends");
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        Done { out: output.stdout, err, is_success: output.status.success() }
    }

    fn ok(&self, line: &str, stdin: &[u8]) -> Vec<u8> {
        let done = self.run(line, stdin);
        assert!(done.is_success, "{line}: {}", done.err);
        assert_eq!(done.err, "", "{line}");
        done.out
    }

    fn text(&self, line: &str, stdin: &[u8]) -> String {
        String::from_utf8(self.ok(line, stdin)).expect("text")
    }

    fn json(&self, line: &str, stdin: &[u8]) -> Json {
        serde_json::from_slice(&self.ok(&format!("{line} --json"), stdin)).expect("JSON")
    }

    /// The message of a refusal.
    fn refused(&self, line: &str, stdin: &[u8]) -> String {
        let done = self.run(line, stdin);
        assert!(!done.is_success && done.out.is_empty(), "{line}: {}", String::from_utf8_lossy(&done.out));
        done.err
    }
}

#[test]
fn values_come_from_standard_input_and_go_to_standard_output_as_they_are() {
    let shell = Shell::start(&[]);
    let value: Vec<u8> = (0..=255).cycle().take(3 << 20).collect();
    let version: i64 = shell.text("kv put settings a/%2F", &value).trim().parse().expect("a version");
    assert_eq!(shell.ok("kv get settings a/%2F", b""), value);
    assert_eq!(shell.text("kv put settings empty", b""), shell.json("kv get settings empty", b"")["version"].to_string() + "\n");
    assert_eq!(shell.ok("kv get settings empty", b""), b"");
    let found = shell.json("kv get settings a/%2F", b"");
    assert_eq!((&found["key"], &found["version"]), (&json!("a/%2F"), &json!(version)));
    assert!(found["value_base64"].is_string() && found.get("value").is_none());
}

#[test]
fn conditions_lives_and_operation_ids_of_writes_are_flags() {
    let shell = Shell::start(&[]);
    let version = shell.text("kv put settings k --if-absent", b"one");
    let version = version.trim();
    assert!(shell.refused("kv put settings k --if-absent", b"two").contains(&format!("conflict: the key has version {version}")));
    assert!(shell.refused("kv put settings k --if-version 999", b"two").starts_with("wasmkeep: conflict: "));
    assert!(shell.refused("kv delete settings k --if-version 999", b"").contains("conflict"));
    shell.ok(&format!("kv put settings k --if-version {version} --ttl 1h --op x"), b"two");
    let again = shell.text(&format!("kv put settings k --if-version {version} --ttl 1h --op x"), b"two");
    let found = shell.json("kv get settings k", b"");
    assert_eq!((found["version"].to_string() + "\n", &found["value"]), (again, &json!("two")));
    assert!(found["ttl_ms"].as_u64().is_some_and(|ms| ms <= 3_600_000));
    shell.ok("kv put settings k --local", b"three");
    assert_eq!(shell.json("kv delete settings k", b""), json!({ "deleted": true }));
    assert!(shell.refused("kv get settings k", b"").contains("not-found"));
    assert!(shell.refused("kv delete settings k", b"").contains("not-found"));
}

#[test]
fn a_list_goes_on_over_pages_and_shards_in_byte_order() {
    let shell = Shell::start(&[]);
    // More than a page of the listing has.
    let writes = |range: std::ops::Range<u32>| {
        let write = |n| json!({ "do": "put", "key": format!("n{n:04}"), "value": "v\t\u{1b}" });
        json!({ "write": range.map(write).collect::<Vec<_>>() })
    };
    let mut door = common::door::DoorClient::connect(shell.admin);
    for range in [0..900, 900..1300] {
        assert_eq!(door.post_json("/kv/settings", &writes(range)).status, 200);
    }
    shell.ok("kv put settings other", b"");
    let all = shell.text("kv list settings", b"");
    let keys: Vec<&str> = all.lines().map(|line| line.split('\t').next().unwrap_or_default()).collect();
    let expected: Vec<String> = (0..1300).map(|n| format!("n{n:04}")).chain(["other".into()]).collect();
    assert_eq!(keys, expected);
    let some = shell.text("kv list settings --prefix n --after n1100 --limit 150 --values", b"");
    assert_eq!((some.lines().count(), some.lines().next().map(|line| line.starts_with("n1101\t"))), (150, Some(true)));
    assert!(some.lines().all(|line| line.ends_with("\tv\\t\\u{1b}")), "no control characters reach a terminal");
    let rows = shell.text("kv list settings --prefix o --json", b"");
    assert_eq!(serde_json::from_str::<Json>(&rows).expect("a row a line")["key"], "other");
}

#[test]
fn a_list_of_large_values_is_asked_for_in_smaller_pages() {
    let shell = Shell::start(&[]);
    let value = vec![b'v'; 4 << 20];
    for n in 0..16 {
        shell.ok(&format!("kv put settings n{n:02}"), &value);
    }
    let all = shell.text("kv list settings --values --json", b"");
    let rows: Vec<Json> = all.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(rows.iter().map(|row| row["key"].as_str().expect("text")).collect::<Vec<_>>().len(), 16);
    assert!(rows.iter().all(|row| row["value"].as_str().is_some_and(|text| text.len() == value.len())));
}

/// Sends so many messages and lets each fail for good.
fn fail(shell: &Shell, count: usize) {
    let mut door = common::door::DoorClient::connect(shell.admin);
    for _ in 0..count {
        shell.ok("queue send mail/main", b"bad \x1b\xff");
        let leased = door.post("/queues/mail/main/lease?max=1", "").json();
        let body = json!({ "outcomes": [{ "lease": leased["messages"][0]["lease"], "do": "retry", "error": "no\nsuch" }] });
        assert_eq!(door.post_json("/queues/mail/main/settle", &body).json(), json!({ "settled": ["dead"] }));
    }
}

#[test]
fn dead_letters_are_listed_redriven_and_purged() {
    let shell = Shell::start(&[]);
    fail(&shell, 4);
    let dead = shell.text("queue dead mail/main", b"");
    assert_eq!(dead.lines().collect::<Vec<_>>()[0], "1\t1\tno\\nsuch\tbase64:YmFkIBv/");
    assert_eq!(dead.lines().count(), 4);
    let page = shell.text("queue dead mail/main --after 1 --limit 2 --json", b"");
    let ids: Vec<_> = page.lines().map(|line| serde_json::from_str::<Json>(line).expect("JSON")["id"].clone()).collect();
    assert_eq!(ids, [json!(2), json!(3)]);
    assert!(shell.refused("queue redrive mail/main", b"").contains("--all"), "which ones has to be said");
    assert!(shell.refused("queue purge mail/main --all --live", b"").contains("cannot be used with"));
    assert_eq!(shell.text("queue redrive mail/main --id 1 --id 3", b""), "2 redriven\n");
    assert_eq!(shell.text("queue purge mail/main --older-than 7d", b""), "0 purged\n");
    assert_eq!(shell.json("queue purge mail/main --all", b""), json!({ "count": 2 }));
    assert_eq!(shell.json("queue stats mail/main", b"")["visible"], 2);
    assert_eq!(shell.text("queue purge mail/main --live", b""), "2 purged\n");
    let stats = shell.text("queue stats mail/main", b"");
    assert!(stats.contains("visible=0\n") && stats.contains("dead=0\n") && stats.contains("paused=false\n"), "{stats}");
}

#[test]
fn a_message_is_sent_with_a_delay_an_id_and_a_key_and_a_paused_queue_hands_out_nothing() {
    let shell = Shell::start(&[]);
    let id = shell.text("queue send jobs/a/b --dedupe x --key k", b"\0one");
    assert_eq!(shell.json("queue send jobs/a/b --dedupe x --key k", b"\0one")["duplicate"], true);
    shell.ok("queue send jobs/a/b --delay 1h", b"later");
    shell.ok("queue pause jobs/a/b", b"");
    let mut door = common::door::DoorClient::connect(shell.admin);
    assert_eq!(door.post("/queues/jobs/a%2Fb/lease", "").json()["messages"], json!([]));
    assert_eq!(shell.json("queue stats jobs/a/b", b"")["paused"], true);
    assert_eq!(shell.json("queue resume jobs/a/b", b""), json!({ "paused": false }));
    let leased = door.post("/queues/jobs/a%2Fb/lease", "").json();
    assert_eq!((&leased["messages"][0]["id"].to_string(), &leased["messages"][0]["key"]), (&id.trim().to_owned(), &json!("k")));
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let shell = Shell::start(&[]);
    for (line, words) in [
        ("kv get nope k", "unknown-class"),
        ("kv get Settings k", "CLASS"),
        ("kv put settings k --ttl 5", "is not a duration"),
        ("kv put settings k --if-absent --if-version 1", "cannot be used with"),
        ("queue stats settings/x", "unknown-class"),
        ("queue stats mail", "an address is CLASS/NAME"),
        ("queue send mail/x --key k", "ordering"),
    ] {
        let said = shell.refused(line, b"");
        assert!(said.contains(words), "{line}: {said}");
    }
    let large = vec![0; (8 << 20) + 1];
    assert!(shell.refused("kv put settings k", &large).contains("too-large"));
    assert!(shell.refused("kv put settings k", &vec![0; (16 << 20) + 1]).contains("standard input"));
    let mut gone = shell;
    gone.node.kill();
    assert!(gone.refused("kv get settings k", b"").contains("no node answers"));
}

#[test]
fn a_listener_with_a_token_asks_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let token = directory.path().join("token");
    std::fs::write(&token, "0123456789abcdef0123456789abcdef\n").expect("writes");
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("is ours");
    let shell = Shell::start(&["--admin-token", &token.display().to_string()]);
    assert!(shell.path().exists());
    assert!(shell.refused("kv put settings k", b"v").contains("--admin-token"));
    shell.ok(&format!("kv put settings k --admin-token {}", token.display()), b"v");
    assert_eq!(shell.ok(&format!("kv get settings k --admin-token {}", token.display()), b""), b"v");
}
