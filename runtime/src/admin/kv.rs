//! What the operator asks about whole key-value classes: their numbers of shards, and moves of their keys.

use http::{Method, Request};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use wasmkeep_classes::kv::Shards;

use super::routes::json_body;
use super::{AdminError, AdminSetup, Desk};
use crate::config::{NativeKind, check_class_name};
use crate::core::Cores;
use crate::event::Problem;
use crate::moves::{Import, Operator, Reshard};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReshardBody {
    shards: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImportBody {
    from: String,
    from_shards: Option<u32>,
    #[serde(default)]
    overwrite: bool,
}

/// Answers `GET {class}`, `POST {class}/reshard` and `POST {class}/import`, behind `/admin/kv/`; `None` for all else. Whether work
/// was started, and `{"class", "shards", "move"}`, see `moves::Moves::of`.
pub(super) async fn answer(
    setup: &AdminSetup,
    desk: &Desk,
    rest: &str,
    request: Request<Incoming>,
) -> Result<Option<(bool, Json)>, AdminError> {
    let (class, operation) = rest.split_once('/').unwrap_or((rest, ""));
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let writes = *request.method() == Method::POST;
    match operation {
        "" if reads => {
            shards(setup, class)?;
        }
        "reshard" if writes => {
            shards(setup, class)?;
            let body: ReshardBody = json_body(request, "{\"shards\": 16}").await?;
            reshard(setup, desk, class, count(body.shards)?)?;
        }
        "import" if writes => {
            shards(setup, class)?;
            let body: ImportBody = json_body(request, "{\"from\": \"class\", \"overwrite\": false}").await?;
            import(setup, desk, class, body)?;
        }
        _ => return Ok(None),
    }
    let status = json!({ "class": class, "shards": shards(setup, class)?.count(), "move": desk.moves.of(class) });
    Ok(Some((writes, status)))
}

/// The number of shards that the data of a native class has.
fn shards(setup: &AdminSetup, class: &str) -> Result<Shards, AdminError> {
    let is_served = setup.natives.iter().any(|native| &*native.name == class && matches!(native.kind, NativeKind::Kv(_)));
    let unknown =
        || AdminError::NotFound(format!("the node serves no key-value class {class:?}: [kv.{class}] in wasmkeep.toml is one"));
    if !is_served {
        return Err(unknown());
    }
    count(setup.data.shards(class).ok_or_else(unknown)?)
}

fn count(shards: u32) -> Result<Shards, AdminError> {
    Shards::new(shards).map_err(|invalid| AdminError::BadRequest(invalid.to_string()))
}

fn cores(setup: &AdminSetup) -> Result<Cores, AdminError> {
    Ok(setup.cores.get().cloned().ok_or_else(|| Problem::Unavailable("the node is starting".into()))?)
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn under_way(what: String) -> AdminError {
    AdminError::Conflict(format!("{what}: is under way; one at a time"))
}

fn reshard(setup: &AdminSetup, desk: &Desk, class: &str, new: Shards) -> Result<(), AdminError> {
    let (actors, data) = (cores(setup)?, setup.data.clone());
    let job = Reshard { class: class.to_owned(), old: shards(setup, class)?, new };
    let what = format!("reshard {class} to {} shards", new.count());
    let caller = desk.operator.clone();
    let run = |progress| async move {
        job.run(&Operator::new(actors, caller, progress)).await?;
        data.set_shards(&job.class, new.count()).map_err(|fatal| fatal.to_string())
    };
    desk.moves.start(what, &[class], run).map_err(under_way)
}

fn import(setup: &AdminSetup, desk: &Desk, class: &str, body: ImportBody) -> Result<(), AdminError> {
    check_class_name(&body.from).map_err(AdminError::BadRequest)?;
    if body.from == class {
        return Err(AdminError::BadRequest("a class is not imported into itself".into()));
    }
    let actors = cores(setup)?;
    // Of a native class the node knows the number itself.
    let known = setup.data.shards(&body.from).filter(|_| shards(setup, &body.from).is_ok());
    let from_shards = body.from_shards.or(known).map(count).transpose()?;
    let what = format!("import {} into {class}", body.from);
    let (from, is_overwriting, caller) = (body.from, body.overwrite, desk.operator.clone());
    let classes = [class, &from].map(str::to_owned);
    let job = Import { class: class.to_owned(), shards: shards(setup, class)?, from, from_shards, is_overwriting };
    let run = |progress| async move { job.run(&Operator::new(actors, caller, progress)).await };
    desk.moves.start(what, &[&classes[0], &classes[1]], run).map_err(under_way)
}
