//! What the host promises about components that misbehave, proved with components small enough to be written as text.

use super::sql::{Connection, EventBudget};
use super::*;
use crate::event::{Request, Response};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use wasmkeep_storage::Address;
use wasmkeep_storage::clock::Clock;
use wasmkeep_storage::sql::{Commit, CommitSink, ConnectionOptions, Pages};
use wasmkeep_storage::{Lsn, Refused};

const MEMORY_BYTES_MAX: usize = 16 * 1024 * 1024;
const CPU_NS: u64 = 5_000_000_000;

fn engine() -> Engine {
    Engine::new(EngineOptions { residents: 16, clock: Clock::System }).unwrap()
}

fn component(wat: &str) -> Vec<u8> {
    wat::parse_str(wat).unwrap()
}

fn program(engine: &Engine, wat: &str) -> Program {
    Program::from_bytes(engine, None, &component(wat)).unwrap()
}

/// Commits that nobody keeps.
struct Nowhere(Cell<u64>);

impl CommitSink for Nowhere {
    fn append(&self, _commit: &Commit<'_>) -> Result<Lsn, Refused> {
        self.0.set(self.0.get() + 1);
        Ok(Lsn(self.0.get()))
    }
}

fn connection(budget: Rc<EventBudget>) -> Connection {
    let pages = Rc::new(RefCell::new(Pages::new(None, 0)));
    let options = ConnectionOptions { database_bytes_max: 1 << 20, guest: true };
    Connection::open(pages, Rc::new(Nowhere(Cell::new(0))), budget, &options).unwrap()
}

fn host(cpu_ns: u64) -> ActorHost {
    let budget = Rc::new(EventBudget::new(Clock::System, cpu_ns));
    ActorHost {
        address: Address::new("test", "actor"),
        env: Arc::new(BTreeMap::new()),
        connection: Rc::new(connection(Rc::clone(&budget))),
        budget,
        hooks: Hooks::default(),
        memory_bytes_max: MEMORY_BYTES_MAX,
    }
}

/// Runs a test as a core runs actors: one thread, tasks that need not be `Send`.
fn on_a_core<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test)
}

/// An actor whose `on-request` is the given code. It has `$body` and `$body_len`, may call `$grow` and `$deep`, writes its
/// answer at 16 (see `RESPOND`) and returns 16. A word of memory at 64 counts its requests.
fn actor(on_request: &str) -> String {
    format!(
        r#"(component
  (import "wasmkeep:actor/types@0.2.0" (instance $types
    (type $h (record (field "name" string) (field "value" (list u8))))
    (export "header" (type $header (eq $h)))
    (type $rq (record (field "method" string) (field "path" string) (field "headers" (list $header)) (field "body" (list u8))))
    (export "request" (type (eq $rq)))
    (type $rs (record (field "status" u16) (field "headers" (list $header)) (field "body" (list u8))))
    (export "response" (type (eq $rs)))))
  (alias export $types "request" (type $request))
  (alias export $types "response" (type $response))
  (core module $m
    (memory (export "memory") 1)
    (global $top (mut i32) (i32.const 1024))
    (func $realloc (export "realloc") (param $old i32) (param $had i32) (param $align i32) (param $want i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $top) (i32.const 15)) (i32.const -16)))
      (global.set $top (i32.add (local.get $at) (local.get $want)))
      (block $fits
        (br_if $fits (i32.le_u (global.get $top) (i32.mul (memory.size) (i32.const 65536))))
        (br_if $fits (i32.ne (i32.const -1)
          (memory.grow (i32.add (i32.const 1) (i32.div_u (local.get $want) (i32.const 65536))))))
        unreachable)
      (local.get $at))
    (func $respond (param $status i32) (param $body i32) (param $len i32)
      (i32.store16 (i32.const 16) (local.get $status))
      (i32.store (i32.const 20) (i32.const 0))
      (i32.store (i32.const 24) (i32.const 0))
      (i32.store (i32.const 28) (local.get $body))
      (i32.store (i32.const 32) (local.get $len)))
    (func $deep (param i32) (result i32)
      (i32.add (i32.const 1) (call $deep (i32.add (local.get 0) (i32.const 1)))))
    (func (export "on-init"))
    (func (export "on-request")
      (param $method i32) (param $method_len i32) (param $path i32) (param $path_len i32)
      (param $headers i32) (param $headers_len i32) (param $body i32) (param $body_len i32) (result i32)
      (i32.store (i32.const 64) (i32.add (i32.const 1) (i32.load (i32.const 64))))
      {on_request}
      (i32.const 16))
    (func (export "on-alarm") (param $attempt i32) (if (i32.eq (local.get $attempt) (i32.const 3)) (then unreachable))))
  (core instance $i (instantiate $m))
  (func $on_init (canon lift (core func $i "on-init")))
  (func $on_request (param "request" $request) (result $response)
    (canon lift (core func $i "on-request") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
  (func $on_alarm (param "attempt" u32) (canon lift (core func $i "on-alarm")))
  (instance $events (export "on-init" (func $on_init)) (export "on-request" (func $on_request)) (export "on-alarm" (func $on_alarm)))
  (export "wasmkeep:actor/events@0.2.0" (instance $events)))"#
    )
}

