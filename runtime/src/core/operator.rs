//! What the admin listener asks about actors, answered on the cores that have them.

use std::future::Future;
use std::rc::Rc;

use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use wasmkeep_storage::sql::Connection;
use wasmkeep_storage::{Address, Positions, store};

use super::Core;
use super::reply::ReplyTo;
use super::wake::{Event, Remote, Wake, Work};
use crate::admin::{AdminError, AdminRequest, rows_to_json};
use crate::event::{Outcome, Problem, Request, Response};
use crate::http::Actors;
use crate::router;

/// A question to one core.
pub(crate) enum Question {
    /// The addresses of its actors, of one class if given, behind one if given, at most so many.
    List { class: Option<String>, after: Option<String>, limit: usize, answer: oneshot::Sender<Result<Vec<Address>, AdminError>> },
    /// What it knows of one.
    Show { address: Address, answer: oneshot::Sender<Result<serde_json::Value, AdminError>> },
    /// A statement in one's database.
    Sql { address: Address, sql: String, answer: oneshot::Sender<Outcome>, unknown: oneshot::Sender<()> },
    /// A request for one of its actors, which is made if there is none, from a caller that the host vouches for.
    Request { caller: Option<Address>, address: Address, request: Request, answer: oneshot::Sender<Outcome> },
}

/// All cores of a node, for threads that are none of them.
#[derive(Clone)]
pub struct Cores {
    pub(super) senders: Vec<mpsc::Sender<Remote>>,
}

impl Cores {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.senders.len()
    }

    /// Answers what the operator asks about actors.
    ///
    /// # Errors
    /// What the operator is told instead.
    pub async fn admin(&self, request: AdminRequest) -> Result<serde_json::Value, AdminError> {
        match request {
            AdminRequest::List { class, after, limit } => self.list(class, after, limit).await,
            AdminRequest::Show(address) => {
                let (answer, answered) = oneshot::channel();
                self.ask(router::core_of(&address, self.count()), Question::Show { address, answer }).await?;
                answered.await.unwrap_or_else(|_| Err(stopping()))
            }
            AdminRequest::Sql { address, sql } => self.sql(address, sql).await,
        }
    }

    async fn ask(&self, core: usize, question: Question) -> Result<(), AdminError> {
        self.senders[core].send(Remote::Question(question)).await.map_err(|_| stopping())
    }

    async fn list(&self, class: Option<String>, after: Option<String>, limit: usize) -> Result<serde_json::Value, AdminError> {
        let mut found = Vec::new();
        for core in 0..self.count() {
            let (answer, answered) = oneshot::channel();
            self.ask(core, Question::List { class: class.clone(), after: after.clone(), limit: limit + 1, answer }).await?;
            found.extend(answered.await.unwrap_or_else(|_| Err(stopping()))?);
        }
        found.sort_by_key(ToString::to_string);
        let more = found.len() > limit;
        found.truncate(limit);
        let next = if more { found.last().map(ToString::to_string) } else { None };
        let actors: Vec<_> = found.iter().map(|address| json!({ "address": address.to_string() })).collect();
        Ok(json!({ "actors": actors, "next": next }))
    }

    async fn sql(&self, address: Address, sql: String) -> Result<serde_json::Value, AdminError> {
        let (answer, answered) = oneshot::channel();
        let (unknown, is_unknown) = oneshot::channel();
        let core = router::core_of(&address, self.count());
        self.ask(core, Question::Sql { address: address.clone(), sql, answer, unknown }).await?;
        if is_unknown.await.is_ok() {
            return Err(not_found(&address));
        }
        match answered.await {
            Ok(Outcome::Response(Response { status: 200, body, .. })) => {
                serde_json::from_slice(&body).map_err(|error| AdminError::Sql(error.to_string()))
            }
            Ok(Outcome::Response(response)) => Err(AdminError::Sql(String::from_utf8_lossy(&response.body).into_owned())),
            Ok(Outcome::Problem(problem)) => Err(AdminError::Problem(problem)),
            Err(_) => Err(stopping()),
        }
    }
}

