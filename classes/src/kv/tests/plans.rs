//! How SQLite runs the statements: by index, without sorting and without walking over what is not asked for.

use super::*;
use crate::kv::sql;

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
    let host = Host::new();
    let statements = [
        sql::GET,
        sql::VERSION,
        sql::PUT,
        sql::PUT_ABSENT,
        sql::PUT_VERSION,
        sql::DELETE,
        sql::DELETE_VERSION,
        sql::LIST,
        sql::LIST_VALUES,
        sql::KEYS,
        sql::DROP,
        sql::EXPIRED,
        sql::SWEEP,
        sql::OPERATION,
        sql::OPERATION_PUT,
        sql::OPERATION_SWEEP,
        sql::FACT_PUT,
    ];
    for statement in statements {
        for step in plan(&host, statement) {
            let is_bad = step.starts_with("SCAN") || step.contains("TEMP B-TREE");
            assert!(!is_bad, "{statement}: {step}");
        }
    }
}

#[test]
fn the_next_end_is_read_from_the_head_of_an_index() {
    let host = Host::new();
    for (statement, index) in [(sql::NEXT_EXPIRY, "wasmkeep_kv_expiry"), (sql::OPERATION_NEXT, "wasmkeep_kv_operations_expiry")] {
        let plan = plan(&host, statement);
        assert!(plan.len() == 1 && plan[0].contains(index), "{statement}: {plan:?}");
    }
    for statement in [sql::EXPIRED, sql::SWEEP] {
        let plan = plan(&host, statement);
        assert!(
            plan.iter().any(|step| step.contains("INDEX wasmkeep_kv_expiry (expires_at>? AND expires_at<?)")),
            "{statement}: {plan:?}"
        );
    }
}
