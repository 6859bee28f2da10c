//! Serves one request with a resident component's `wasi:http/incoming-handler`.
//!
//! The guest writes its response body as a stream that must be read while it runs; the answer is collected whole, because it
//! waits at the actor's gate anyway. What the guest still holds of a request when its handler has returned is worth at most one
//! small piece of it.

use super::limits::{HTTP_CHUNK_BYTES, RESPONSE_BODY_BYTES_MAX};
use super::state::HostState;
use crate::event::{Request, Response};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use send_wrapper::SendWrapper;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use wasmkeep_storage::Address;
use wasmtime::Store;
use wasmtime::component::{Resource, TypedFunc};
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Scheme};
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::p2::types::{HostIncomingRequest, HostResponseOutparam};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks, WasiHttpView};

/// What `wasi:http/incoming-handler.handle` takes.
pub(crate) type HandleParams = (Resource<HostIncomingRequest>, Resource<HostResponseOutparam>);

/// `wasi:http/incoming-handler.handle`
pub(crate) type Handle = TypedFunc<HandleParams, ()>;

/// Why there is no response.
pub(crate) enum HandleError {
    /// The call into the guest failed.
    Guest(wasmtime::Error),
    /// The guest's answer is none.
    Response(String),
}

type Answer = Result<http::Response<HyperOutgoingBody>, ErrorCode>;

/// Runs the handler for one request.
pub(crate) async fn handle(store: &mut Store<HostState>, handle: Handle, request: Request) -> Result<Response, HandleError> {
    let body = SharedBody::new(request.body.clone());
    let host = host_request(request, body.clone(), &store.data().local.address).map_err(HandleError::Response)?;
    let meter = Rc::clone(&store.data().local.meter);
    let (answer, answered) = oneshot::channel();
    let mut http = store.data_mut().http();
    let host = http.new_incoming_request(Scheme::Http, host).map_err(HandleError::Guest)?;
    let outparam = http.new_response_outparam(answer).map_err(HandleError::Guest)?;
    let call = meter.metered(handle.call_async(store, (host, outparam)));
    let collected = run_and_collect(call, answered).await;
    body.forget();
    collected
}

/// Polls the guest's call and the body it writes until the call has returned; the answer must be complete then.
async fn run_and_collect(
    call: impl Future<Output = wasmtime::Result<()>>,
    answered: oneshot::Receiver<Answer>,
) -> Result<Response, HandleError> {
    let mut call = pin!(call);
    // Without tokio's budget a pending poll means that there is nothing to read, not that it is somebody else's turn.
    let mut collect = pin!(tokio::task::unconstrained(collect(answered)));
    let mut collected = None;
    poll_fn(|cx| {
        let returned = call.as_mut().poll(cx).map_err(HandleError::Guest)?;
        if collected.is_none()
            && let Poll::Ready(result) = collect.as_mut().poll(cx)
        {
            collected = Some(result);
        }
        match (returned, collected.take()) {
            (Poll::Pending, Some(Err(why))) => Poll::Ready(Err(HandleError::Response(why))),
            (Poll::Pending, so_far) => {
                collected = so_far;
                Poll::Pending
            }
            (Poll::Ready(()), Some(result)) => Poll::Ready(result.map_err(HandleError::Response)),
            (Poll::Ready(()), None) => Poll::Ready(Err(HandleError::Response(UNFINISHED.into()))),
        }
    })
    .await
}

const UNFINISHED: &str =
    "the handler returned without finishing its response: it must set the response-outparam and finish the body";

/// The whole answer, or what is wrong with it.
async fn collect(answered: oneshot::Receiver<Answer>) -> Result<Response, String> {
    let answer = match answered.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(code)) => return Err(format!("the handler answered with the error {code:?}")),
        Err(_) => return Err(UNFINISHED.into()),
    };
    let (head, mut stream) = answer.into_parts();
    let mut body = Vec::new();
    while let Some(frame) = stream.frame().await {
        let frame = frame.map_err(|error| format!("the handler did not finish its body: {error}"))?;
        // Trailers are not served.
        let Ok(data) = frame.into_data() else { continue };
        if body.len() + data.len() > RESPONSE_BODY_BYTES_MAX {
            return Err(format!("its body has more than {RESPONSE_BODY_BYTES_MAX} bytes, which is the limit"));
        }
        body.extend_from_slice(&data);
    }
    let headers = head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect();
    Ok(Response { status: head.status.as_u16(), headers, body: body.into() })
}

/// The request in the types of `http`. Fails only for what our own front does not let in.
fn host_request(request: Request, body: SharedBody, address: &Address) -> Result<http::Request<SharedBody>, String> {
    let Request { method, path, headers, .. } = request;
    let host = headers.iter().find(|(name, _)| name == "host").and_then(|(_, value)| std::str::from_utf8(value).ok());
    let fallback = format!("{}.invalid", address.class);
    let uri = |authority: &str| http::Uri::builder().scheme("http").authority(authority).path_and_query(path.as_str()).build();
    // A host that is no authority is not worth failing for; an actor that calls another need not have one at all.
    let uri = uri(host.unwrap_or(&fallback)).or_else(|_| uri(&fallback)).map_err(|error| format!("the request's path: {error}"))?;
    let mut builder = http::Request::builder().method(method.as_str()).uri(uri);
    for (name, value) in headers {
        builder = builder.header(name, value);
    }
    builder.body(body).map_err(|error| format!("the request: {error}"))
}

/// A request's body that the host can take back when the event has ended, whatever handles the guest still holds.
#[derive(Clone)]
struct SharedBody {
    rest: SendWrapper<Rc<Cell<Bytes>>>,
}

impl SharedBody {
    fn new(bytes: Bytes) -> Self {
        Self { rest: SendWrapper::new(Rc::new(Cell::new(bytes))) }
    }

    fn forget(&self) {
        self.rest.set(Bytes::new());
    }

    fn len(&self) -> usize {
        let rest = self.rest.replace(Bytes::new());
        let len = rest.len();
        self.rest.set(rest);
        len
    }
}

impl Body for SharedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut rest = self.rest.replace(Bytes::new());
        if rest.is_empty() {
            return Poll::Ready(None);
        }
        let piece = rest.split_to(rest.len().min(HTTP_CHUNK_BYTES));
        self.rest.set(rest);
        // A copy, because a piece that shares the body's memory would keep all of it.
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(&piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() as u64)
    }
}

/// Refuses every outgoing request.
pub(crate) struct NoOutbound;

/// What sending a request gives, in wasmtime's words.
type Sent = Result<(http::Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>;

impl WasiHttpHooks for NoOutbound {
    fn send_request(
        &mut self,
        _request: http::Request<WasiBody>,
        _options: Option<RequestOptions>,
        _done: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        Box::new(std::future::ready(Err(Error::HttpRequestDenied)))
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        HTTP_CHUNK_BYTES
    }
}