impl Actors for Cores {
    fn request(&self, caller: Option<Address>, address: Address, request: Request) -> impl Future<Output = Outcome> + 'static {
        let sender = self.senders[router::core_of(&address, self.count())].clone();
        async move {
            let (answer, answered) = oneshot::channel();
            let question = Question::Request { caller, address, request, answer };
            match sender.send(Remote::Question(question)).await {
                Ok(()) => answered.await.unwrap_or(Outcome::Problem(Problem::UnknownOutcome)),
                Err(_) => Outcome::Problem(Problem::Draining),
            }
        }
    }
}

fn stopping() -> AdminError {
    AdminError::Problem(Problem::Draining)
}

fn not_found(address: &Address) -> AdminError {
    AdminError::NotFound(format!("there is no actor {address}"))
}

/// Answers a question on the core it is for. An operator who went away is told nothing.
pub(super) fn answer(core: &Rc<Core>, question: Question) {
    match question {
        Question::List { class, after, limit, answer } => drop(answer.send(list(core, class.as_deref(), after.as_deref(), limit))),
        Question::Show { address, answer } => drop(answer.send(show(core, &address))),
        Question::Sql { address, sql, answer, unknown } => match core.store.meta(&address) {
            Ok(Some(_)) => {
                drop(unknown);
                submit(core, None, address, Work::Sql(sql), answer);
            }
            Ok(None) => drop(unknown.send(())),
            Err(error) => {
                drop(unknown);
                drop(answer.send(Outcome::Problem(Problem::Unavailable(error.to_string()))));
            }
        },
        Question::Request { caller, address, request, answer } => submit(core, caller, address, Work::Request(request), answer),
    }
}

fn submit(core: &Rc<Core>, caller: Option<Address>, address: Address, work: Work, answer: oneshot::Sender<Outcome>) {
    core.submit(Wake::Event(Box::new(Event {
        address,
        work,
        caller,
        chain: Vec::new(),
        positions: Positions::default(),
        deadline_ns: core.now_ns().saturating_add(core.event_wall_ns()),
        reply: ReplyTo::Operator(answer),
    })));
}

fn list(core: &Core, class: Option<&str>, after: Option<&str>, limit: usize) -> Result<Vec<Address>, AdminError> {
    // The order of the page is that of the text `class/name`, which is not that of the pairs.
    let all = core.store.list(class, usize::MAX).map_err(|error| Problem::Unavailable(error.to_string()))?;
    let mut texts: Vec<_> = all.into_iter().map(|address| (address.to_string(), address)).collect();
    texts.retain(|(text, _)| after.is_none_or(|after| text.as_str() > after));
    texts.sort();
    texts.truncate(limit);
    Ok(texts.into_iter().map(|(_, address)| address).collect())
}

fn show(core: &Core, address: &Address) -> Result<serde_json::Value, AdminError> {
    let meta = core.store.meta(address).map_err(|error| Problem::Unavailable(error.to_string()))?;
    let Some(meta) = meta else { return Err(not_found(address)) };
    let actor = core.actors.borrow().get(address).cloned();
    let state = match &actor {
        Some(actor) if actor.is_running() => "running",
        Some(_) => "idle",
        None => "asleep",
    };
    Ok(json!({
        "address": address.to_string(),
        "core": core.index,
        "partition": store::partition(&address.class, &address.name),
        "state": state,
        "alarm": meta.alarm.map(|alarm| json!({ "at_ms": alarm.at_ms, "attempts": alarm.attempt })),
        "version": format!("{:032x}", meta.init_version),
    }))
}

/// Runs a statement of the operator's; a failing one is an answer of its own.
pub(super) async fn sql(connection: &Connection, sql: &str) -> Outcome {
    let respond = |status, body: Vec<u8>| Outcome::Response(Response { status, headers: Vec::new(), body: body.into() });
    let before = connection.total_changes();
    // Durable: what the operator is told must be true after a crash. A query waits for what it has read.
    let result = connection.query_durable(sql).await;
    match result {
        Ok(rows) => {
            let mut value = rows_to_json(&rows);
            if let Some(object) = value.as_object_mut() {
                object.insert("changed".into(), json!(connection.total_changes() - before));
            }
            respond(200, value.to_string().into_bytes())
        }
        Err(error) => respond(422, error.to_string().into_bytes()),
    }
}
