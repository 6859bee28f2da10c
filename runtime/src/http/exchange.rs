//! One request and its answer: from HTTP to an event and back.
//!
//! Everything that can be refused without an actor is refused here, before one exists. What the guest sees is stripped of what
//! belongs to the connection and of `x-wasmkeep-*`, which only the host may say.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use wasmkeep_storage::Address;

use super::Actors;
use super::front::{Conn, Front, Hold, Open, Transfer};
use crate::config::Access;
use crate::event::{Outcome, Problem, Request, Response};
use crate::limits::REQUEST_BODY_BYTES_MAX;
use crate::router::Route;

/// Bytes of an answer that are given to the connection at once: it takes more when these are on their way.
const CHUNK_BYTES: usize = 64 * 1024;

/// The client went away, or broke its body off: nobody is left to answer.
#[derive(thiserror::Error, Debug)]
#[error("the client went away")]
pub(super) struct Gone;

/// Why a request has no event.
enum Refused {
    Problem(Problem),
    Gone,
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Answers one request.
pub(super) async fn exchange<A: Actors>(
    actors: A,
    conn: Rc<Conn>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Reply>, Gone> {
    let open = Open::new(&conn);
    let front = &conn.front;
    let (head, keep_open) = (request.method() == Method::HEAD, request.version() >= Version::HTTP_2);
    let mut hold = None;
    let outcome = match admit(&conn, request, &mut hold).await {
        Ok((address, request)) => actors.request(address, request).await,
        Err(Refused::Problem(problem)) => Outcome::Problem(problem),
        Err(Refused::Gone) => return Err(Gone),
    };
    let mut answer = match outcome {
        Outcome::Response(response) => from_guest(response, head).unwrap_or_else(|problem| from_problem(front, &problem)),
        Outcome::Problem(problem) => from_problem(front, &problem),
    };
    if front.stopping() && !keep_open {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if head {
        let length = answer.body().len();
        if length > 0 || !answer.headers().contains_key(header::CONTENT_LENGTH) {
            answer.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        *answer.body_mut() = Bytes::new();
    }
    Ok(answer.map(|bytes| Reply::new(bytes, open, hold, &conn)))
}

/// All that is decided before an actor exists, and the body.
async fn admit(conn: &Rc<Conn>, request: http::Request<Incoming>, hold: &mut Option<Hold>) -> Result<(Address, Request), Refused> {
    let front = &conn.front;
    if front.stopping() {
        return Err(Problem::Draining.into());
    }
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    let route = Route::parse(target)?;
    let class = {
        let classes = front.classes.borrow();
        let class = classes.get(route.class).ok_or_else(|| Problem::UnknownClass(route.class.to_string()))?;
        if class.access == Access::Internal {
            return Err(Problem::Forbidden(format!("class {:?} is internal: only actors may call it", route.class)).into());
        }
        Arc::clone(&class.name)
    };
    let address = Address { class, name: Arc::from(route.name) };
    let path = route.path.into_owned();
    let (parts, body) = request.into_parts();
    let hold = hold.insert(Hold::new(front)?);
    let body = if body.is_end_stream() { Bytes::new() } else { collect(conn, body, hold).await? };
    let headers = to_guest(&parts.headers, parts.uri.authority().map(http::uri::Authority::as_str));
    Ok((address, Request { method: parts.method.as_str().to_string(), path, headers, body }))
}

/// Reads a whole body, within its limit and the core's.
async fn collect(conn: &Rc<Conn>, mut body: Incoming, hold: &mut Hold) -> Result<Bytes, Refused> {
    let too_large = || Problem::TooLarge(format!("a body has at most {REQUEST_BODY_BYTES_MAX} bytes"));
    if body.size_hint().lower() > REQUEST_BODY_BYTES_MAX as u64 {
        return Err(too_large().into());
    }
    let _transfer = Transfer::new(conn);
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Refused::Gone)?.into_data() else { continue };
        if first.len() + whole.len() + data.len() > REQUEST_BODY_BYTES_MAX {
            return Err(too_large().into());
        }
        hold.grow(data.len())?;
        // Most bodies are one frame, and stay where they were read.
        if first.is_empty() && whole.is_empty() {
            first = data;
        } else {
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&data);
        }
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
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

fn from_problem(front: &Front, problem: &Problem) -> http::Response<Bytes> {
    front.metrics.http_problems[problem.slug_index()].increment(1);
    let mut answer = http::Response::new(Bytes::from(problem.to_json()));
    *answer.status_mut() = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(seconds) = problem.retry_after_seconds() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

/// The body of an answer: given out in pieces, so that a slow reader is seen to be one.
pub(super) struct Reply {
    bytes: Bytes,
    _open: Open,
    _hold: Option<Hold>,
    _transfer: Option<Transfer>,
}

impl Reply {
    fn new(bytes: Bytes, open: Open, mut hold: Option<Hold>, conn: &Rc<Conn>) -> Self {
        if let Some(hold) = &mut hold {
            hold.replace(bytes.len());
        }
        let transfer = (!bytes.is_empty()).then(|| Transfer::new(conn));
        Self { bytes, _open: open, _hold: hold, _transfer: transfer }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.bytes.len().min(CHUNK_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.bytes.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
