//! Actors on a whole node, as their users see them.

mod common;

use std::time::Duration;

use common::{Client, TestNode, until};
use wasmkeep::config::Access;

fn ok(body: &str) -> (u16, String) {
    (200, body.to_string())
}

#[test]
fn the_counter_counts_durably_and_locally_and_survives_a_clean_restart_with_other_cores() {
    let mut node = TestNode::start(1);
    for n in 1..=3 {
        assert_eq!(node.post("/counter/apples", ""), ok(&format!("{{\"count\":{n}}}")));
    }
    assert_eq!(node.post("/counter/apples/local", ""), ok("{\"count\":4}"));
    for cores in [2, 8, 1] {
        node.config.cores = cores;
        node.again();
        assert_eq!(node.get("/counter/apples"), ok("{\"count\":4}"), "{cores} cores");
    }
}

#[test]
fn after_a_clean_stop_base_files_are_plain_databases_and_no_journal_is_left() {
    let mut node = TestNode::start(2);
    for n in 0..20 {
        assert_eq!(node.post(&format!("/test/a{n}/durable-insert?key=k&value=v{n}"), "").0, 200);
    }
    node.stop();
    let mut found = 0;
    for n in 0..20 {
        let name = format!("a{n}");
        let path = wasmkeep_storage::store::base_path(&node.config.data_dir, &wasmkeep_storage::Address::new("test", &name));
        let database = rusqlite::Connection::open(path).expect("opens");
        let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("runs");
        let value: String = database.query_row("SELECT value FROM kept WHERE key = 'k'", [], |row| row.get(0)).expect("is there");
        assert_eq!((check.as_str(), value), ("ok", format!("v{n}")));
        found += 1;
    }
    assert_eq!(found, 20);
    let journals = std::fs::read_dir(node.config.data_dir.join("journal")).expect("lists");
    let names: Vec<_> = journals.map(|entry| entry.expect("an entry").file_name()).filter(|name| name != "spare").collect();
    assert_eq!(names, Vec::<std::ffi::OsString>::new());
}

