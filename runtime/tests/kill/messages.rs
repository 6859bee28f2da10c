//! Native queues and shards under the same kills: no acknowledged message or value is lost, none of a refused request is kept, no
//! id or version is given twice, and a message that was handled twice was so in two lives of the node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use wasmkeep_classes::host::Call;
use wasmkeep_classes::kv::protocol::{Expect, Options, Write};
use wasmkeep_classes::kv::{self, Shards, shard_name};
use wasmkeep_classes::queue::{self, protocol::Message};

use crate::common::process::{Process, serve_configured};
use crate::common::{Client, guest, until};
use crate::number;

const WRITERS: usize = 4;
const SHARDS: u32 = 2;
const CONSUMER: &str = "/test/consumer";

/// What one writer knows.
#[derive(Default)]
struct Known {
    /// Acknowledged messages.
    sent: BTreeMap<u64, String>,
    /// Everything it ever tried to send, by its body.
    next: u64,
    /// The newest value that was acknowledged, and the largest version ever seen.
    value: u64,
    version: i64,
}

/// Has a call made by an actor of the test guest.
fn ask(client: &mut Client, through: usize, target: &str, call: &Call) -> std::io::Result<(u16, Vec<u8>)> {
    let (class, name) = target.split_once('/').expect("class/name");
    client.try_send_bytes(&format!("/test/w{through}/call?class={class}&name={name}&path=/{}", call.path), &call.body)
}

fn shards() -> Shards {
    Shards::new(SHARDS).expect("few")
}

fn key(writer: usize) -> Vec<u8> {
    format!("k{writer}").into_bytes()
}

fn shard(writer: usize) -> String {
    format!("settings/{}", shard_name(shards().of(&key(writer))))
}

impl Known {
    /// A few messages, every fifth of which its consumer will never take.
    fn send(&mut self, client: &mut Client, writer: usize) -> std::io::Result<()> {
        let body = |n: u64| if n.is_multiple_of(5) { "retry".to_owned() } else { format!("w{writer}-{n}") };
        let bodies: Vec<String> = (self.next..self.next + 3).map(body).collect();
        self.next += 3;
        let messages: Vec<_> = bodies.iter().map(|body| Message { body: body.as_bytes(), ..Message::default() }).collect();
        let (status, answer) = ask(client, writer, "mail/q", &queue::client::send(&messages).expect("valid"))?;
        let sent = queue::client::sent(status, &answer).unwrap_or_else(|error| panic!("{status} {error}"));
        for (sent, body) in sent.iter().zip(bodies) {
            assert!(self.sent.insert(sent.id, body).is_none(), "the id {} was given twice", sent.id);
        }
        Ok(())
    }

    /// A batch with a message that breaks a rule, and a write that expects what never was.
    fn be_refused(client: &mut Client, writer: usize) -> std::io::Result<()> {
        let spoilt = Message { body: b"refused", ordering_key: Some(b"k"), ..Message::default() };
        let fine = Message { body: b"refused", ..Message::default() };
        let (status, _) = ask(client, writer, "mail/q", &queue::client::send(&[fine, spoilt]).expect("a client cannot know"))?;
        assert_eq!(status, 400);
        let write = Write::Put { key: &key(writer), value: b"refused", expect: Expect::Absent, ttl_ms: None };
        let call = kv::client::write(shards(), &write, Options::new()).expect("valid");
        let (status, _) = ask(client, writer, &shard(writer), &call)?;
        assert_eq!(status, 409);
        Ok(())
    }

    fn put(&mut self, client: &mut Client, writer: usize) -> std::io::Result<()> {
        let value = (self.value + 1).to_string();
        let write = Write::Put { key: &key(writer), value: value.as_bytes(), expect: Expect::Any, ttl_ms: None };
        let call = kv::client::write(shards(), &write, Options::new()).expect("valid");
        let (status, answer) = ask(client, writer, &shard(writer), &call)?;
        let version = kv::client::put(status, &answer).unwrap_or_else(|error| panic!("{status} {error}"));
        assert!(version > self.version, "version {version} after {}", self.version);
        (self.value, self.version) = (self.value + 1, version);
        Ok(())
    }

    /// Compares with what a new life has.
    fn check(&mut self, client: &mut Client, writer: usize) {
        let call = kv::client::get(shards(), &key(writer)).expect("valid");
        let (status, answer) = ask(client, writer, &shard(writer), &call).expect("an answer");
        let found = kv::client::got(status, &answer).unwrap_or_else(|error| panic!("{status} {error}"));
        let (value, version) = found.map_or((0, 0), |found| {
            let text = String::from_utf8_lossy(found.value);
            (text.parse().unwrap_or_else(|_| panic!("{text}")), found.version)
        });
        // One more may have been kept without having been acknowledged.
        assert!((self.value..=self.value + 1).contains(&value), "{} acknowledged, {value} found", self.value);
        assert!(version > self.version || (version == self.version && value == self.value), "{version} after {}", self.version);
        (self.value, self.version) = (value, version);
    }

    fn write_until_gone(&mut self, http: SocketAddr, writer: usize) {
        let Ok(mut client) = Client::try_connect(http) else { return };
        let mut turn = || -> std::io::Result<()> {
            self.send(&mut client, writer)?;
            self.put(&mut client, writer)?;
            Self::be_refused(&mut client, writer)
        };
        while turn().is_ok() {}
    }
}

