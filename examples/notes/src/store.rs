//! The notebook's SQL. Knows nothing of HTTP; every function is one step of an event.

use crate::{Draft, Note};
use serde::Serialize;
use wasmkeep_sdk::{Error, db, params};

/// The index is an FTS5 table over the notes' own text, kept true by triggers.
const SCHEMA: [&str; 5] = [
    "CREATE TABLE IF NOT EXISTS note (
        id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, body TEXT NOT NULL,
        created_at INTEGER NOT NULL DEFAULT (unixepoch()))",
    "CREATE VIRTUAL TABLE IF NOT EXISTS note_index USING fts5(title, body, content='note', content_rowid='id')",
    "CREATE TRIGGER IF NOT EXISTS note_added AFTER INSERT ON note BEGIN
        INSERT INTO note_index (rowid, title, body) VALUES (new.id, new.title, new.body);
    END",
    "CREATE TRIGGER IF NOT EXISTS note_removed AFTER DELETE ON note BEGIN
        INSERT INTO note_index (note_index, rowid, title, body) VALUES ('delete', old.id, old.title, old.body);
    END",
    "CREATE TRIGGER IF NOT EXISTS note_changed AFTER UPDATE ON note BEGIN
        INSERT INTO note_index (note_index, rowid, title, body) VALUES ('delete', old.id, old.title, old.body);
        INSERT INTO note_index (rowid, title, body) VALUES (new.id, new.title, new.body);
    END",
];

/// A note that matches a search.
#[derive(Serialize)]
pub(crate) struct Hit {
    id: i64,
    title: String,
    /// Text around the words found, each word in brackets.
    snippet: String,
}

/// How a statement is run: [`db::exec`] or [`db::exec_durable`].
type Exec = fn(&str, &[db::Value]) -> Result<u64, db::Error>;

pub(crate) fn create_schema() -> Result<(), Error> {
    db::transaction(|| {
        for statement in SCHEMA {
            db::exec(statement, params![])?;
        }
        Ok(())
    })
}

pub(crate) fn insert(draft: &Draft, exec: Exec) -> Result<i64, Error> {
    exec("INSERT INTO note (title, body) VALUES (?, ?)", params![&draft.title, &draft.body])?;
    // Not last_insert_rowid(): the triggers insert too, and FTS5 leaves its own row numbers there.
    let id = db::scalar("SELECT max(id) FROM note", params![])?;
    id.ok_or_else(|| Error::internal("the inserted note is gone"))
}

pub(crate) fn replace(id: i64, draft: &Draft) -> Result<bool, Error> {
    let changed = db::exec_durable("UPDATE note SET title = ?, body = ? WHERE id = ?", params![&draft.title, &draft.body, id])?;
    Ok(changed > 0)
}

pub(crate) fn delete(id: i64) -> Result<bool, Error> {
    Ok(db::exec_durable("DELETE FROM note WHERE id = ?", params![id])? > 0)
}

pub(crate) fn find(id: i64) -> Result<Option<Note>, Error> {
    let rows = db::query("SELECT id, title, body, created_at FROM note WHERE id = ?", params![id])?;
    rows.first().map(read_note).transpose()
}

pub(crate) fn list(after: i64, limit: i64) -> Result<Vec<Note>, Error> {
    db::query("SELECT id, title, body, created_at FROM note WHERE id > ? ORDER BY id LIMIT ?", params![after, limit])?
        .map(read_note)
}

fn read_note(row: db::Row<'_>) -> Result<Note, Error> {
    Ok(Note { id: row.get("id")?, title: row.get("title")?, body: row.get("body")?, created_at: row.get("created_at")? })
}

pub(crate) fn search(words: &str) -> Result<Vec<Hit>, Error> {
    const SEARCH: &str = "SELECT rowid, title, snippet(note_index, -1, '[', ']', '…', 10) AS snippet
        FROM note_index WHERE note_index MATCH ? ORDER BY rank LIMIT 50";
    let read = |row: db::Row<'_>| Ok(Hit { id: row.get("rowid")?, title: row.get("title")?, snippet: row.get("snippet")? });
    db::query(SEARCH, params![match_all(words)])?.map(read)
}

/// Turns what a person typed into a query of FTS5: every word in quotes, so that no character of it is an operator.
fn match_all(words: &str) -> String {
    let quoted: Vec<String> = words.split_whitespace().map(|word| format!("\"{}\"", word.replace('"', "\"\""))).collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use super::match_all;

    #[test]
    fn typed_words_are_never_operators() {
        assert_eq!(match_all("milk AND  bread"), r#""milk" "AND" "bread""#);
        assert_eq!(match_all(r#"5" nails -x title:a*"#), r#""5""" "nails" "-x" "title:a*""#);
    }
}
