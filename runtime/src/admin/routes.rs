//! What the admin listener answers to which path, and to whom.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use wasmkeep_storage::Address;

use super::{AdminError, AdminRequest, AdminSetup, Desk, kv};
use crate::config::Secret;
use crate::door::{self, Refusal};
use crate::event::Problem;
use crate::limits::{ADMIN_BODY_BYTES_MAX, REQUEST_BODY_BYTES_MAX};
use crate::router::Route;

/// Actors in one page of a list, unless asked otherwise, and at most.
const LIST_LIMIT: usize = 1000;

type Answer = Response<Full<Bytes>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SqlBody {
    sql: String,
}

pub(super) async fn answer(setup: &AdminSetup, desk: &Desk, request: Request<Incoming>) -> Answer {
    let head = request.method() == Method::HEAD;
    let mut answer = route(setup, desk, request).await.unwrap_or_else(|error| failure(&error));
    if head {
        let length = http_body::Body::size_hint(answer.body()).lower();
        answer.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        *answer.body_mut() = Full::default();
    }
    answer
}

async fn route(setup: &AdminSetup, desk: &Desk, request: Request<Incoming>) -> Result<Answer, AdminError> {
    let path = request.uri().path().to_string();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    match path.as_str() {
        "/healthz" if reads => return Ok(text(StatusCode::OK, "text/plain; charset=utf-8", "ok\n")),
        "/readyz" if reads => return readiness(setup),
        _ => {}
    }
    authorize(setup, request.uri(), request.headers())?;
    if door::is_door(&path) {
        let answer = serve_door(setup, desk, request).await;
        return Ok(answer.unwrap_or_else(|refusal| refusal.to_http()).map(Full::new));
    }
    if path == "/metrics" && reads {
        return Ok(text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", setup.metrics.render()));
    }
    if let Some(rest) = path.strip_prefix("/admin/kv/") {
        let unknown = nothing_at(&request);
        let (has_begun, status) = kv::answer(setup, desk, rest, request).await?.ok_or(unknown)?;
        return Ok(text(if has_begun { StatusCode::ACCEPTED } else { StatusCode::OK }, "application/json", status.to_string()));
    }
    let unknown = || nothing_at(&request);
    let rest = path.strip_prefix("/admin/actors").filter(|rest| rest.is_empty() || rest.starts_with('/')).ok_or_else(unknown)?;
    let question = match (rest, rest.strip_suffix("/sql")) {
        ("", _) if reads => list(request.uri().query().unwrap_or_default())?,
        (_, Some(actor)) if *request.method() == Method::POST => {
            let address = address(actor)?;
            let body: SqlBody = json_body(request, "{\"sql\": \"...\"}").await?;
            AdminRequest::Sql { address, sql: body.sql }
        }
        (actor, _) if reads => AdminRequest::Show(address(actor)?),
        _ => return Err(unknown()),
    };
    let cores = setup.cores.get().ok_or_else(|| Problem::Unavailable("the node is starting".into()))?;
    let answer = cores.admin(question).await?;
    Ok(text(StatusCode::OK, "application/json", answer.to_string()))
}

fn nothing_at(request: &Request<Incoming>) -> AdminError {
    AdminError::NotFound(format!("there is no {} {} here", request.method(), request.uri().path()))
}

fn readiness(setup: &AdminSetup) -> Result<Answer, AdminError> {
    if setup.phase.is_serving() {
        return Ok(text(StatusCode::OK, "text/plain; charset=utf-8", "ready\n"));
    }
    let problem = if setup.phase.is_draining() { Problem::Draining } else { Problem::Unavailable("the node is starting".into()) };
    Err(problem.into())
}

/// A token if there is one; else only programs of this machine, and no page in their browser that a foreign name led here.
fn authorize(setup: &AdminSetup, uri: &Uri, headers: &HeaderMap) -> Result<(), AdminError> {
    let is_right = match &setup.token {
        None => setup.loopback && door::is_for_this_machine(uri, headers),
        Some(Secret(token)) => door::bearer(headers).is_some_and(|given| door::equal(given, token.as_bytes())),
    };
    if is_right { Ok(()) } else { Err(AdminError::Unauthorized) }
}

/// The service door, for the operator.
async fn serve_door(setup: &AdminSetup, desk: &Desk, request: Request<Incoming>) -> Result<door::Answer, Refusal> {
    if setup.token.is_none() {
        door::refuse_pages(request.headers())?;
    }
    let cores = setup.cores.get().ok_or_else(|| Problem::Unavailable("the node is starting".into()))?;
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    let routed = door::route(&desk.book, request.method(), target, request.headers())?;
    let too_large = |_| Problem::TooLarge(format!("a body has at most {REQUEST_BODY_BYTES_MAX} bytes"));
    let body = Limited::new(request.into_body(), REQUEST_BODY_BYTES_MAX).collect().await.map_err(too_large)?.to_bytes();
    // The connections of this listener are few, which bounds what they hold.
    routed.answer(cores, &desk.operator, body, &mut |_| Ok(())).await
}

/// The actor of `/class/name`, percent-encoded as in a request's path.
fn address(target: &str) -> Result<Address, AdminError> {
    let route = Route::parse(target)?;
    if route.path != "/" {
        return Err(AdminError::BadRequest("an actor is /{class}/{name}; write '/' in a name as %2F".into()));
    }
    Ok(Address::new(route.class, &route.name))
}

fn list(query: &str) -> Result<AdminRequest, AdminError> {
    let (mut class, mut after, mut limit) = (None, None, LIST_LIMIT);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode_str(value).decode_utf8();
        let value = value.map_err(|_| AdminError::BadRequest(format!("{name} is not UTF-8")))?.into_owned();
        match name {
            "class" => class = Some(value),
            "after" => after = Some(value),
            "limit" => {
                let parsed = value.parse().ok().filter(|limit| (1..=LIST_LIMIT).contains(limit));
                limit = parsed.ok_or_else(|| AdminError::BadRequest(format!("limit is a number from 1 to {LIST_LIMIT}")))?;
            }
            _ => return Err(AdminError::BadRequest(format!("unknown parameter {name:?} (valid: after, class, limit)"))),
        }
    }
    Ok(AdminRequest::List { class, after, limit })
}

