//! SQL values as JSON, for `wasmkeep actor sql`.

use std::fmt::Write;

use serde_json::{Value as Json, json};
use wasmkeep_storage::{Rows, Value};

/// `{"columns": [...], "rows": [[...]]}`. Integers are exact; a blob is `{"hex": "00ff"}`, and a real that JSON has no number for is
/// `{"real": "NaN"}`.
#[must_use]
pub fn rows_to_json(rows: &Rows) -> Json {
    let width = rows.columns.len().max(1);
    let rows_json: Vec<Json> = rows.values.chunks(width).map(|row| row.iter().map(value_to_json).collect()).collect();
    json!({ "columns": rows.columns, "rows": rows_json })
}

fn value_to_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Integer(number) => json!(number),
        Value::Real(number) if number.is_finite() => json!(number),
        Value::Real(number) => json!({ "real": number.to_string() }),
        Value::Text(text) => json!(text),
        Value::Blob(bytes) => {
            let mut hex = String::with_capacity(bytes.len() * 2);
            for byte in bytes {
                // Writing to a String cannot fail.
                let _always = write!(hex, "{byte:02x}");
            }
            json!({ "hex": hex })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_beyond_doubles_stay_exact_and_blobs_are_hex() {
        let rows = Rows {
            columns: vec!["a".into(), "b".into()],
            values: vec![
                Value::Integer(i64::MAX),
                Value::Blob(vec![0, 255]),
                Value::Real(f64::INFINITY),
                Value::Text("\0".into()),
                Value::Null,
                Value::Real(0.5),
            ],
        };
        let text = rows_to_json(&rows).to_string();
        assert_eq!(
            text,
            r#"{"columns":["a","b"],"rows":[[9223372036854775807,{"hex":"00ff"}],[{"real":"inf"},"\u0000"],[null,0.5]]}"#
        );
    }
}
