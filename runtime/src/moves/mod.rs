//! Moves of key-value rows that the operator asks for: a class into another number of shards, a class into another one.
//!
//! A move is a job of the admin listener's thread, one at a time for a class. It makes the shards' own operations and keeps nothing
//! itself: how far it came is told by the shards' layouts, so a job that failed, or went down with its node, is asked for again and
//! goes on. It knows shards by their protocol only; whoever carries requests is an [`Actors`].

mod import;
mod reshard;
mod shards;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::rc::Rc;

use serde_json::{Value as Json, json};

pub(crate) use self::import::Import;
pub(crate) use self::reshard::Reshard;
pub(crate) use self::shards::Operator;

/// How far a job is. Its clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Rc<RefCell<Stage>>);

#[derive(Debug, Default)]
struct Stage {
    step: String,
    rows: u64,
    end: Option<Result<(), String>>,
}

impl Progress {
    fn step(&self, step: impl Into<String>) {
        self.0.borrow_mut().step = step.into();
    }

    /// So many rows more have been copied.
    fn count(&self, rows: u32) {
        self.0.borrow_mut().rows += u64::from(rows);
    }

    fn end(&self, end: Result<(), String>) {
        self.0.borrow_mut().end = Some(end);
    }

    fn is_running(&self) -> bool {
        self.0.borrow().end.is_none()
    }
}

/// A job that was started.
#[derive(Clone)]
struct Job {
    /// What it does, as a sentence's beginning: two jobs of the same words do the same.
    what: String,
    progress: Progress,
}

impl Job {
    /// `{"what", "state", "step", "rows", "error"}`; `state` is `running`, `done` or `failed`.
    fn to_json(&self) -> Json {
        let stage = self.progress.0.borrow();
        let (state, error) = match &stage.end {
            None => ("running", None),
            Some(Ok(())) => ("done", None),
            Some(Err(words)) => ("failed", Some(words)),
        };
        json!({ "what": self.what, "state": state, "step": stage.step, "rows": stage.rows, "error": error })
    }
}

/// The last job of each class since the node started.
#[derive(Default)]
pub(crate) struct Moves(RefCell<HashMap<String, Job>>);

impl Moves {
    /// Starts a job that concerns these classes, on the local set of this thread. The same job running already is this one.
    ///
    /// # Errors
    /// Another one is running; what it does.
    pub(crate) fn start<F>(&self, what: String, classes: &[&str], run: impl FnOnce(Progress) -> F) -> Result<(), String>
    where
        F: Future<Output = Result<(), String>> + 'static,
    {
        let mut jobs = self.0.borrow_mut();
        let running = classes.iter().filter_map(|class| jobs.get(*class)).find(|job| job.progress.is_running());
        if let Some(running) = running {
            return if running.what == what { Ok(()) } else { Err(running.what.clone()) };
        }
        let progress = Progress::default();
        let job = Job { what: what.clone(), progress: progress.clone() };
        jobs.extend(classes.iter().map(|class| ((*class).to_owned(), job.clone())));
        let work = run(progress.clone());
        tokio::task::spawn_local(async move {
            tracing::info!("{what}: started");
            let end = work.await;
            match &end {
                Ok(()) => tracing::info!("{what}: done, {} rows copied", progress.0.borrow().rows),
                Err(words) => tracing::warn!("{what}: {words}"),
            }
            progress.end(end);
        });
        Ok(())
    }

    /// The last job of a class, `null` if there was none: `{"what", "state", "step", "rows", "error"}`.
    pub(crate) fn of(&self, class: &str) -> Json {
        self.0.borrow().get(class).map_or(Json::Null, Job::to_json)
    }
}