const ECHO: &str = "(call $respond (i32.const 200) (local.get $body) (local.get $body_len))";
const COUNT: &str = "(call $respond (i32.const 200) (i32.const 64) (i32.const 4))";
const SPIN: &str = "(loop $l (br $l))";

fn request(body: &[u8]) -> Request {
    Request {
        method: "POST".into(),
        path: "/".into(),
        headers: vec![("x-a".into(), vec![0xff])],
        body: bytes::Bytes::copy_from_slice(body),
    }
}

fn problem(result: Result<Program, ComponentProblem>) -> String {
    result.unwrap_err().to_string()
}

async fn answer(on_request: &str) -> Result<Response, Failure> {
    let engine = engine();
    let mut instance = program(&engine, &actor(on_request)).instantiate(host(CPU_NS)).await.unwrap();
    let result = instance.on_request(request(b"hello"), None).await;
    if result.is_err() {
        assert_eq!(instance.on_request(request(b""), None).await, Err(Failure::Aborted), "a failed instance is not entered again");
    }
    result
}

#[test]
fn what_is_no_component_is_refused_with_what_to_do_about_it() {
    let engine = engine();
    let core = component("(module)");
    let compiled = engine.wasmtime().precompile_component(&component("(component)")).unwrap();
    let mut old = component("(component)");
    old[4] = 0x0a;
    let cases: [(&[u8], &str); 9] = [
        (&core, "--target wasm32-wasip2"),
        (b"(component)", "wasm-tools parse"),
        (b"\n  (module)", "wasm-tools parse"),
        (b"", "empty"),
        (b"#!/bin/sh", "not WebAssembly"),
        (b"\0asm", "not WebAssembly"),
        (&compiled, "Give the .wasm"),
        (&old, "version 10"),
        (&component("(component)")[..8], "exports neither"),
    ];
    for (bytes, expected) in cases {
        let problem = problem(Program::from_bytes(&engine, None, bytes));
        assert!(problem.contains(expected), "{bytes:?}: {problem}");
    }
    let mut damaged = component(&actor(ECHO));
    damaged.truncate(damaged.len() / 2);
    assert!(problem(Program::from_bytes(&engine, None, &damaged)).contains("does not compile"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Program::load(&engine(), None, Path::new("/nowhere/x.wasm")).unwrap_err().to_string();
    assert!(error.contains("/nowhere/x.wasm") && error.contains("Build it first"), "{error}");
}

#[test]
fn a_component_without_a_worlds_entry_is_told_what_it_has_instead() {
    let engine = engine();
    let with_export = |name: &str| {
        component(&format!(
            r#"(component (core module $m (func (export "f"))) (core instance $i (instantiate $m))
               (func $f (canon lift (core func $i "f"))) (instance $e (export "f" (func $f))) (export "{name}" (instance $e)))"#
        ))
    };
    for (name, expected) in [
        ("wasi:cli/run@0.2.3", "It is a command"),
        ("wasi:http/handler@0.3.0", "async component"),
        ("wasmkeep:actor/events@0.1.0", "another version"),
        ("a:b/c", "found: a:b/c"),
        ("wasmkeep:actor/events@0.2.0", "no function on-init"),
        ("wasi:http/incoming-handler@0.2.4", "no function handle"),
    ] {
        let problem = problem(Program::from_bytes(&engine, None, &with_export(name)));
        assert!(problem.contains(expected), "{name}: {problem}");
    }
}

#[test]
fn an_entry_of_another_type_is_refused_at_load() {
    let wat = actor(ECHO).replace(r#"(field "status" u16)"#, r#"(field "status" u32)"#);
    let problem = problem(Program::from_bytes(&engine(), None, &component(&wat)));
    assert!(problem.contains("wasmkeep:actor/events") && problem.contains("on-request"), "{problem}");
}

#[test]
fn every_import_that_nothing_answers_is_named() {
    let wat = r#"(component (import "wasmcloud:keyvalue/store@0.1.0" (instance)) (import "wasi:http/handler@0.3.0" (instance))
        (import "wasmkeep:actor/storage@0.9.0" (instance)) (import "my:own/thing" (instance)) (import "wasi:io/poll@0.2.3" (instance)))"#;
    let problem = problem(Program::from_bytes(&engine(), None, &component(wat)));
    for expected in
        ["wasmcloud:keyvalue/store@0.1.0 (not in this version)", "wasi:http/handler@0.3.0", "storage@0.9.0", "my:own/thing"]
    {
        assert!(problem.contains(expected), "{expected}: {problem}");
    }
    assert!(!problem.contains("wasi:io/poll"), "{problem}");
}

#[test]
fn a_function_that_an_offered_interface_lacks_is_named() {
    let import = r#"(component (import "wasmkeep:actor/log@0.2.0" (instance (export "shout" (func))))"#;
    let wat = actor(ECHO).replacen("(component", import, 1);
    let problem = problem(Program::from_bytes(&engine(), None, &component(&wat)));
    assert!(problem.contains("does not link") && problem.contains("shout"), "{problem}");
}

#[test]
fn a_compiled_component_is_taken_from_the_cache_unless_it_is_damaged_or_another() {
    let (engine, directory) = (engine(), tempfile::tempdir().unwrap());
    let cache = directory.path().join("components");
    let echo = component(&actor(ECHO));
    let load = |bytes: &[u8]| Program::from_bytes(&engine, Some(&cache), bytes).unwrap();
    let version = load(&echo).version();
    let files = || {
        let mut files: Vec<_> = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    };
    let [file] = &files()[..] else { panic!("{:?}", files()) };
    assert!(file.file_name().unwrap().to_str().unwrap().starts_with(&version));
    let good = std::fs::read(file).unwrap();
    let inode = |file: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(file).unwrap());

    let before = inode(file);
    load(&echo);
    assert_eq!(inode(file), before, "a hit writes nothing");

    for at in [0, 9, good.len() / 2, good.len() - 1] {
        let mut damaged = good.clone();
        damaged[at] ^= 1;
        std::fs::write(file, &damaged).unwrap();
        load(&echo);
        assert!(std::fs::read(file).unwrap() != damaged, "damage at {at} is written over");
    }
    std::fs::write(file, &good[..20]).unwrap();
    load(&echo);
    assert!(std::fs::read(file).unwrap().len() > 20, "a torn file is written over");

    let count = load(&component(&actor(COUNT)));
    let other = files().into_iter().find(|path| path != file).unwrap();
    std::fs::copy(&other, file).unwrap();
    let echo = load(&echo);
    assert_ne!(echo.version(), count.version());
    let response = on_a_core(async { echo.instantiate(host(CPU_NS)).await.unwrap().on_request(request(b"hello"), None).await });
    assert_eq!(response.unwrap().body, "hello", "another component's code under this one's name is not run");
}

