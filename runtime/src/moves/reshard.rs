//! A class into another number of shards.
//!
//! From n to m, each step durable in the shards before the next: shards that only the new number has are emptied; all old ones
//! refuse writes, and their rows are copied; all old ones refuse everything, and are freed of what is no longer theirs; all new
//! ones serve; the data directory keeps m. What was found of it at the start says where an earlier attempt ended.

use wasmkeep_classes::kv::{Layout, Phase, Shards, shard_name};

use super::Operator;
use crate::http::Actors;

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) struct Reshard {
    pub(crate) class: String,
    /// The number that the data directory has.
    pub(crate) old: Shards,
    pub(crate) new: Shards,
}

/// What is left to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plan {
    /// All shards serve as asked.
    Nothing,
    /// All of it.
    Copy,
    /// Every row is copied; some shards may serve already.
    Switch,
    /// A copy to so many shards has begun, and is given up for the number there was.
    Cancel(u32),
}

/// What the layouts of old and new shards say.
fn plan(layouts: &[Layout], old: Shards, new: Shards) -> Result<Plan, String> {
    let (n, m) = (old.count(), new.count());
    let (mut copying, mut switching) = (None, None);
    for layout in layouts.iter().take(n as usize) {
        match layout.phase {
            Phase::Moving(to) => copying = Some(to),
            Phase::Moved(to) => switching = Some(to),
            Phase::Open if layout.shards == n || layout.shards == 0 => {}
            Phase::Open => switching = Some(layout.shards),
        }
    }
    let begun = |to: u32, how: &str| Err(format!("a move of the keys to {to} shards has begun: finish it with {to} shards{how}"));
    match (switching, copying) {
        (Some(to), _) if to != m => begun(to, ", then ask for another number"),
        (Some(_), Some(to)) if n == m => Ok(Plan::Cancel(to)),
        (Some(_), None) if n == m => Ok(Plan::Cancel(n)),
        (Some(_), _) => Ok(Plan::Switch),
        (None, Some(to)) if n == m => Ok(Plan::Cancel(to)),
        (None, Some(to)) if to != m => begun(to, &format!(", or give it up with {n}")),
        (None, None) if n == m => Ok(Plan::Nothing),
        (None, _) => Ok(Plan::Copy),
    }
}

impl Reshard {
    /// Does what is left of it. The class has the new number of shards when this returns; whoever keeps numbers is to be told.
    ///
    /// # Errors
    /// Why it stopped, for people. Nothing is lost; asked for again it goes on.
    pub(crate) async fn run<A: Actors>(&self, operator: &Operator<A>) -> Result<(), String> {
        let class = &*self.class;
        operator.progress.step("looking at the shards");
        let layouts = operator.layouts(class, self.old.count().max(self.new.count())).await?;
        match plan(&layouts, self.old, self.new)? {
            Plan::Nothing => return Ok(()),
            Plan::Copy => {
                self.empty_new(operator, &layouts).await?;
                self.copy(operator).await?;
            }
            Plan::Cancel(begun) => {
                for shard in self.old.count()..begun {
                    self.empty(operator, shard).await?;
                }
            }
            Plan::Switch => return self.switch(operator, &layouts).await,
        }
        self.switch(operator, &[]).await
    }

    /// Rows in shards that no client of the old number asks are those of a copy that was given up, or a stranger's.
    async fn empty_new<A: Actors>(&self, operator: &Operator<A>, layouts: &[Layout]) -> Result<(), String> {
        let class = &*self.class;
        let added: Vec<u32> = (self.old.count()..self.new.count()).collect();
        for (shard, layout) in added.iter().zip(layouts.iter().skip(self.old.count() as usize)) {
            if layout.phase == Phase::Open && !operator.is_empty(class, *shard).await? {
                return Err(format!(
                    "{class}/{} has rows, and no client of {} shards has written them: move them elsewhere and delete them first",
                    shard_name(*shard),
                    self.old.count()
                ));
            }
        }
        for shard in added {
            operator.progress.step(format!("emptying shard {shard}"));
            self.empty(operator, shard).await?;
        }
        Ok(())
    }

    /// Empties a shard that is none among the old ones.
    async fn empty<A: Actors>(&self, operator: &Operator<A>, shard: u32) -> Result<(), String> {
        operator.set(&self.class, shard, Phase::Moved(self.old.count()), self.old).await?;
        operator.prune(&self.class, shard, self.old).await
    }

