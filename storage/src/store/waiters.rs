//! Those who wait for a position to become durable.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::limits::LOST_RANGES_MAX;
use crate::types::Lsn;

/// The position was in a group that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the position was lost with a failed group")]
pub struct Lost;

/// All waits of a core.
#[derive(Default)]
pub(crate) struct Waiters {
    waits: RefCell<Waits>,
    /// Positions that were lost: behind the first of each pair, up to the second. Ascending; no position is given out twice.
    lost: RefCell<VecDeque<(Lsn, Lsn)>>,
}

#[derive(Default)]
struct Waits {
    by_position: BTreeMap<(Lsn, u64), Option<Waker>>,
    ended: BTreeMap<u64, Result<(), Lost>>,
    count: u64,
}

impl Waiters {
    /// Ends the waits up to `durable` well.
    pub(crate) fn durable(&self, durable: Lsn) {
        let waits = &mut *self.waits.borrow_mut();
        let later = waits.by_position.split_off(&(durable.next(), 0));
        waits.end(later, Ok(()));
    }

    /// Ends all waits badly: everything behind `durable` is lost, up to `newest`.
    pub(crate) fn fail(&self, durable: Lsn, newest: Lsn) {
        self.lose(durable, newest);
        self.waits.borrow_mut().end(BTreeMap::new(), Err(Lost));
    }

    /// Remembers what is lost, also the position of an end of an epoch that could not be written.
    pub(crate) fn lose(&self, durable: Lsn, newest: Lsn) {
        let mut lost = self.lost.borrow_mut();
        match lost.back_mut() {
            Some((from, through)) if *from == durable => *through = newest,
            _ => lost.push_back((durable, newest)),
        }
        if lost.len() > LOST_RANGES_MAX
            && let Some((from, _)) = lost.pop_front()
            && let Some(next) = lost.front_mut()
        {
            // What was durable between the two is called lost from now on: the safe one of two wrong answers.
            next.0 = from;
        }
    }

    /// Whether a position was lost, however long ago.
    pub(crate) fn is_lost(&self, position: Lsn) -> bool {
        let lost = self.lost.borrow();
        let at = lost.partition_point(|(_, through)| *through < position);
        lost.get(at).is_some_and(|(from, _)| *from < position)
    }

    /// A future that ends when `position` is durable or lost. Dropping it is fine.
    pub(crate) fn wait(self: Rc<Self>, position: Lsn) -> Wait {
        let id = {
            let waits = &mut *self.waits.borrow_mut();
            waits.count += 1;
            waits.by_position.insert((position, waits.count), None);
            waits.count
        };
        Wait { waiters: self, position, id }
    }
}

impl Waits {
    fn end(&mut self, rest: BTreeMap<(Lsn, u64), Option<Waker>>, how: Result<(), Lost>) {
        for ((_, id), waker) in std::mem::replace(&mut self.by_position, rest) {
            self.ended.insert(id, how);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// See `Waiters::wait`.
pub(crate) struct Wait {
    waiters: Rc<Waiters>,
    position: Lsn,
    id: u64,
}

impl Future for Wait {
    type Output = Result<(), Lost>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let waits = &mut *self.waiters.waits.borrow_mut();
        match waits.ended.remove(&self.id) {
            Some(how) => Poll::Ready(how),
            None => {
                waits.by_position.insert((self.position, self.id), Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let waits = &mut *self.waiters.waits.borrow_mut();
        waits.by_position.remove(&(self.position, self.id));
        waits.ended.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_stays_lost_and_old_losses_are_remembered_as_one() {
        let waiters = Waiters::default();
        let failures = LOST_RANGES_MAX as u64 + 10;
        // Of every ten positions the last five are lost, the tenth to a restart that failed too.
        for ten in 0..failures {
            waiters.fail(Lsn(ten * 10 + 5), Lsn(ten * 10 + 9));
            waiters.lose(Lsn(ten * 10 + 5), Lsn(ten * 10 + 10));
        }
        let positions = 1..=failures * 10;
        assert!(positions.clone().all(|n| waiters.is_lost(Lsn(n)) || (1..=5).contains(&(n % 10))), "a lost one was forgotten");
        assert!(positions.filter(|n| *n > 200).all(|n| waiters.is_lost(Lsn(n)) == (n % 10 == 0 || n % 10 > 5)));
        assert_eq!(waiters.lost.borrow().len(), LOST_RANGES_MAX);
        assert!(!waiters.is_lost(Lsn(5)) && !waiters.is_lost(Lsn(failures * 10 + 1)));
    }
}
