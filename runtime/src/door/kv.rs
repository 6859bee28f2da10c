//! Key-value over HTTP, one key at a time: a method, conditions and parameters as a request to the key's shard, and its reply.

use std::rc::Rc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use wasmkeep_classes::host::Call;
use wasmkeep_classes::kv::Shards;
use wasmkeep_classes::kv::client::{self, Error};
use wasmkeep_classes::kv::protocol::{Expect, Options, Write};
use wasmkeep_storage::Address;

use super::book::{Book, KvClass};
use super::refusal::{Refusal, put_etag};
use super::target::{Query, Versions, decode, one_version, split_query, versions};
use super::text::{json, no_content};
use super::{Answer, Room, Routed, ask, kv_list, kv_many};
use crate::http::Actors;

/// What is left of a time to live, ms, in the answer to a read.
const TTL_MS: HeaderName = HeaderName::from_static("x-wasmkeep-ttl-ms");

/// An operation on one key.
pub(crate) struct One {
    class: Rc<KvClass>,
    key: Vec<u8>,
    what: What,
    local: bool,
    operation: Option<Vec<u8>>,
}

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// The value, unless it has one of these versions.
    Get {
        known: Option<Versions>,
    },
    /// The body is the value.
    Put {
        expect: Expect,
        ttl_ms: Option<u64>,
    },
    Delete {
        expect: Expect,
    },
    Increment {
        delta: i64,
    },
}

/// Understands `{class}` or `{class}/{key}` and what follows.
pub(super) fn route(book: &Book, method: &Method, target: &str, headers: &HeaderMap) -> Result<Routed, Refusal> {
    let (path, query) = split_query(target);
    let (class, key) = path.split_once('/').map_or((path, None), |(class, key)| (class, Some(key)));
    let class = book.kv(class)?;
    let mut query = Query::parse(query)?;
    let Some(key) = key else {
        return match *method {
            Method::GET | Method::HEAD => kv_list::Head::read(class, query).map(Routed::KvList),
            Method::POST => kv_many::Head::read(class, query, headers).map(Routed::KvMany),
            _ => Err(Refusal::Method("GET, HEAD, POST")),
        };
    };
    if key.is_empty() || key.contains('/') {
        let words = "a key is one part of the path, /kv/{class}/{key}; write '/' in a key as %2F";
        return Err(Refusal::BadRequest(words.into()));
    }
    let key = decode("the key", key)?.into_owned();
    let (what, valid): (_, &[&str]) = match *method {
        Method::GET | Method::HEAD => {
            refuse(headers, &header::IF_MATCH, "PUT and DELETE")?;
            (What::Get { known: versions(headers, header::IF_NONE_MATCH) }, &[])
        }
        Method::PUT => (What::Put { expect: expect(headers)?, ttl_ms: query.duration_ms("ttl")? }, &["local", "op", "ttl"]),
        Method::DELETE => {
            refuse(headers, &header::IF_NONE_MATCH, "GET and PUT")?;
            (What::Delete { expect: expect(headers)? }, &["local", "op"])
        }
        Method::POST => {
            refuse(headers, &header::IF_MATCH, "PUT and DELETE")?;
            refuse(headers, &header::IF_NONE_MATCH, "GET and PUT")?;
            let delta = query.number("increment")?;
            let missing = || Refusal::BadRequest("a POST to a key says what is added: ?increment=1".into());
            (What::Increment { delta: delta.ok_or_else(missing)? }, &["increment", "local", "op"])
        }
        _ => return Err(Refusal::Method("GET, HEAD, PUT, DELETE, POST")),
    };
    let is_write = !matches!(what, What::Get { .. });
    let (local, operation) = if is_write { (query.flag("local")?, query.bytes("op")?) } else { (false, None) };
    query.end(valid)?;
    Ok(Routed::Kv(One { class, key, what, local, operation }))
}

/// A condition that has no effect here is refused, so that nobody relies on it.
fn refuse(headers: &HeaderMap, name: &HeaderName, methods: &str) -> Result<(), Refusal> {
    if headers.contains_key(name) { Err(Refusal::BadRequest(format!("{name} is for {methods}"))) } else { Ok(()) }
}

