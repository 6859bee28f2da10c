//! The public listener: from HTTP to an event of the actor that a request names, and back.
//!
//! Everything that can be refused without an actor is refused here, before one exists. What the guest sees is stripped of what
//! belongs to the connection and of `x-wasmkeep-*`, which only the host may say.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::body::Incoming;
use wasmkeep_storage::Address;

use super::Actors;
use super::exchange::{Refused, Service, take_body};
use super::front::{Conn, Hold};
use crate::config::Access;
use crate::event::{Outcome, Problem, Request, Response};
use crate::router::Route;

/// What it does with requests.
#[derive(Clone)]
pub(super) struct Public<A>(pub(super) A);

impl<A: Actors> Service for Public<A> {
    async fn answer(
        &self,
        conn: &Rc<Conn>,
        request: http::Request<Incoming>,
        hold: &mut Option<Hold>,
    ) -> Result<http::Response<Bytes>, Refused> {
        let is_head = request.method() == http::Method::HEAD;
        let (address, request) = admit(conn, request, hold).await?;
        match self.0.request(None, address, request).await {
            Outcome::Response(response) => Ok(from_guest(response, is_head)?),
            Outcome::Problem(problem) => Err(problem.into()),
        }
    }
}

/// All that is decided before an actor exists, and the body.
async fn admit(conn: &Rc<Conn>, request: http::Request<Incoming>, hold: &mut Option<Hold>) -> Result<(Address, Request), Refused> {
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    let route = Route::parse(target)?;
    let class = {
        let classes = conn.front.classes.borrow();
        let class = classes.get(route.class).ok_or_else(|| Problem::UnknownClass(route.class.to_string()))?;
        if class.access == Access::Internal {
            return Err(Problem::Forbidden(format!("class {:?} is internal: only actors may call it", route.class)).into());
        }
        Arc::clone(&class.name)
    };
    let address = Address { class, name: Arc::from(route.name) };
    let path = route.path.into_owned();
    let (parts, body) = request.into_parts();
    let body = take_body(conn, body, hold).await?;
    let headers = to_guest(&parts.headers, parts.uri.authority().map(http::uri::Authority::as_str));
    Ok((address, Request { method: parts.method.as_str().to_string(), path, headers, body }))
}

/// Headers that belong to a connection, not to a message (RFC 9110, 7.6.1), and the one hyper acted upon.
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
            | "expect"
    )
}

/// Whether a Connection header names this one.
fn named_by_connection(headers: &HeaderMap, name: &str) -> bool {
    let options = headers.get_all(header::CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    options.flat_map(|value| value.split(',')).any(|option| option.trim().eq_ignore_ascii_case(name))
}

fn to_guest(headers: &HeaderMap, authority: Option<&str>) -> Vec<(String, Vec<u8>)> {
    let mut list = Vec::with_capacity(headers.len() + 1);
    if let Some(authority) = authority.filter(|_| !headers.contains_key(header::HOST)) {
        list.push(("host".to_string(), authority.as_bytes().to_vec()));
    }
    let options = headers.contains_key(header::CONNECTION);
    for (name, value) in headers {
        let text = name.as_str();
        if text.starts_with("x-wasmkeep-") || is_hop_by_hop(text) || (options && named_by_connection(headers, text)) {
            continue;
        }
        list.push((text.to_string(), value.as_bytes().to_vec()));
    }
    list
}

/// A guest's answer as HTTP; a trap if it is none.
fn from_guest(response: Response, head: bool) -> Result<http::Response<Bytes>, Problem> {
    let status = StatusCode::from_u16(response.status).ok().filter(|status| (200..600).contains(&status.as_u16()));
    let status = status.ok_or_else(|| Problem::Trap(format!("it answered with status {}", response.status)))?;
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let mut answer = http::Response::new(if bodiless { Bytes::new() } else { response.body });
    *answer.status_mut() = status;
    for (name, value) in response.headers {
        let invalid = || Problem::Trap(format!("it answered with a header that is not valid HTTP, {name:?}"));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        // The length is what the body says, but for HEAD, where the guest may answer with the length alone.
        let length = name == header::CONTENT_LENGTH && !(head && answer.body().is_empty());
        if is_hop_by_hop(name.as_str()) || length {
            continue;
        }
        let value = HeaderValue::from_bytes(&value).map_err(|_| invalid())?;
        answer.headers_mut().append(name, value);
    }
    Ok(answer)
}