/// A small JSON body; the example says what it looks like.
pub(super) async fn json_body<T: DeserializeOwned>(request: Request<Incoming>, example: &str) -> Result<T, AdminError> {
    // A browser sends this type to a foreign origin only after asking, and is never told yes.
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        return Err(AdminError::BadRequest(format!("the body must be application/json: {example}")));
    }
    let too_large = |_| Problem::TooLarge(format!("such a request has at most {ADMIN_BODY_BYTES_MAX} bytes"));
    let body = Limited::new(request.into_body(), ADMIN_BODY_BYTES_MAX).collect().await.map_err(too_large)?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| AdminError::BadRequest(error.to_string()))
}

fn text(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// An error as `application/problem+json`.
pub(super) fn failure(error: &AdminError) -> Answer {
    let own = |kind: &str, status: StatusCode| {
        let body =
            json!({ "type": kind, "title": status.canonical_reason(), "status": status.as_u16(), "detail": error.to_string() });
        text(status, "application/problem+json", body.to_string())
    };
    match error {
        AdminError::NotFound(_) => own("not-found", StatusCode::NOT_FOUND),
        AdminError::BadRequest(_) => own("bad-request", StatusCode::BAD_REQUEST),
        AdminError::Conflict(_) => own("conflict", StatusCode::CONFLICT),
        AdminError::Sql(_) => own("sql", StatusCode::UNPROCESSABLE_ENTITY),
        AdminError::Unauthorized => {
            let mut answer = own("unauthorized", StatusCode::UNAUTHORIZED);
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            answer
        }
        AdminError::Problem(problem) => {
            let status = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let mut answer = text(status, "application/problem+json", problem.to_json());
            if let Some(seconds) = problem.retry_after_seconds() {
                answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            answer
        }
    }
}