fn configure(file: &Path) {
    let text = format!(
        "[actors.test]\ncomponent = {:?}\n[kv.settings]\nshards = {SHARDS}\n[queues.mail]\nconsumer = \"test/consumer\"\n\
         visibility = \"5s\"\nmax-attempts = 2\n",
        guest("test_guest")
    );
    std::fs::write(file, text).expect("writes");
}

/// The rows of a statement of the operator's, as text.
fn rows(process: &Process, actor: &str, sql: &str) -> Vec<Vec<String>> {
    let body = serde_json::json!({ "sql": sql }).to_string();
    let (status, answer) = Client::connect(process.admin).send("POST", &format!("/admin/actors/{actor}/sql"), &body);
    assert_eq!(status, 200, "{answer}");
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    let cell = |cell: &serde_json::Value| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned);
    let row = |row: &serde_json::Value| row.as_array().expect("a row").iter().map(cell).collect();
    answer["rows"].as_array().expect("rows").iter().map(row).collect()
}

/// Once nothing is live any more: every acknowledged message was handled, or is dead for a reason.
fn check_messages(process: &Process, known: &[Known]) {
    until("nothing is live any more", || rows(process, "mail/q", "SELECT count(*) FROM wasmkeep_queue")[0][0] == "0");
    let dead = rows(process, "mail/q", "SELECT id, CAST(body AS TEXT), reason FROM wasmkeep_queue_dead");
    let dead: BTreeMap<u64, (&str, &str)> =
        dead.iter().map(|row| (row[0].parse().expect("an id"), (row[1].as_str(), row[2].as_str()))).collect();
    let got = rows(process, "test/consumer", "SELECT key, value FROM kept WHERE key LIKE 'got:mail/q:%'");
    let mut handled: BTreeMap<u64, (&str, Vec<&str>)> = BTreeMap::new();
    for row in &got {
        let (id, body) = row[0].strip_prefix("got:mail/q:").and_then(|rest| rest.split_once(':')).expect("id:body");
        let before = handled.insert(id.parse().expect("an id"), (body, row[1].split(' ').collect()));
        assert!(before.is_none(), "two messages have the id {id}: {before:?} and {body}");
    }
    let bodies = handled.values().map(|(body, _)| *body).chain(dead.values().map(|(body, _)| *body));
    assert!(!bodies.clone().any(|body| body == "refused"), "a refused message was kept");
    for (id, body) in known.iter().flat_map(|known| &known.sent) {
        let (handled, dead) = (handled.get(id), dead.get(id));
        let kept = [handled.map(|(body, _)| *body), dead.map(|(body, _)| *body)];
        assert!(kept.iter().flatten().count() > 0, "message {id} ({body}) was acknowledged and is lost");
        assert!(kept.iter().flatten().all(|kept| kept == body), "{id} is {kept:?} and was acknowledged as {body}");
        let reason = dead.map_or("", |(_, reason)| *reason);
        match body.as_str() {
            "retry" => assert!(handled.is_none() && !reason.is_empty(), "{id}: {handled:?}, {reason}"),
            // Two kills while it was out.
            _ => assert!(dead.is_none() || reason.contains("ran out"), "{id} is dead: {reason}"),
        }
    }
    explain(&handled);
    let sent: usize = known.iter().map(|known| known.sent.len()).sum();
    eprintln!("{sent} messages acknowledged, {} handled, {} dead", handled.len(), dead.len());
    assert!(sent > 0 && !dead.is_empty());
}

/// A message is handled twice only if the node was killed in between.
fn explain(handled: &BTreeMap<u64, (&str, Vec<&str>)>) {
    let duplicated = handled.iter().filter(|(_, (_, lives))| lives.len() > 1);
    let mut count = 0;
    for (id, (_, lives)) in duplicated {
        count += lives.len() - 1;
        assert_eq!(lives.iter().collect::<BTreeSet<_>>().len(), lives.len(), "message {id} was handled in the lives {lives:?}");
    }
    eprintln!("{count} duplicates, each of a message whose ack a kill had taken");
}

#[test]
fn every_acknowledged_message_and_value_survives_kills_and_none_of_a_refused_request_is_kept() {
    let kills = number("WASMKEEP_KILLS").unwrap_or(20) / 2;
    let seed = number("WASMKEEP_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("WASMKEEP_SEED={seed} replays the moments of this run");
    let mut random = fastrand::Rng::with_seed(seed);
    let data = tempfile::tempdir().expect("a directory");
    let file = data.path().join("wasmkeep.toml");
    configure(&file);
    let start = |kill: u64| {
        let cores = if kill % 3 == 2 { "1" } else { "2" };
        let config = file.display().to_string();
        let arguments = ["--config", &config, "--idle", "1s", "--cores", cores, "--journal-mb", "64"];
        Process::start(serve_configured(&data.path().join("data"), &arguments))
    };
    let mut known: Vec<Known> = (0..WRITERS).map(|_| Known::default()).collect();
    for kill in 0..=kills {
        let mut process = start(kill);
        let mut client = Client::connect(process.http);
        assert_eq!(client.send("POST", &format!("{CONSUMER}/durable-insert?key=life&value={kill}"), "").0, 200);
        for (writer, known) in known.iter_mut().enumerate() {
            known.check(&mut client, writer);
        }
        if kill == kills {
            return check_messages(&process, &known);
        }
        let http = process.http;
        std::thread::scope(|scope| {
            for (writer, known) in known.iter_mut().enumerate() {
                scope.spawn(move || known.write_until_gone(http, writer));
            }
            // The moment is what is random here, not a wait for something.
            std::thread::sleep(Duration::from_millis(random.u64(20..300)));
            process.kill();
        });
    }
}