#[test]
fn notes_are_searched_and_a_failed_import_keeps_nothing() {
    let node = TestNode::start(1);
    let notes = r#"[{"title":"Shopping","body":"milk and bread"},{"title":"Garage","body":"nails"}]"#;
    assert_eq!(node.post("/notes/ada/import", notes), (201, "{\"imported\":2}".to_string()));
    let (status, hits) = node.get("/notes/ada/search?q=bread");
    assert_eq!((status, hits.contains("milk and [bread]")), (200, true), "{hits}");
    assert_ne!(node.post("/notes/bob/import", r#"[{"title":"a","body":"b"},{"title":""}]"#).0, 200);
    assert_eq!(node.get("/notes/bob/search?q=b"), ok("{\"hits\":[]}"));
}

#[test]
fn a_wasi_http_component_is_served_as_it_is_and_stays_resident() {
    let node = TestNode::start(1);
    assert_eq!(node.get("/hello/world").1.trim_end(), "hello, / (request 1 of this instance)");
    assert_eq!(node.get("/hello/world").1.trim_end(), "hello, / (request 2 of this instance)");
    assert_eq!(node.post("/hello/world", "echo me").0, 200);
}

#[test]
fn events_of_one_actor_run_one_at_a_time_in_the_order_they_came() {
    let node = TestNode::start(1);
    node.get("/test/one/instance");
    let mut clients: Vec<_> = (0..20).map(|_| node.client()).collect();
    let mut client = node.client();
    client.start("GET", "/test/one/sleep?ms=100", "").expect("sends");
    for client in &mut clients {
        client.start("POST", "/test/one/add?key=n&durable=1", "").expect("sends");
    }
    assert_eq!(client.answer().expect("answers").0, 200);
    let mut sums: Vec<u64> = clients.iter_mut().map(|client| client.answer().expect("answers").1.parse().expect("a sum")).collect();
    sums.sort_unstable();
    assert_eq!(sums, (1..=20).collect::<Vec<_>>());
}

#[test]
fn an_actor_that_waits_does_not_hold_up_its_neighbour() {
    let node = TestNode::start(1);
    node.get("/test/b/instance");
    let mut slow = node.client();
    slow.start("GET", "/test/a/sleep?ms=1500", "").expect("sends");
    let mut client = node.client();
    for _ in 0..50 {
        assert_eq!(client.send("GET", "/test/b/instance", "").0, 200);
    }
    slow.answer().expect("answers");
}

#[test]
fn misbehaving_guests_fail_alone_within_their_budget() {
    let node = TestNode::start_with(1, |config| config.budgets.event_cpu = Duration::from_millis(300));
    assert_eq!(node.post("/test/good/durable-insert?key=k&value=v", "").0, 200);
    for path in ["spin", "recurse", "allocate", "garbage?status=99", "trap?kind=panic", "endless-sql"] {
        let mut bad = node.client();
        bad.start("GET", &format!("/test/bad/{path}"), "").expect("sends");
        let mut good = node.client();
        for _ in 0..10 {
            assert_eq!(good.send("GET", "/test/good/read?key=k", ""), ok("v"), "beside {path}");
        }
        let (status, body) = bad.answer().expect("answers");
        assert!(status >= 500, "{path}: {status} {body}");
        assert_eq!(node.get("/test/bad/self").0, 200, "after {path}");
    }
}

#[test]
fn an_event_past_its_wall_time_is_told_so_and_the_actor_goes_on() {
    let node = TestNode::start_with(1, |config| config.budgets.event_wall = Duration::from_millis(300));
    let (status, body) = node.get("/test/a/sleep?ms=60000");
    assert_eq!((status, body.contains("deadline")), (504, true), "{body}");
    assert_eq!(node.get("/test/a/self").0, 200);
}

#[test]
fn an_open_transaction_is_rolled_back_at_the_events_end() {
    let node = TestNode::start(1);
    node.get("/test/a/open-transaction?key=k&value=v&durable=1");
    assert_eq!(node.get("/test/a/read?key=k").0, 404);
    assert_eq!(node.post("/test/a/transaction?key=t&rows=3", "").0, 200);
    assert_eq!(node.get("/test/a/read"), ok("t-0\nt-1\nt-2"));
}

#[test]
fn forbidden_sql_is_refused_with_its_reason() {
    let node = TestNode::start(1);
    let statements =
        ["ATTACH 'x' AS x", "SELECT load_extension('x')", "PRAGMA journal_mode=WAL", "PRAGMA max_page_count=9", "VACUUM"];
    for sql in statements {
        let body = serde_json::json!([{ "op": "exec", "sql": sql, "params": [] }]).to_string();
        let (status, answer) = node.post("/test/a/sql", &body);
        assert_eq!((status, answer.contains("not-allowed")), (200, true), "{sql}: {answer}");
    }
}

#[test]
fn edge_values_come_back_as_they_went() {
    let node = TestNode::start(1);
    assert_eq!(node.get("/test/a/values"), ok("ok"));
}

#[test]
fn a_value_above_the_limit_is_refused_and_its_actor_still_opens() {
    let node = TestNode::start_with(1, |config| config.budgets.idle = Duration::from_millis(50));
    let (status, body) = node.get(&format!("/test/a/values?bytes={}", 16 * 1024 * 1024 + 1));
    assert_eq!((status, body.contains("too-large")), (422, true), "{body}");
    until("it sleeps", || Client::connect(node.admin()).send("GET", "/admin/actors/test/a", "").1.contains("asleep"));
    assert_eq!(node.get("/test/a/values?bytes=1000"), ok("1000"));
}

#[test]
fn actors_call_each_other_on_one_core_and_across_cores_and_re_entry_is_refused() {
    for cores in [1, 4] {
        let node = TestNode::start(cores);
        for n in 0..8 {
            let path = format!("/test/caller/call?class=test&name=callee{n}&path=/durable-insert?key=k%26value=v{n}&method=POST");
            let (status, body) = node.get(&path);
            assert_eq!(status, 200, "{cores} cores: {body}");
            assert_eq!(node.get(&format!("/test/callee{n}/read?key=k")).0, 200);
        }
        let (_, body) = node.get("/test/caller/call?class=test&name=caller&path=/self");
        assert!(body.contains("re-entry") || body.contains("ReEntry"), "{body}");
    }
}

#[test]
fn an_idle_actor_hibernates_and_its_next_event_finds_what_it_wrote() {
    let node = TestNode::start_with(1, |config| config.budgets.idle = Duration::from_millis(50));
    assert_eq!(node.post("/test/a/durable-insert?key=k&value=v", "").0, 200);
    assert_eq!(node.get("/test/a/instance").1, "2");
    let mut instance = String::new();
    // Each look is an event, so the pauses between looks grow until one is longer than the idle time.
    for pause_ms in (0..20).map(|n| 20 * n) {
        std::thread::sleep(Duration::from_millis(pause_ms));
        instance = node.get("/test/a/instance").1;
        if instance == "1" {
            break;
        }
    }
    assert_eq!(instance, "1", "it never slept");
    assert_eq!(node.get("/test/a/read?key=k"), ok("v"));
    assert_eq!(node.get("/test/a/inits").1, "1");
}

#[test]
fn an_internal_class_and_an_unknown_one_refuse_outsiders() {
    let node = TestNode::start_with(1, |config| config.classes[1].access = Access::Internal);
    assert_eq!(node.get("/counter/a").0, 403);
    assert_eq!(node.get("/nothing/a").0, 404);
}

#[test]
fn metrics_tell_of_events_and_never_name_an_actor() {
    let node = TestNode::start(1);
    node.post("/counter/a-rare-name", "");
    let (status, page) = common::Client::connect(node.admin()).send("GET", "/metrics", "");
    assert_eq!(status, 200);
    assert!(page.contains("wasmkeep_events_total{class=\"counter\""), "{page}");
    assert!(!page.contains("a-rare-name"));
}

#[test]
fn the_operator_lists_actors_and_runs_sql_in_them() {
    let node = TestNode::start(2);
    for name in ["a", "b", "c"] {
        node.post(&format!("/test/{name}/durable-insert?key=k&value={name}"), "");
    }
    let mut admin = common::Client::connect(node.admin());
    let (status, list) = admin.send("GET", "/admin/actors?class=test", "");
    assert_eq!(status, 200, "{list}");
    for name in ["test/a", "test/b", "test/c"] {
        assert!(list.contains(name), "{list}");
    }
    let (status, rows) = admin.send("POST", "/admin/actors/test/b/sql", "{\"sql\":\"SELECT value FROM kept\"}");
    assert_eq!((status, rows.contains("\"b\"")), (200, true), "{rows}");
    assert_eq!(admin.send("POST", "/admin/actors/test/nobody/sql", "{\"sql\":\"SELECT 1\"}").0, 404);
}

#[test]
fn a_base_file_that_another_program_changed_is_refused() {
    let mut node = TestNode::start(1);
    node.post("/test/a/durable-insert?key=k&value=v", "");
    node.post("/test/b/durable-insert?key=k&value=v", "");
    node.stop();
    let path = wasmkeep_storage::store::base_path(&node.config.data_dir, &wasmkeep_storage::Address::new("test", "a"));
    rusqlite::Connection::open(path).expect("opens").execute("DELETE FROM kept", []).expect("deletes");
    node.again();
    assert_eq!(node.get("/test/a/read?key=k").0, 503);
    assert_eq!(node.get("/test/b/read?key=k"), ok("v"));
}

#[test]
fn a_durable_write_shows_in_the_journals_metrics() {
    let node = TestNode::start(1);
    assert_eq!(node.post("/counter/metrics", "").0, 200);
    let count = |family: &str| {
        let page = Client::connect(node.admin()).send("GET", "/metrics", "").1;
        let line =
            page.lines().find(|line| line.starts_with(&format!("{family}_count{{core=\"0\"}}"))).expect("the family").to_owned();
        line.rsplit(' ').next().and_then(|number| number.parse::<u64>().ok()).expect("a number")
    };
    assert!(count("wasmkeep_journal_flush_seconds") > 0);
    assert!(count("wasmkeep_journal_group_commits") > 0);
}
