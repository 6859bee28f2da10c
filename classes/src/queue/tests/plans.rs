//! How SQLite runs the statements: by index, without sorting and without walking over what waits.

use super::*;
use crate::queue::sql;

fn plan(host: &Host, statement: &str) -> Vec<String> {
    let mut explained = host.memory.connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).expect("a statement");
    let (mut rows, mut steps) = (explained.raw_query(), Vec::new());
    while let Some(row) = rows.next().expect("a plan") {
        steps.push(row.get::<_, String>(3).expect("a step"));
    }
    steps
}

#[test]
fn no_statement_of_a_request_scans_or_sorts_a_table() {
    let host = Host::new(Config::default());
    let statements = [
        sql::DUE,
        sql::DUE_KEYED,
        sql::LEASE_MARK,
        sql::LEASE_HIDE,
        sql::LEASE_FIND,
        sql::LEASE_TAKE,
        sql::DELETE,
        sql::BECAME_VISIBLE,
        sql::BECAME_VISIBLE_LEASED,
        sql::META_PUT,
        sql::SHOW_AGAIN,
        sql::GIVE_BACK,
        sql::LEASE_EXTEND,
        sql::SET_VISIBLE,
        sql::LEASE_DROP,
        sql::LAST_RAN_OUT,
        sql::ORDER_ANY,
        sql::ORDER_FIND,
        sql::ORDER_TAKE,
        sql::ORDER_NEXT,
        sql::DEDUPE_FIND,
        sql::DEDUPE_PUT,
        sql::DEDUPE_SWEEP,
        sql::DEAD_INSERT,
        sql::DEAD_ORDER_INSERT,
        sql::DEAD_PAGE,
        sql::DEAD_FAILED_BY,
        sql::DEAD_SIZE,
        sql::DEAD_DELETE,
        sql::DEAD_ORDER_TAKE,
        sql::REDRIVE,
        sql::LIVE_UP_TO,
    ];
    for statement in statements {
        for step in plan(&host, statement) {
            let is_bad = step.starts_with("SCAN") && !step.starts_with("SCAN CONSTANT") || step.contains("TEMP B-TREE");
            assert!(!is_bad, "{statement}: {step}");
        }
    }
}

#[test]
fn minima_are_read_from_the_head_of_an_index() {
    let host = Host::new(Config::default());
    for (statement, index) in [
        (sql::EARLIEST, "wasmkeep_queue_visible"),
        (sql::LAST_UNTIL, "wasmkeep_queue_lease_last"),
        (sql::LAST_DEATH, "wasmkeep_queue_failed"),
        (sql::DEDUPE_EARLIEST, "wasmkeep_queue_dedupe_expires"),
    ] {
        let plan = plan(&host, statement);
        assert!(plan.len() == 1 && plan[0].contains(index), "{statement}: {plan:?}");
    }
    for statement in [sql::OLDEST, sql::NEWEST] {
        assert_eq!(plan(&host, statement), ["SCAN wasmkeep_queue"]);
    }
}

#[test]
fn counting_at_the_opening_reads_indices_only() {
    let host = Host::new(Config::default());
    let plan = plan(&host, sql::COUNTS);
    assert!(plan.iter().any(|step| step.contains("SCAN wasmkeep_queue USING COVERING INDEX wasmkeep_queue_visible")), "{plan:?}");
    assert!(plan.iter().any(|step| step.contains("SCAN wasmkeep_queue_dead USING COVERING INDEX")), "{plan:?}");
}
