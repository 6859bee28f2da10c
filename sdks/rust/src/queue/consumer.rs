//! The consumer's side of push: taking a delivery and answering it.
//!
//! The consumer never calls the queue during a delivery: the queue waits for this very answer, so the call would be refused
//! as re-entry. Everything that is to be said stands in the answer.

use super::client::settlements;
use super::message::{Outcome, Received};
use super::{Error, Lease};
use crate::actors::Address;
use crate::hosted::is_allowed;
use crate::{Request, Response, env};
use wasmkeep_classes::queue::protocol::DELIVER;
use wasmkeep_classes::queue::{decode_delivery, encode_outcomes};

/// Takes a delivery of any queue of the application: calls `handle` for each message, oldest first, and gives the answer for
/// the queue. `None` if the request is no delivery.
///
/// A panic, or an event that runs out of time, is an attempt of every message of the batch; those before it may have been
/// handled. See [`Handled`](super::Handled) for recognising them.
pub fn handle_delivery<O: Into<Outcome>>(request: &Request, handle: impl FnMut(&Received<'_>) -> O) -> Option<Response> {
    handle_delivery_allowing(request, &[], handle)
}

/// Like [`handle_delivery`], for deliveries of these queues alone, each a `class` or a `class/name`; none: any queue. Others are
/// answered 403.
pub fn handle_delivery_allowing<O: Into<Outcome>>(
    request: &Request,
    allow: &[&str],
    handle: impl FnMut(&Received<'_>) -> O,
) -> Option<Response> {
    is_delivery(request).then(|| answer_delivery(request, env::caller().as_ref(), allow, handle))
}

pub(super) fn is_delivery(request: &Request) -> bool {
    request.path().strip_prefix('/') == Some(DELIVER)
}

pub(super) fn answer_delivery<O: Into<Outcome>>(
    request: &Request,
    caller: Option<&Address>,
    allow: &[&str],
    mut handle: impl FnMut(&Received<'_>) -> O,
) -> Response {
    let Some(queue) = caller.filter(|caller| is_allowed(caller, allow)) else {
        return Response::problem(403, "forbidden", "deliveries come from queues");
    };
    let queue = queue.to_string();
    let messages = match decode_delivery(request.body()) {
        Ok(messages) => messages,
        Err(invalid) => return Response::problem(invalid.status(), "bad-request", &invalid.to_string()),
    };
    let outcomes: Vec<(Lease, Outcome)> =
        messages.iter().map(|leased| (leased.lease, handle(&Received::borrowed(&queue, leased)).into())).collect();
    match encode_outcomes(&settlements(&outcomes)) {
        Ok(body) => Response::new(200).with_header("content-type", "application/octet-stream").with_body(body),
        // An outcome that breaks a rule, such as a pause of a century: the consumer's own mistake, for its log.
        Err(invalid) => crate::Error::from(Error::from(invalid)).into_response(),
    }
}