    async fn copy<A: Actors>(&self, operator: &Operator<A>) -> Result<(), String> {
        let (class, n) = (&*self.class, self.old.count());
        operator.progress.step("stopping writes");
        for shard in 0..n {
            operator.set(class, shard, Phase::Moving(self.new.count()), self.new).await?;
        }
        for shard in 0..n {
            operator.progress.step(format!("copying shard {shard} of {n}"));
            // What an earlier attempt has copied is the same: nothing has been written since.
            operator.copy((class, shard), (class, self.new), true).await?;
        }
        Ok(())
    }

    /// From the old shards to the new ones, leaving alone those that were found to serve as new ones since an earlier attempt.
    async fn switch<A: Actors>(&self, operator: &Operator<A>, found: &[Layout]) -> Result<(), String> {
        let (class, m) = (&*self.class, self.new.count());
        let is_done =
            |shard: u32| found.get(shard as usize).is_some_and(|layout| layout.phase == Phase::Open && layout.shards == m);
        operator.progress.step("stopping reads");
        for shard in (0..self.old.count()).filter(|shard| !is_done(*shard)) {
            operator.set(class, shard, Phase::Moved(m), self.new).await?;
        }
        for shard in (0..self.old.count()).filter(|shard| !is_done(*shard)) {
            operator.progress.step(format!("deleting from shard {shard} what is no longer its own"));
            operator.prune(class, shard, self.new).await?;
        }
        operator.progress.step("opening the shards");
        for shard in (0..m).filter(|shard| !is_done(*shard)) {
            operator.set(class, shard, Phase::Open, self.new).await?;
        }
        operator.progress.step("all shards serve");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts(of: &[(Phase, u32)]) -> Vec<Layout> {
        of.iter().map(|(phase, shards)| Layout { phase: *phase, shards: *shards }).collect()
    }

    fn planned(of: &[(Phase, u32)], n: u32, m: u32) -> Result<Plan, String> {
        plan(&layouts(of), Shards::new(n).expect("valid"), Shards::new(m).expect("valid"))
    }

    #[test]
    fn where_an_earlier_attempt_ended_says_what_is_left() {
        use Phase::{Moved, Moving, Open};
        assert_eq!(planned(&[(Open, 2), (Open, 0), (Open, 0)], 2, 3), Ok(Plan::Copy));
        assert_eq!(planned(&[(Moving(3), 2), (Open, 2), (Moved(2), 2)], 2, 3), Ok(Plan::Copy));
        assert_eq!(planned(&[(Moving(3), 2), (Moved(3), 2), (Moved(2), 2)], 2, 3), Ok(Plan::Switch));
        assert_eq!(planned(&[(Open, 3), (Moved(3), 2), (Open, 3)], 2, 3), Ok(Plan::Switch));
        assert_eq!(planned(&[(Open, 1), (Moved(1), 2)], 2, 1), Ok(Plan::Switch));
        assert_eq!(planned(&[(Open, 2), (Open, 0)], 2, 2), Ok(Plan::Nothing));
        assert_eq!(planned(&[(Open, 2), (Moving(5), 2)], 2, 2), Ok(Plan::Cancel(5)));
        assert_eq!(planned(&[(Moved(2), 2), (Moving(5), 2)], 2, 2), Ok(Plan::Cancel(5)));
        assert_eq!(planned(&[(Moved(2), 2), (Open, 2)], 2, 2), Ok(Plan::Cancel(2)));
    }

    #[test]
    fn a_move_to_another_number_has_to_be_finished_or_given_up_first() {
        use Phase::{Moved, Moving, Open};
        let words = planned(&[(Moving(5), 2), (Open, 2), (Open, 0)], 2, 3).expect_err("another move");
        assert_eq!(words, "a move of the keys to 5 shards has begun: finish it with 5 shards, or give it up with 2");
        for found in [[(Moved(5), 2), (Moving(5), 2)], [(Open, 5), (Moved(5), 2)]] {
            for m in [1, 2, 3] {
                let words = planned(&found, 2, m).expect_err("it cannot be given up any more");
                assert_eq!(words, "a move of the keys to 5 shards has begun: finish it with 5 shards, then ask for another number");
            }
        }
    }
}