#[test]
fn the_cache_directory_is_its_owners_only() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    Program::from_bytes(&engine(), Some(directory.path()), &component(&actor(ECHO))).unwrap();
    assert_eq!(std::fs::metadata(directory.path()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn an_instance_answers_and_keeps_its_memory_between_events() {
    on_a_core(async {
        let engine = engine();
        let mut instance = program(&engine, &actor(COUNT)).instantiate(host(CPU_NS)).await.unwrap();
        instance.on_init().await.unwrap();
        for n in 1..=3u32 {
            let response = instance.on_request(request(b""), None).await.unwrap();
            assert_eq!((response.status, &response.body[..]), (200, &n.to_le_bytes()[..]));
        }
        instance.on_alarm(2).await.unwrap();
        assert!(matches!(instance.on_alarm(3).await, Err(Failure::Trap(_))));
    });
}

#[test]
fn a_body_of_the_largest_size_goes_through() {
    on_a_core(async {
        let engine = engine();
        let mut host = host(CPU_NS);
        host.memory_bytes_max = 64 * 1024 * 1024;
        let mut instance = program(&engine, &actor(ECHO)).instantiate(host).await.unwrap();
        let body = vec![7; limits::RESPONSE_BODY_BYTES_MAX];
        assert_eq!(instance.on_request(request(&body), None).await.unwrap().body, body);
        let over = vec![7; limits::RESPONSE_BODY_BYTES_MAX + 1];
        assert!(matches!(instance.on_request(request(&over), None).await, Err(Failure::BadResponse(why)) if why.contains("limit")));
    });
}

#[test]
fn a_guest_that_spins_ends_at_its_budget_while_its_neighbour_goes_on() {
    on_a_core(async {
        let engine = engine();
        let cpu_ns = 200_000_000;
        let mut spinner = program(&engine, &actor(SPIN)).instantiate(host(cpu_ns)).await.unwrap();
        let mut neighbour = program(&engine, &actor(COUNT)).instantiate(host(CPU_NS)).await.unwrap();
        let spinning = tokio::task::spawn_local(async move {
            let begin_ns = Clock::System.monotonic_ns();
            let result = spinner.on_request(request(b""), None).await;
            (result, Clock::System.monotonic_ns() - begin_ns)
        });
        let mut answers = 0;
        while !spinning.is_finished() {
            neighbour.on_request(request(b""), None).await.unwrap();
            answers += 1;
            tokio::task::yield_now().await;
        }
        let (result, spun_ns) = spinning.await.unwrap();
        assert_eq!(result, Err(Failure::CpuBudget));
        assert!(spun_ns >= cpu_ns, "{spun_ns}");
        assert!(answers > 5, "{answers}");
    });
}

#[test]
fn an_aborted_event_ends_at_its_next_slice() {
    on_a_core(async {
        let engine = engine();
        let host = host(u64::MAX);
        let budget = Rc::clone(&host.budget);
        let mut spinner = program(&engine, &actor(SPIN)).instantiate(host).await.unwrap();
        let spinning = tokio::task::spawn_local(async move { spinner.on_request(request(b""), None).await });
        tokio::task::yield_now().await;
        budget.abort();
        assert_eq!(spinning.await.unwrap(), Err(Failure::CpuBudget));
    });
}

#[test]
fn code_that_runs_when_an_instance_is_made_is_bounded_too() {
    on_a_core(async {
        let engine = engine();
        let wat = actor(ECHO).replace("(global $top", "(func $start (loop $l (br $l))) (start $start) (global $top");
        let result = program(&engine, &wat).instantiate(host(20_000_000)).await;
        assert_eq!(result.err(), Some(Failure::CpuBudget));
    });
}

#[test]
fn growth_past_the_memory_limit_is_refused_and_named_when_the_guest_fails_of_it() {
    on_a_core(async {
        let grow = "(drop (loop $l (result i32) (br_if $l (i32.ne (i32.const -1) (memory.grow (i32.const 16)))) (i32.const 0)))";
        let response = answer(&format!("{grow} {COUNT}")).await.unwrap();
        assert_eq!(response.status, 200, "a guest that copes with a refusal goes on");
        let failure = answer(&format!("{grow} unreachable")).await.unwrap_err();
        assert!(matches!(&failure, Failure::Memory(why) if why.contains(&MEMORY_BYTES_MAX.to_string())), "{failure:?}");
        assert!(matches!(answer("unreachable").await, Err(Failure::Trap(_))));
    });
}

#[test]
fn memory_of_all_kinds_counts_and_never_passes_the_limit() {
    on_a_core(async {
        let engine = engine();
        let grow = "(drop (memory.grow (i32.load8_u (local.get $body))))";
        let mut instance = program(&engine, &actor(&format!("{grow} {COUNT}"))).instantiate(host(CPU_NS)).await.unwrap();
        assert_eq!(instance.memory_bytes(), 65_536);
        let mut expected = 65_536;
        for _ in 0..4 {
            instance.on_request(request(&[100]), None).await.unwrap();
            let grown = expected + 100 * 65_536;
            expected = if grown > MEMORY_BYTES_MAX { expected } else { grown };
            assert_eq!(instance.memory_bytes(), expected);
        }
        let wat = actor(ECHO).replace(r#"(memory (export "memory") 1)"#, r#"(memory (export "memory") 1000)"#);
        let result = program(&engine, &wat).instantiate(host(CPU_NS)).await;
        assert!(matches!(result.err(), Some(Failure::Memory(_))));
    });
}

#[test]
fn endless_recursion_is_a_trap() {
    on_a_core(async {
        let failure = answer(&format!("(drop (call $deep (i32.const 0))) {COUNT}")).await;
        assert_eq!(failure, Err(Failure::Trap("the call stack is exhausted".into())));
    });
}

#[test]
fn an_answer_that_is_no_answer_fails_the_event() {
    on_a_core(async {
        for status in ["0", "99", "100", "199", "600", "65535"] {
            let result = answer(&format!("(call $respond (i32.const {status}) (i32.const 0) (i32.const 0))")).await;
            assert!(matches!(result, Err(Failure::BadResponse(_))), "{status}: {result:?}");
        }
        let outside = answer("(call $respond (i32.const 200) (i32.const 65530) (i32.const 100))").await;
        assert!(matches!(outside, Err(Failure::Trap(_))), "{outside:?}");
        let nowhere = answer("(return (i32.const 0x7ffffff0))").await;
        assert!(matches!(nowhere, Err(Failure::Trap(_))), "{nowhere:?}");
    });
}

#[test]
fn a_call_that_is_dropped_half_way_gives_its_place_back() {
    on_a_core(async {
        let engine = engine();
        let spin = program(&engine, &actor(SPIN));
        for _ in 0..3 * engine.residents() {
            let mut instance = spin.instantiate(host(u64::MAX)).await.unwrap();
            let mut call = Box::pin(instance.on_request(request(b""), None));
            let started = std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
            assert!(started);
            drop(call);
            assert_eq!(instance.on_request(request(b""), None).await, Err(Failure::Aborted));
        }
    });
}

#[test]
fn when_every_place_is_taken_there_is_no_room_until_one_is_free() {
    on_a_core(async {
        let engine = engine();
        let echo = program(&engine, &actor(ECHO));
        let mut residents = Vec::new();
        for _ in 0..engine.residents() {
            let mut instance = echo.instantiate(host(CPU_NS)).await.unwrap();
            instance.on_request(request(b""), None).await.unwrap();
            residents.push(instance);
        }
        assert_eq!(echo.instantiate(host(CPU_NS)).await.err(), Some(Failure::NoRoom));
        residents.pop();
        assert!(echo.instantiate(host(CPU_NS)).await.is_ok());
    });
}

#[test]
fn a_handler_that_never_answers_fails_clearly() {
    on_a_core(async {
        let wat = r#"(component
          (import "wasi:http/types@0.2.0" (instance $types
            (export "incoming-request" (type (sub resource))) (export "response-outparam" (type (sub resource)))))
          (alias export $types "incoming-request" (type $request))
          (alias export $types "response-outparam" (type $out))
          (core module $m (func (export "handle") (param i32 i32)))
          (core instance $i (instantiate $m))
          (func $handle (param "request" (own $request)) (param "response-out" (own $out)) (canon lift (core func $i "handle")))
          (instance $handler (export "handle" (func $handle)))
          (export "wasi:http/incoming-handler@0.2.0" (instance $handler)))"#;
        let engine = engine();
        let program = program(&engine, wat);
        assert_eq!(program.world(), World::HttpActor);
        let mut instance = program.instantiate(host(CPU_NS)).await.unwrap();
        instance.on_init().await.unwrap();
        let failure = instance.on_request(request(b""), None).await.unwrap_err();
        assert!(matches!(&failure, Failure::BadResponse(why) if why.contains("response-outparam")), "{failure:?}");
        assert!(matches!(program.instantiate(host(CPU_NS)).await.unwrap().on_alarm(0).await, Err(Failure::Trap(_))));
    });
}
