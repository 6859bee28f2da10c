//! One request and its answer, whatever its listener does with requests: the body taken in, the answer given out, both bounded.
//!
//! What a request means is its listener's [`Service`].

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderValue};
use http::{Method, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::front::{Conn, Front, Hold, Open, Transfer};
use crate::event::Problem;
use crate::limits::REQUEST_BODY_BYTES_MAX;

/// Bytes of an answer that are given to the connection at once: it takes more when these are on their way.
const CHUNK_BYTES: usize = 64 * 1024;

/// The client went away, or broke its body off: nobody is left to answer.
#[derive(thiserror::Error, Debug)]
#[error("the client went away")]
pub(super) struct Gone;

/// Why a request has no answer of its own.
pub(super) enum Refused {
    Problem(Problem),
    Gone,
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// What a listener does with its requests.
pub(super) trait Service: Clone + 'static {
    /// Answers one. What it holds of bodies, also of its answer's, is in `hold`.
    async fn answer(
        &self,
        conn: &Rc<Conn>,
        request: http::Request<Incoming>,
        hold: &mut Option<Hold>,
    ) -> Result<http::Response<Bytes>, Refused>;
}

/// Answers one request.
pub(super) async fn exchange<S: Service>(
    service: S,
    conn: Rc<Conn>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Reply>, Gone> {
    let open = Open::new(&conn);
    let front = &conn.front;
    let (head, keep_open) = (request.method() == Method::HEAD, request.version() >= Version::HTTP_2);
    let mut hold = None;
    let answered = if front.stopping() { Err(Problem::Draining.into()) } else { service.answer(&conn, request, &mut hold).await };
    let mut answer = match answered {
        Ok(answer) => answer,
        Err(Refused::Problem(problem)) => from_problem(front, &problem),
        Err(Refused::Gone) => return Err(Gone),
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

/// Takes a request's body in, if there is room for one.
pub(super) async fn take_body(conn: &Rc<Conn>, body: Incoming, hold: &mut Option<Hold>) -> Result<Bytes, Refused> {
    let hold = hold.insert(Hold::new(&conn.front)?);
    if body.is_end_stream() { Ok(Bytes::new()) } else { collect(conn, body, hold).await }
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

/// A problem as HTTP, counted.
pub(super) fn from_problem(front: &Front, problem: &Problem) -> http::Response<Bytes> {
    front.metrics.http_problems[problem.slug_index()].increment(1);
    problem.to_http()
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
