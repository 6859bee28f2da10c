//! SQL on a stackful coroutine, so that a long statement lets its core go on.
//!
//! A statement runs on a pooled stack. SQLite's progress handler looks at the clock and the event's budget, suspends the
//! coroutine after a slice and interrupts the statement when the budget is used up. A suspended coroutine is never dropped: its
//! guard makes the handler interrupt and resumes it to its end, so that SQLite leaves the way it came.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::budget::EventBudget;
use super::memory::{self, Account};
use crate::limits::{COROUTINE_STACK_BYTES, COROUTINES_MAX, COROUTINES_POOLED_MAX, SQL_SLICE_NS};

thread_local! {
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// SQLite's progress handler runs once for so many of its instructions: about every 20 µs.
pub(super) const PROGRESS_INSTRUCTIONS: c_int = 1000;

/// What the progress handler of one connection looks at.
pub(super) struct Progress {
    budget: Rc<EventBudget>,
    yielder: Cell<*const Yielder<(), ()>>,
    slice_from_ns: Cell<u64>,
    charged_to_ns: Cell<u64>,
    stop: Cell<bool>,
}

impl Progress {
    pub(super) const fn new(budget: Rc<EventBudget>) -> Self {
        Self {
            budget,
            yielder: Cell::new(ptr::null()),
            slice_from_ns: Cell::new(0),
            charged_to_ns: Cell::new(0),
            stop: Cell::new(false),
        }
    }

    pub(super) const fn budget(&self) -> &Rc<EventBudget> {
        &self.budget
    }

    fn begin_slice(&self) {
        let now_ns = self.budget.clock().monotonic_ns();
        self.slice_from_ns.set(now_ns);
        self.charged_to_ns.set(now_ns);
    }

    /// Begins to count for a statement on the caller's stack; on a coroutine `run` has begun. Without this the time since the
    /// last statement would be charged.
    pub(super) fn begin_unsuspended(&self) {
        if self.yielder.get().is_null() {
            self.begin_slice();
        }
    }

    fn charge(&self) -> u64 {
        let now_ns = self.budget.clock().monotonic_ns();
        self.budget.charge(now_ns.saturating_sub(self.charged_to_ns.replace(now_ns)));
        now_ns
    }

    /// Whether no statement may begin any more.
    pub(super) fn must_end(&self) -> bool {
        self.stop.get() || self.budget.exhausted()
    }

    /// Whether the statement must end. Suspends when its slice is over.
    fn look(&self) -> bool {
        let now_ns = self.charge();
        let yielder = self.yielder.get();
        if !self.must_end() && !yielder.is_null() && now_ns.saturating_sub(self.slice_from_ns.get()) >= SQL_SLICE_NS {
            // SAFETY: `run` sets the yielder for the time its coroutine lives, and we are on that coroutine's stack.
            unsafe { (*yielder).suspend(()) };
            self.begin_slice();
        }
        self.must_end()
    }
}

/// The handler. Its argument is the connection's `Progress`.
pub(super) unsafe extern "C" fn handler(progress: *mut c_void) -> c_int {
    // SAFETY: the connection keeps its `Progress` in a box for as long as SQLite may call this.
    let progress = unsafe { &*progress.cast::<Progress>() };
    c_int::from(progress.look())
}

/// A coroutine that is under way.
struct Running<'a, T> {
    coroutine: Option<Coroutine<(), (), T, DefaultStack>>,
    progress: &'a Progress,
    account: &'a Account,
}

impl<T> Running<'_, T> {
    fn resume(&mut self) -> CoroutineResult<(), T> {
        let _account = memory::enter(self.account);
        match &mut self.coroutine {
            Some(coroutine) => coroutine.resume(()),
            None => unreachable!("taken only by drop"),
        }
    }
}

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        self.progress.stop.set(true);
        while self.coroutine.as_ref().is_some_and(|coroutine| coroutine.started() && !coroutine.done()) {
            let _ended = self.resume();
        }
        self.progress.stop.set(false);
        self.progress.yielder.set(ptr::null());
        RUNNING.set(RUNNING.get() - 1);
        if let Some(coroutine) = self.coroutine.take()
            && coroutine.done()
        {
            let stack = coroutine.into_stack();
            STACKS.with_borrow_mut(|stacks| {
                if stacks.len() < COROUTINES_POOLED_MAX {
                    stacks.push(stack);
                }
            });
        }
    }
}

/// Runs `work`, which calls SQLite, in slices. Dropping the future ends the work first.
pub(super) async fn run<T>(progress: &Progress, account: &Account, work: impl FnOnce() -> T) -> T {
    while RUNNING.get() >= COROUTINES_MAX {
        tokio::task::yield_now().await;
    }
    let stack = STACKS.with_borrow_mut(Vec::pop);
    let stack = match stack {
        Some(stack) => stack,
        None => match DefaultStack::new(COROUTINE_STACK_BYTES) {
            Ok(stack) => stack,
            // No memory for a stack: the statement runs on ours, unsuspended, within its budget.
            Err(_) => {
                let _account = memory::enter(account);
                progress.begin_slice();
                return work();
            }
        },
    };
    RUNNING.set(RUNNING.get() + 1);
    let body = |yielder: &Yielder<(), ()>, ()| {
        progress.yielder.set(yielder);
        progress.begin_slice();
        let result = work();
        progress.charge();
        result
    };
    // SAFETY: what `body` borrows outlives `running`, whose drop drives the coroutine to its end; the future that holds both is
    // never forgotten: its owner is a task or an instance's call, and both drop theirs.
    let coroutine = unsafe { Coroutine::with_stack_unchecked(stack, body) };
    let mut running = Running { coroutine: Some(coroutine), progress, account };
    loop {
        match running.resume() {
            CoroutineResult::Return(result) => return result,
            CoroutineResult::Yield(()) => tokio::task::yield_now().await,
        }
    }
}
