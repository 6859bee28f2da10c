//! Where an outcome goes once it may leave.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use wasmkeep_storage::{Address, Positions};

use crate::event::Outcome;

/// Who waits for an event's outcome. How it must be gated follows from who it is.
pub(crate) enum ReplyTo {
    /// A connection of this core: outside, so the outcome waits at the gate.
    Connection(Rc<Slot<Outcome>>),
    /// An actor of this core that called: the outcome goes at once and carries the callee's positions.
    Caller(Rc<Slot<(Outcome, Positions)>>),
    /// Another core: outside this core's log, so the outcome waits at the gate.
    Core {
        /// Which core.
        core: usize,
        /// Its number for the request.
        slot: u64,
    },
    /// The operator: outside, so the outcome waits at the gate.
    Operator(tokio::sync::oneshot::Sender<Outcome>),
    /// Nobody: it is the alarm of this actor of this core.
    Alarm(Address),
}

/// A place for one value on one thread: filled once, awaited once. Dropping the waiter is fine; the value is then dropped too.
pub(crate) struct Slot<T> {
    state: RefCell<State<T>>,
}

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Slot<T> {
    /// An empty one.
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self { state: RefCell::new(State { value: None, waker: None }) })
    }

    /// Fills it and wakes the waiter. A second value is dropped: the first outcome of an event is its outcome.
    pub(crate) fn fill(&self, value: T) {
        let mut state = self.state.borrow_mut();
        if state.value.is_none() {
            state.value = Some(value);
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
    }
}

/// Waits for a slot.
pub(crate) struct Wait<T>(pub(crate) Rc<Slot<T>>);

impl<T> Future for Wait<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.state.borrow_mut();
        match state.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                match &mut state.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    empty => *empty = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}
