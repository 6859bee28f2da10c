//! Those who wait for a position to become durable.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::types::Lsn;

/// The position was in a group that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the position was lost with a failed group")]
pub struct Lost;

/// All waits of a core.
#[derive(Default)]
pub(crate) struct Waiters {
    waits: RefCell<Waits>,
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

    /// Ends all waits badly.
    pub(crate) fn fail(&self) {
        self.waits.borrow_mut().end(BTreeMap::new(), Err(Lost));
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
