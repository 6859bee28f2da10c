//! One operator's calls to shards: tried again when that may help, since each of them may be repeated, and their replies read.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use wasmkeep_classes::host::Call;
use wasmkeep_classes::kv::client::{self, Error};
use wasmkeep_classes::kv::protocol::{Invalid, Moving};
use wasmkeep_classes::kv::{Layout, Phase, Shards, shard_name};
use wasmkeep_storage::Address;

use super::Progress;
use crate::event::{Outcome, Problem, Request};
use crate::http::Actors;

/// How often a call is made at most, and how long is waited before the second time; twice as long before each one after it.
const TRIES_MAX: u32 = 10;
const FIRST_WAIT: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The operator as one job knows it.
pub(crate) struct Operator<A> {
    actors: A,
    caller: Address,
    pub(super) progress: Progress,
    /// See [`FIRST_WAIT`].
    pub(super) first_wait: Duration,
}

/// Whether the same call may do better a little later. Calls may be repeated, so an unknown outcome is no reason to stop.
const fn passes(problem: &Problem) -> bool {
    matches!(problem, Problem::MailboxFull | Problem::Deadline | Problem::UnknownOutcome | Problem::Unavailable(_))
}

impl<A: Actors> Operator<A> {
    /// `caller` is an address of the operator's class.
    pub(crate) const fn new(actors: A, caller: Address, progress: Progress) -> Self {
        Self { actors, caller, progress, first_wait: FIRST_WAIT }
    }

    /// What a shard replies.
    async fn ask(&self, class: &str, shard: u32, call: Call) -> Result<(u16, Bytes), String> {
        let address = Address::new(class, &shard_name(shard));
        let body = Bytes::from(call.body);
        let (mut tries, mut wait) = (1, self.first_wait);
        loop {
            let (path, body) = (call.path.to_owned(), body.clone());
            let request = Request { method: "POST".into(), path, headers: Vec::new(), body };
            match self.actors.request(Some(self.caller.clone()), address.clone(), request).await {
                Outcome::Response(response) => return Ok((response.status, response.body)),
                Outcome::Problem(problem) if passes(&problem) && tries < TRIES_MAX => {
                    tokio::time::sleep(wait).await;
                    (tries, wait) = (tries + 1, WAIT_MAX.min(wait * 2));
                }
                Outcome::Problem(problem) => return Err(format!("{address}: {problem}")),
            }
        }
    }

    /// The layout of one shard.
    pub(super) async fn layout(&self, class: &str, shard: u32) -> Result<Layout, String> {
        let (status, body) = self.ask(class, shard, client::layout()).await?;
        client::is_laid_out(status, &body).map_err(|error| match error {
            Error::Forbidden | Error::Full => at(class, shard)(error),
            _ => format!(
                "{class} is no key-value class: {class}/{} answered {status} to a question for its layout",
                shard_name(shard)
            ),
        })
    }

    /// The layouts of the first shards of a class, in their order.
    pub(super) async fn layouts(&self, class: &str, count: u32) -> Result<Vec<Layout>, String> {
        let mut layouts = Vec::new();
        for shard in 0..count {
            layouts.push(self.layout(class, shard).await?);
        }
        Ok(layouts)
    }

    pub(super) async fn set(&self, class: &str, shard: u32, phase: Phase, shards: Shards) -> Result<(), String> {
        let call = client::set_layout(phase, shards).map_err(invalid)?;
        let (status, body) = self.ask(class, shard, call).await?;
        client::has_set_layout(status, &body).map_err(at(class, shard))
    }

    /// Whether a shard has no row that has not ended.
    pub(super) async fn is_empty(&self, class: &str, shard: u32) -> Result<bool, String> {
        let (status, body) = self.ask(class, shard, client::export(None).map_err(invalid)?).await?;
        Ok(client::exported(status, &body).map_err(at(class, shard))?.rows.is_empty())
    }

    /// Deletes the rows of a shard, which must be `Moved(shards)`, that are not its own among `shards`.
    pub(super) async fn prune(&self, class: &str, shard: u32, shards: Shards) -> Result<(), String> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let call = client::prune(shard, shards, after.as_deref()).map_err(invalid)?;
            let (status, body) = self.ask(class, shard, call).await?;
            match client::pruned(status, &body).map_err(at(class, shard))?.next {
                Some(next) => after = Some(next.to_vec()),
                None => return Ok(()),
            }
        }
    }

    /// Copies the rows of one shard into those shards of `to` that have them, page by page.
    pub(super) async fn copy(&self, from: (&str, u32), to: (&str, Shards), only_if_absent: bool) -> Result<(), String> {
        let (class, shard) = from;
        let mut after: Option<Vec<u8>> = None;
        loop {
            let call = client::export(after.as_deref()).map_err(invalid)?;
            let (status, body) = self.ask(class, shard, call).await?;
            let page = client::exported(status, &body).map_err(at(class, shard))?;
            let stays = |index: u32| (to.0, index) == from;
            let parts = to.1.split(page.rows.iter().map(|row| row.key)).into_iter().filter(|(index, _)| !stays(*index));
            let imports = parts.map(|(index, positions)| {
                let rows: Vec<_> = positions.into_iter().filter_map(|position| page.rows.get(position).copied()).collect();
                self.import(to.0, index, rows, only_if_absent)
            });
            try_join_all(imports).await?;
            match page.rows.last() {
                Some(last) if page.has_more => after = Some(last.key.to_vec()),
                _ => return Ok(()),
            }
        }
    }

    async fn import(&self, class: &str, shard: u32, rows: Vec<Moving<'_>>, only_if_absent: bool) -> Result<(), String> {
        let (status, body) = self.ask(class, shard, client::import(&rows, only_if_absent).map_err(invalid)?).await?;
        let imported = client::imported(status, &body).map_err(at(class, shard))?;
        self.progress.count(imported.written);
        Ok(())
    }
}

/// What a shard's error is to people.
fn at(class: &str, shard: u32) -> impl FnOnce(Error) -> String {
    move |error| format!("{class}/{}: {error}", shard_name(shard))
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn invalid(invalid: Invalid) -> String {
    invalid.to_string()
}
