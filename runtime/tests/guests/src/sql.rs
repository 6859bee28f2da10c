//! Any statement, with exact values both ways.
//!
//! The body is a list of `{"op": "exec" | "exec_durable" | "query", "sql": "...", "params": [...]}`; all are run, whatever
//! fails between. The answer is a list of the same length: `{"changed": n}`, `{"columns": [...], "rows": [[...]]}` or
//! `{"error": kind, "message": "...", "code": n}`. A value is `null`, `{"integer": "1"}`, `{"real": "1.5"}`, `{"text": "a"}`
//! or `{"blob": "hex"}`; a plain number or text does as a parameter too.

use wasmkeep_sdk::db::{self, Value};
use wasmkeep_sdk::serde_json::Value as Json;
use wasmkeep_sdk::{Error, Request, Response, json};

pub(crate) fn run(request: &Request) -> Result<Response, Error> {
    let statements: Vec<Json> = request.json()?;
    let results: Vec<Json> = statements.iter().map(run_one).collect::<Result<_, _>>()?;
    Ok(Response::json(&results))
}

fn run_one(statement: &Json) -> Result<Json, Error> {
    let sql = statement["sql"].as_str().ok_or_else(|| Error::bad_request("a statement needs \"sql\""))?;
    let params = statement["params"].as_array().map_or(&[][..], Vec::as_slice);
    let params: Vec<Value> = params.iter().map(read_value).collect::<Result<_, _>>()?;
    let outcome = match statement["op"].as_str() {
        Some("exec") => db::exec(sql, &params).map(|changed| json!({ "changed": changed })),
        Some("exec_durable") => db::exec_durable(sql, &params).map(|changed| json!({ "changed": changed })),
        Some("query") => db::query(sql, &params).map(|rows| show_rows(&rows)),
        _ => return Err(Error::bad_request("\"op\" is exec, exec_durable or query")),
    };
    Ok(outcome.unwrap_or_else(|error| show_error(&error)))
}

fn show_rows(rows: &db::Rows) -> Json {
    let list: Vec<Vec<Json>> = rows.iter().map(|row| row.values().iter().map(show_value).collect()).collect();
    json!({ "columns": rows.columns(), "rows": list })
}

pub(crate) fn show_error(error: &db::Error) -> Json {
    let message = error.to_string();
    match error {
        db::Error::Sql { code, .. } => json!({ "error": "sql", "code": code, "message": message }),
        db::Error::NotAllowed(_) => json!({ "error": "not-allowed", "message": message }),
        db::Error::TooLarge => json!({ "error": "too-large", "message": message }),
        db::Error::Full => json!({ "error": "full", "message": message }),
        db::Error::Deadline => json!({ "error": "deadline", "message": message }),
        other => json!({ "error": "other", "message": other.to_string() }),
    }
}

fn show_value(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Integer(n) => json!({ "integer": n.to_string() }),
        Value::Real(x) => json!({ "real": format!("{x:?}") }),
        Value::Text(text) => json!({ "text": text }),
        Value::Blob(bytes) => json!({ "blob": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() }),
    }
}

fn read_value(json: &Json) -> Result<Value, Error> {
    let wrong = || Error::bad_request(format!("no value: {json}"));
    let typed = |kind: &str| json.get(kind).and_then(Json::as_str);
    if json.is_null() {
        return Ok(Value::Null);
    }
    if let Some(n) = json.as_i64() {
        return Ok(Value::Integer(n));
    }
    if let Some(text) = json.as_str().or_else(|| typed("text")) {
        return Ok(Value::from(text));
    }
    if let Some(n) = typed("integer") {
        return n.parse().map(Value::Integer).map_err(|_| wrong());
    }
    if let Some(x) = typed("real") {
        return x.parse().map(Value::Real).map_err(|_| wrong());
    }
    typed("blob").and_then(read_hex).map(Value::Blob).ok_or_else(wrong)
}

fn read_hex(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.is_ascii().then_some(hex)?;
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect()
}