fn expect(headers: &HeaderMap) -> Result<Expect, Refusal> {
    let absent = match versions(headers, header::IF_NONE_MATCH) {
        None => false,
        Some(Versions::Any) => true,
        Some(Versions::These(_)) => return Err(Refusal::BadRequest("If-None-Match of a PUT is *: the key must be absent".into())),
    };
    match (one_version(headers, &header::IF_MATCH)?, absent) {
        (None, false) => Ok(Expect::Any),
        (None, true) => Ok(Expect::Absent),
        (Some(version), false) => Ok(Expect::Version(version)),
        (Some(_), true) => Err(Refusal::BadRequest("give If-Match or If-None-Match, not both".into())),
    }
}

impl One {
    /// The request, to a class of so many shards.
    pub(super) fn call(&self, shards: Shards, body: &Bytes) -> Result<Call, Refusal> {
        let key = &self.key;
        let write = match &self.what {
            What::Put { expect, ttl_ms } => Write::Put { key, value: body, expect: *expect, ttl_ms: *ttl_ms },
            _ if !body.is_empty() => return Err(Refusal::BadRequest("only a PUT takes a body here".into())),
            What::Get { .. } => return Ok(client::get(shards, key)?),
            What::Delete { expect } => Write::Delete { key, expect: *expect },
            What::Increment { delta } => Write::Increment { key, delta: *delta },
        };
        Ok(client::write(shards, &write, Options { local: self.local, operation: self.operation.as_deref() })?)
    }

    /// The answer to the shard's reply.
    pub(super) fn read(&self, status: u16, reply: &Bytes) -> Result<Answer, Refusal> {
        match &self.what {
            What::Get { known } => got(known.as_ref(), status, reply),
            What::Put { .. } => Ok(with_etag(no_content(), client::put(status, reply)?)),
            What::Delete { .. } => {
                let existed = client::deleted(status, reply)?;
                if existed { Ok(no_content()) } else { Err(absent()) }
            }
            What::Increment { .. } => {
                let (value, version) = client::incremented(status, reply)?;
                let text = format!("{{\"value\":{value},\"version\":{version}}}");
                Ok(with_etag(json(StatusCode::OK, text), version))
            }
        }
    }
}

fn got(known: Option<&Versions>, status: u16, reply: &Bytes) -> Result<Answer, Refusal> {
    let found = client::got(status, reply)?.ok_or_else(absent)?;
    let is_known = match known {
        None => false,
        Some(Versions::Any) => true,
        Some(Versions::These(versions)) => versions.contains(&found.version),
    };
    let mut answer = Response::new(if is_known { Bytes::new() } else { reply.slice_ref(found.value) });
    if is_known {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    }
    if let Some(ttl_ms) = found.ttl_ms {
        answer.headers_mut().insert(TTL_MS, HeaderValue::from(ttl_ms));
    }
    Ok(with_etag(answer, found.version))
}

fn absent() -> Refusal {
    Refusal::NotFound("the key is absent".into())
}

fn with_etag(mut answer: Answer, version: i64) -> Answer {
    put_etag(answer.headers_mut(), version);
    answer
}

/// How many shards the class has, if that is what a shard has replied: its keys have moved, and nothing was done.
pub(super) fn moved(status: u16, reply: &[u8]) -> Option<Shards> {
    if status != 421 {
        return None;
    }
    match client::counted(status, reply) {
        Err(Error::Moved { shards }) => Shards::new(shards).ok(),
        _ => None,
    }
}

/// Does what is asked of one key. If its class turns out to have another number of shards it is asked for once more.
pub(super) async fn answer<A: Actors>(
    actors: &A,
    caller: &Address,
    one: &One,
    body: &Bytes,
    room: Room<'_>,
) -> Result<Answer, Refusal> {
    // The body is kept for a second time of asking, beside the request made of it.
    room(body.len())?;
    let shards = one.class.shards();
    let (status, reply) = send(actors, caller, one, shards, body).await?;
    let Some(told) = moved(status, &reply).filter(|told| *told != shards) else { return one.read(status, &reply) };
    one.class.learn(told);
    let (status, reply) = send(actors, caller, one, told, body).await?;
    one.read(status, &reply)
}

async fn send<A: Actors>(actors: &A, caller: &Address, one: &One, shards: Shards, body: &Bytes) -> Result<(u16, Bytes), Refusal> {
    let Call { path, body } = one.call(shards, body)?;
    ask(actors, caller, one.class.shard(shards.of(&one.key)), path, body.into()).await
}
