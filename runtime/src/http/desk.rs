//! The service door's listener: who asks, what is asked, and the body; the rest is `door`.

use std::rc::Rc;

use bytes::Bytes;
use hyper::body::Incoming;

use super::exchange::{Refused, Service, from_problem, take_body};
use super::front::{Conn, Hold};
use super::{Actors, DoorSetup};
use crate::door::{self, Book, Entrance, Refusal};

/// What it does with requests.
pub(super) struct Desk<A>(Rc<Inner<A>>);

struct Inner<A> {
    actors: A,
    book: Book,
    entrance: std::sync::Arc<Entrance>,
}

impl<A> Clone for Desk<A> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<A> Desk<A> {
    pub(super) fn new(actors: A, setup: &DoorSetup) -> Self {
        let entrance = std::sync::Arc::clone(&setup.entrance);
        Self(Rc::new(Inner { actors, book: Book::new(&setup.natives), entrance }))
    }
}

impl<A: Actors> Service for Desk<A> {
    async fn answer(
        &self,
        conn: &Rc<Conn>,
        request: http::Request<Incoming>,
        hold: &mut Option<Hold>,
    ) -> Result<http::Response<Bytes>, Refused> {
        let Inner { actors, book, entrance } = &*self.0;
        let target = request.uri().path_and_query().map_or("", |target| target.as_str());
        let admitted = entrance
            .caller(request.uri(), request.headers())
            .and_then(|caller| Ok((caller, door::route(book, request.method(), target, request.headers())?)));
        let (caller, routed) = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => return Ok(refused(conn, &refusal)),
        };
        let body = take_body(conn, request.into_body(), hold).await?;
        let mut room = |bytes| hold.as_mut().map_or(Ok(()), |hold| hold.grow(bytes));
        let answered = routed.answer(actors, &caller, body, &mut room).await;
        Ok(answered.unwrap_or_else(|refusal| refused(conn, &refusal)))
    }
}

fn refused(conn: &Conn, refusal: &Refusal) -> http::Response<Bytes> {
    match refusal {
        Refusal::Problem(problem) => from_problem(&conn.front, problem),
        refusal => refusal.to_http(),
    }
}
