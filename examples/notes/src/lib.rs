//! A notebook with full-text search: a small JSON API as one would write it for real.
//!
//! | request | answer |
//! | --- | --- |
//! | `POST /` with a note | 201, the note with its id |
//! | `GET /?after=ID&limit=N` | notes in the order of their ids |
//! | `GET /ID` | the note |
//! | `PUT /ID` with a note | the note as it is now |
//! | `DELETE /ID` | 204 |
//! | `GET /search?q=WORDS` | notes that hold all the words, best first, each with a snippet |
//! | `POST /import` with a list of notes | all of them or none |
//!
//! A note is `{"title": "...", "body": "..."}`. Each actor is a notebook of its own: `notes/ada`, `notes/bob`.

mod store;

use serde::{Deserialize, Serialize};
use wasmkeep_sdk::{Actor, Error, Request, Response, db, json, log};

const TITLE_CHARS_MAX: usize = 200;
const BODY_CHARS_MAX: usize = 100_000;
const IMPORT_NOTES_MAX: usize = 1_000;
const LIST_NOTES_MAX: u32 = 100;

/// What a caller sends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Draft {
    title: String,
    #[serde(default)]
    body: String,
}

/// What a caller gets.
#[derive(Serialize)]
struct Note {
    id: i64,
    title: String,
    body: String,
    /// Seconds since the Unix epoch.
    created_at: i64,
}

impl Draft {
    fn check(&self) -> Result<(), String> {
        let title_chars = self.title.chars().count();
        if self.title.trim().is_empty() {
            Err("title is empty".to_owned())
        } else if title_chars > TITLE_CHARS_MAX {
            Err(format!("title has {title_chars} characters; at most {TITLE_CHARS_MAX} are kept"))
        } else if self.body.chars().count() > BODY_CHARS_MAX {
            Err(format!("body is longer than {BODY_CHARS_MAX} characters"))
        } else {
            Ok(())
        }
    }
}

struct Notes;

impl Actor for Notes {
    fn init() -> Result<(), Error> {
        store::create_schema()
    }

    fn request(request: Request) -> Result<Response, Error> {
        match (request.method(), request.segments().as_slice()) {
            ("POST", []) => create(&request),
            ("GET", []) => list(&request),
            ("POST", ["import"]) => import(&request),
            ("GET", ["search"]) => search(&request),
            ("GET", [id]) => read(note_id(id)?),
            ("PUT", [id]) => update(note_id(id)?, &request),
            ("DELETE", [id]) => delete(note_id(id)?),
            (_, [] | ["import"] | ["search"] | [_]) => {
                Err(Error::method_not_allowed(format!("{} is not for this path", request.method())))
            }
            _ => Err(Error::not_found(format!("no path {}", request.path()))),
        }
    }
}

fn create(request: &Request) -> Result<Response, Error> {
    let draft: Draft = request.json()?;
    draft.check().map_err(Error::invalid)?;
    let id = store::insert(&draft, db::exec_durable)?;
    Ok(read(id)?.with_status(201))
}

fn read(id: i64) -> Result<Response, Error> {
    store::find(id)?.map(|note| Response::json(&note)).ok_or_else(|| no_note(id))
}

fn list(request: &Request) -> Result<Response, Error> {
    let after = number(request, "after", 0)?;
    let limit = number(request, "limit", i64::from(LIST_NOTES_MAX))?;
    if !(1..=i64::from(LIST_NOTES_MAX)).contains(&limit) {
        return Err(Error::invalid(format!("limit is 1 to {LIST_NOTES_MAX}")));
    }
    Ok(Response::json(&json!({ "notes": store::list(after, limit)? })))
}

fn update(id: i64, request: &Request) -> Result<Response, Error> {
    let draft: Draft = request.json()?;
    draft.check().map_err(Error::invalid)?;
    if !store::replace(id, &draft)? {
        return Err(no_note(id));
    }
    read(id)
}

fn delete(id: i64) -> Result<Response, Error> {
    if !store::delete(id)? {
        return Err(no_note(id));
    }
    Ok(Response::no_content())
}

fn search(request: &Request) -> Result<Response, Error> {
    let words = request.query("q").unwrap_or_default();
    if words.trim().is_empty() {
        return Err(Error::invalid("q holds the words to look for, as in /search?q=milk"));
    }
    Ok(Response::json(&json!({ "hits": store::search(&words)? })))
}

fn import(request: &Request) -> Result<Response, Error> {
    let drafts: Vec<Draft> = request.json()?;
    if drafts.len() > IMPORT_NOTES_MAX {
        return Err(Error::invalid(format!("{} notes at once; at most {IMPORT_NOTES_MAX}", drafts.len())));
    }
    // Each note is checked where it is written: whichever is refused takes the others back with it.
    db::transaction(|| {
        for (index, draft) in drafts.iter().enumerate() {
            draft.check().map_err(|why| Error::invalid(format!("note {index}: {why}; none was imported")))?;
            store::insert(draft, db::exec)?;
        }
        Ok::<_, Error>(())
    })?;
    log::info!("imported {} notes", drafts.len());
    Ok(Response::json(&json!({ "imported": drafts.len() })).with_status(201))
}

fn note_id(text: &str) -> Result<i64, Error> {
    text.parse().map_err(|_| Error::not_found(format!("\"{text}\" is no id of a note")))
}

fn no_note(id: i64) -> Error {
    Error::not_found(format!("no note {id}"))
}

fn number(request: &Request, name: &str, default: i64) -> Result<i64, Error> {
    request.query(name).map_or(Ok(default), |text| text.parse().map_err(|_| Error::invalid(format!("{name} is a number"))))
}

wasmkeep_sdk::export!(Notes);
