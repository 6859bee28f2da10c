//! A class's rows into another class.
//!
//! The class they come from serves on and is not changed; what is written to it meanwhile may or may not be copied.

use wasmkeep_classes::kv::{Layout, Phase, Shards};

use super::Operator;
use crate::http::Actors;

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) struct Import {
    /// The class that is written.
    pub(crate) class: String,
    pub(crate) shards: Shards,
    /// The class that is read.
    pub(crate) from: String,
    /// Its number of shards; without it, the number that its first shard says.
    pub(crate) from_shards: Option<Shards>,
    /// Whether rows that are there already are written over.
    pub(crate) is_overwriting: bool,
}

impl Import {
    /// Copies what there is.
    ///
    /// # Errors
    /// Why it stopped, for people. What was copied stays; asked for again it copies what is missing.
    pub(crate) async fn run<A: Actors>(&self, operator: &Operator<A>) -> Result<(), String> {
        let (class, from) = (&*self.class, &*self.from);
        operator.progress.step("looking at the shards");
        serve(class, self.shards, &operator.layouts(class, self.shards.count()).await?)?;
        let count = match self.from_shards {
            Some(shards) => shards,
            None => self.count(operator.layout(from, 0).await?)?,
        };
        serve(from, count, &operator.layouts(from, count.count()).await?)?;
        for shard in 0..count.count() {
            operator.progress.step(format!("copying shard {shard} of {}", count.count()));
            operator.copy((from, shard), (class, self.shards), !self.is_overwriting).await?;
        }
        operator.progress.step("all is copied");
        Ok(())
    }

    /// The number of shards of the class that is read.
    fn count(&self, layout: Layout) -> Result<Shards, String> {
        Shards::new(layout.shards).map_err(|_| {
            format!("{}/shard-0 has never been written, so it does not say how many shards there are: give their number", self.from)
        })
    }
}

/// Rows on their way within a class would be missed, and so would be those of shards that are not asked.
fn serve(class: &str, shards: Shards, layouts: &[Layout]) -> Result<(), String> {
    for layout in layouts {
        match layout.phase {
            Phase::Moving(to) | Phase::Moved(to) => {
                return Err(format!("a move of the keys of {class} to {to} shards has begun: finish it first"));
            }
            Phase::Open if layout.shards == 0 || layout.shards == shards.count() => {}
            Phase::Open => return Err(format!("{class} has {} shards, not {}", layout.shards, shards.count())),
        }
    }
    Ok(())
}
