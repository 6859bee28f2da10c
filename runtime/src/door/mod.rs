//! The service door: how programs that are no actors use native key-value and queues over HTTP.
//!
//! A request's head becomes an operation, the operation with its body one or more requests of a class's own protocol, and their
//! replies an answer. All of that is translation, the same for the door's listener and the operator's, and knows neither sockets
//! nor cores: whoever carries requests is an [`Actors`]. Every request is made here out of an operation, none is passed on as a
//! client wrote it with a path of its choice: operations that are for operators only cannot be reached.

mod book;
mod entrance;
mod kv;
mod kv_json;
mod kv_list;
mod kv_many;
mod queue;
mod queue_json;
mod refusal;
mod target;
#[cfg(test)]
pub(crate) mod tests;
mod text;

use bytes::Bytes;
use http::header::HeaderMap;
use http::{Method, Response};
use wasmkeep_storage::Address;

pub(crate) use self::book::Book;
pub use self::entrance::Entrance;
pub(crate) use self::entrance::{bearer, equal, is_for_this_machine, refuse_pages};
pub(crate) use self::refusal::Refusal;
pub(crate) use self::text::{put as put_bytes, read as take_bytes};
use crate::event::{Outcome, Problem, Request};
use crate::http::Actors;

/// An answer that has its body.
pub(crate) type Answer = Response<Bytes>;

/// Says whether so many more bytes may be held for a request, and notes that they are.
pub(crate) type Room<'a> = &'a mut dyn FnMut(usize) -> Result<(), Problem>;

/// A request whose head is understood, and which waits for its body.
pub(crate) enum Routed {
    Queue(queue::Head),
    Kv(kv::One),
    KvMany(kv_many::Head),
    KvList(kv_list::Head),
}

/// Whether a path is one of the door's.
pub(crate) fn is_door(path: &str) -> bool {
    path.starts_with("/kv/") || path.starts_with("/queues/")
}

/// Understands a request's head.
pub(crate) fn route(book: &Book, method: &Method, target: &str, headers: &HeaderMap) -> Result<Routed, Refusal> {
    if let Some(rest) = target.strip_prefix("/kv/") {
        return kv::route(book, method, rest, headers);
    }
    match target.strip_prefix("/queues") {
        Some(rest) if rest.starts_with('/') => queue::Head::read(book, method, rest, headers).map(Routed::Queue),
        _ => Err(Refusal::NotFound("there is /kv/{class}, /kv/{class}/{key} and /queues/{class}/{name} here".into())),
    }
}

impl Routed {
    /// Does what is asked and answers it. The caller is one that the host vouches for; `room` is asked before bytes are held that
    /// the body's size does not tell.
    pub(crate) async fn answer<A: Actors>(
        self,
        actors: &A,
        caller: &Address,
        body: Bytes,
        room: Room<'_>,
    ) -> Result<Answer, Refusal> {
        match self {
            Self::Queue(head) => {
                let (path, sent) = head.request(body)?;
                let (status, reply) = ask(actors, caller, head.address(), path, sent).await?;
                head.answer(status, &reply)
            }
            Self::Kv(one) => kv::answer(actors, caller, &one, &body, room).await,
            // These are large, and the future of every request is moved about: they have a place of their own.
            Self::KvMany(head) => Box::pin(kv_many::answer(actors, caller, &head, &body, room)).await,
            Self::KvList(head) => Box::pin(kv_list::answer(actors, caller, &head, room)).await,
        }
    }
}

/// Brings one request to an actor and its reply back.
async fn ask<A: Actors>(
    actors: &A,
    caller: &Address,
    address: Address,
    path: &'static str,
    body: Bytes,
) -> Result<(u16, Bytes), Refusal> {
    let request = Request { method: "POST".into(), path: path.into(), headers: Vec::new(), body };
    match actors.request(Some(caller.clone()), address, request).await {
        Outcome::Response(response) => Ok((response.status, response.body)),
        Outcome::Problem(problem) => Err(problem.into()),
    }
}
