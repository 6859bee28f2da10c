//! What the command line prints: nothing in it can move the cursor or break a table.

use std::io::Write;

use serde_json::Value as Json;

/// Prints a line; a reader that has gone, as `head` does, ends the output quietly.
pub(super) fn print(line: &str) {
    let _reader_is_gone = writeln!(std::io::stdout(), "{line}");
}

/// Prints bytes as they are, without a line's end.
pub(super) fn print_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout();
    let _reader_is_gone = out.write_all(bytes).and_then(|()| out.flush());
}

/// An object as `address`, then `name=value` each.
pub(super) fn fields(object: &Json, separator: &str) -> String {
    let mut parts: Vec<String> = object.get("address").map(cell).into_iter().collect();
    let rest = object.as_object().into_iter().flatten().filter(|(name, _)| *name != "address");
    parts.extend(rest.map(|(name, value)| format!("{name}={}", cell(value))));
    parts.join(separator)
}

/// Rows with a head, or how many rows a statement changed.
pub(super) fn table(answer: &Json) -> String {
    let list = |value: &Json| value.as_array().into_iter().flatten().map(cell).collect::<Vec<_>>().join("\t");
    let columns = answer.get("columns").map(list).unwrap_or_default();
    if columns.is_empty() {
        return format!("{} row(s) changed", answer.get("changed").map_or_else(|| "0".into(), cell));
    }
    let rows = answer.get("rows").and_then(Json::as_array).into_iter().flatten().map(list);
    std::iter::once(columns).chain(rows).collect::<Vec<_>>().join("\n")
}

/// A field of bytes, as the service door spells it: as a text, or `base64:` and base64.
pub(super) fn bytes_cell(object: &Json, name: &str) -> Option<String> {
    let base64 = || object.get(format!("{name}_base64")).map(|value| format!("base64:{}", cell(value)));
    object.get(name).map(cell).or_else(base64)
}

/// A value on a terminal.
pub(super) fn cell(value: &Json) -> String {
    match value {
        Json::Null => "NULL".into(),
        Json::String(text) => {
            text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_have_a_head_and_no_control_characters() {
        let answer = json!({"columns": ["a", "b"], "rows": [[1, "x\ty\u{1b}"], [null, {"hex": "00"}]]});
        assert_eq!(table(&answer), "a\tb\n1\tx\\ty\\u{1b}\nNULL\t{\"hex\":\"00\"}");
        assert_eq!(table(&json!({"columns": [], "rows": [], "changed": 3})), "3 row(s) changed");
    }

    #[test]
    fn bytes_are_shown_as_text_if_they_are_text() {
        let object = json!({"key": "a\n", "value_base64": "/w=="});
        assert_eq!(bytes_cell(&object, "key").as_deref(), Some("a\\n"));
        assert_eq!(bytes_cell(&object, "value").as_deref(), Some("base64:/w=="));
        assert_eq!(bytes_cell(&object, "other"), None);
    }
}
