//! Measures the time a guest computes, so that waiting costs it nothing.
//!
//! The clock runs while the future of a guest's call is being polled: that is when guest code and the host functions it calls
//! run. It stops while the call waits (a suspended import, a yield to other actors) and while SQLite runs, which draws on the
//! same budget by its own measure.

use super::sql::EventBudget;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use wasmkeep_storage::clock::Clock;

/// One instance's stopwatch over its events' CPU budget.
pub(crate) struct Meter {
    clock: Clock,
    budget: Rc<EventBudget>,
    since_ns: Cell<u64>,
}

impl Meter {
    pub(crate) fn new(clock: Clock, budget: Rc<EventBudget>) -> Self {
        Self { clock, budget, since_ns: Cell::new(0) }
    }

    fn start(&self) {
        self.since_ns.set(self.clock.monotonic_ns());
    }

    /// Charges what has run since the last charge or start.
    fn charge(&self) {
        let now_ns = self.clock.monotonic_ns();
        self.budget.charge(now_ns.saturating_sub(self.since_ns.replace(now_ns)));
    }

    /// Charges what has run so far and says whether anything is left. Called from within guest code.
    pub(crate) fn may_go_on(&self) -> bool {
        self.charge();
        !self.budget.exhausted()
    }

    /// Runs a call into the guest with the clock running.
    pub(crate) async fn metered<F: Future>(&self, call: F) -> F::Output {
        let mut call = pin!(call);
        poll_fn(|cx| {
            self.start();
            let poll = call.as_mut().poll(cx);
            self.charge();
            poll
        })
        .await
    }

    /// Runs host work, within a call into the guest, that is measured by itself.
    pub(crate) async fn unmetered<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.charge();
            let poll = work.as_mut().poll(cx);
            self.start();
            poll
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::yield_now;

    #[test]
    fn computing_is_charged_and_waiting_is_not() {
        let (clock, hand) = Clock::manual();
        let budget = Rc::new(EventBudget::new(clock.clone(), 10_000_000));
        let meter = Meter::new(clock, Rc::clone(&budget));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let guest = meter.metered(async {
            hand.advance_ms(4);
            assert!(meter.may_go_on());
            meter
                .unmetered(async {
                    hand.advance_ms(1_000);
                    yield_now().await;
                    hand.advance_ms(1_000);
                })
                .await;
            yield_now().await;
            hand.advance_ms(5);
            assert!(meter.may_go_on(), "9 ms of 10 are used");
            hand.advance_ms(1);
            assert!(!meter.may_go_on(), "10 ms of 10 are used");
        });
        let world = async {
            for _ in 0..8 {
                hand.advance_ms(1_000);
                yield_now().await;
            }
        };
        runtime.block_on(async { tokio::join!(guest, world) });
        assert!(budget.exhausted());
    }
}
