//! The pump: the one place where a core is woken.
//!
//! It takes everything that waits, in the order it came, then ends the turn: the journal may write what was committed. It runs no
//! guest. Woken once, it lands behind the tasks that were ready with it, so that what came in one turn of the executor is taken
//! together.

use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio::time::Interval;
use wasmkeep_storage::Lsn;
use wasmkeep_storage::store::Progress;

use super::actor::{self, Actor, Stop};
use super::reply::ReplyTo;
use super::wake::{Event, Remote, Wake, Work};
use super::{Core, operator, seconds};
use crate::event::{Outcome, Problem};
use crate::limits::{EVENTS_PER_CORE_MAX, WAKES_PER_TURN_MAX};

/// Runs for as long as the core.
pub(super) async fn run(core: Rc<Core>, mut remote: mpsc::Receiver<Remote>, mut sweep: Interval) {
    loop {
        std::future::poll_fn(|cx| core.poll_turn(cx, &mut remote, &mut sweep)).await;
        core.store.cut();
    }
}

/// Sends what waits for another core.
pub(super) async fn send_to(core: Rc<Core>, other: usize, sender: mpsc::Sender<Remote>) {
    loop {
        let next = core.outboxes[other].queue.borrow_mut().pop_front();
        match next {
            Some(remote) => {
                if sender.send(remote).await.is_err() {
                    return;
                }
            }
            None => core.outboxes[other].filled.notified().await,
        }
    }
}

impl Core {
    /// Takes what waits. Ready when a turn has to be ended.
    fn poll_turn(self: &Rc<Self>, cx: &mut Context<'_>, remote: &mut mpsc::Receiver<Remote>, sweep: &mut Interval) -> Poll<()> {
        let mut taken = 0;
        while taken < WAKES_PER_TURN_MAX
            && let Some(wake) = self.next_wake(cx, remote, sweep)
        {
            self.take(wake);
            taken += 1;
        }
        if self.turn_wanted.take() || taken > 0 {
            return Poll::Ready(());
        }
        self.pump.replace(Some(cx.waker().clone()));
        Poll::Pending
    }

    fn next_wake(&self, cx: &mut Context<'_>, remote: &mut mpsc::Receiver<Remote>, sweep: &mut Interval) -> Option<Wake> {
        if let Poll::Ready(progress) = self.store.poll_progress(cx) {
            return Some(Wake::Journal(progress));
        }
        let local = self.inbox.borrow_mut().pop_front();
        if local.is_some() {
            return local;
        }
        if let Poll::Ready(Some(remote)) = remote.poll_recv(cx) {
            return Some(from_remote(remote));
        }
        if let Poll::Ready(alarm) = self.poll_alarm(cx) {
            return Some(alarm);
        }
        sweep.poll_tick(cx).is_ready().then_some(Wake::Sweep)
    }

    fn take(self: &Rc<Self>, wake: Wake) {
        match wake {
            Wake::Event(event) => self.take_event(event),
            Wake::Reply { slot, outcome } => {
                if let Some(slot) = self.slots.borrow_mut().remove(&slot) {
                    slot.fill(outcome);
                }
            }
            Wake::Journal(progress) => self.take_progress(progress),
            Wake::Alarm(address) => self.take_event(self.alarm_event(address)),
            Wake::Sweep => self.sweep(),
            Wake::Question(question) => operator::answer(self, question),
        }
    }

    /// Puts an event into its actor's mailbox, and wakes the actor if it sleeps.
    fn take_event(self: &Rc<Self>, event: Box<Event>) {
        if self.is_lost(event.positions) {
            // It was on its way when a group failed; its caller is broken.
            return self.deliver(event.reply, Outcome::Problem(Problem::UnknownOutcome));
        }
        let Some(class) = self.classes.get(&event.address.class) else {
            let problem = Problem::UnknownClass(event.address.class.to_string());
            return self.deliver(event.reply, Outcome::Problem(problem));
        };
        if let Some(problem) = class.refusal(&event) {
            return self.deliver(event.reply, Outcome::Problem(problem));
        }
        if self.events.get() >= EVENTS_PER_CORE_MAX {
            class.metrics.mailbox_rejected.increment(1);
            return self.deliver(event.reply, Outcome::Problem(Problem::MailboxFull));
        }
        let known = self.actors.borrow().get(&event.address).cloned();
        let is_new = known.is_none();
        let actor = known.unwrap_or_else(|| Actor::new(self, event.address.clone(), Rc::clone(class)));
        match actor.push(event) {
            Ok(()) => self.events.set(self.events.get() + 1),
            Err(event) => {
                class.metrics.mailbox_rejected.increment(1);
                self.deliver(event.reply, Outcome::Problem(Problem::MailboxFull));
            }
        }
        if is_new {
            self.actors.borrow_mut().insert(actor.address.clone(), Rc::clone(&actor));
            tokio::task::spawn_local(actor::live(Rc::clone(self), actor));
        }
    }

    fn take_progress(&self, progress: Progress) {
        self.store.take_flushes(|flush| {
            self.metrics.journal_flush_seconds.record(seconds(flush.ns));
            #[expect(clippy::cast_precision_loss, reason = "a sample; 2^53 records are more than any group has")]
            self.metrics.journal_group_commits.record(flush.records as f64);
        });
        match progress {
            Progress::Durable(durable) => {
                let open = self.gates.borrow_mut().open(durable);
                self.release(open);
            }
            Progress::Failed { durable } => self.fail(durable),
            Progress::Restarted => self.reread_alarms(),
            Progress::RestartFailed => {}
        }
        self.room.notify_waiters();
    }

    /// A group failed. What waits behind it is unknown, and exactly the actors that saw what was lost are broken.
    fn fail(&self, durable: Lsn) {
        self.lost.set((durable, self.store.newest()));
        let (open, lost) = {
            let mut gates = self.gates.borrow_mut();
            (gates.open(durable), gates.fail())
        };
        self.release(open);
        self.release(lost);
        for actor in self.actors.borrow().values() {
            for event in actor.remove_events(|event| self.is_lost(event.positions)) {
                self.finish(&actor.class, event.reply, event.positions, Outcome::Problem(Problem::UnknownOutcome));
            }
            if actor.positions().seen > durable {
                self.breaking.set(self.breaking.get() + 1);
                actor.stop(Stop::Broken);
            }
        }
        self.restart_if_all_broken();
    }

    /// A broken actor has let go of what was lost.
    pub(super) fn has_broken(&self) {
        self.breaking.set(self.breaking.get() - 1);
        self.restart_if_all_broken();
    }

    fn restart_if_all_broken(&self) {
        if self.breaking.get() == 0 {
            self.store.restart();
            self.want_turn();
        }
    }

    /// Looks at everything that has a time, a few times a second.
    fn sweep(&self) {
        self.store.sweep();
        let now_ns = self.now_ns();
        let late = self.gates.borrow_mut().expire(now_ns);
        self.release(late);
        let idle_ns = u64::try_from(self.config.budgets.idle.as_nanos()).unwrap_or(u64::MAX);
        let durable = self.store.durable();
        let (mut loaded, mut running) = (0_u32, 0_u32);
        for actor in self.actors.borrow().values() {
            loaded += 1;
            running += u32::from(actor.is_running());
            for event in actor.remove_events(|event| event.deadline_ns <= now_ns) {
                self.finish(&actor.class, event.reply, event.positions, Outcome::Problem(Problem::Deadline));
            }
            if actor.is_past_deadline(now_ns) {
                actor.stop(Stop::Deadline);
            } else if actor.idle_ns(now_ns) >= idle_ns && actor.positions().seen <= durable {
                actor.stop(Stop::Hibernate);
            }
        }
        let stats = self.store.stats();
        self.metrics.actors_loaded.set(f64::from(loaded));
        self.metrics.actors_running.set(f64::from(running));
        #[expect(clippy::cast_precision_loss, reason = "a gauge; 2^53 bytes are more than any journal")]
        self.metrics.journal_used_bytes.set(stats.journal_used_bytes as f64);
        self.metrics.journal_bytes.absolute(stats.journal_written_bytes);
        self.metrics.checkpoint_pages.absolute(stats.pages_checkpointed);
        self.room.notify_waiters();
        self.give_memory_back(loaded as usize);
    }
}

fn from_remote(remote: Remote) -> Wake {
    match remote {
        Remote::Request { from, slot, address, request, caller, chain, deadline_ns } => Wake::Event(Box::new(Event {
            address,
            work: Work::Request(request),
            caller,
            chain,
            // Another core's log is not ours: the request left there only once what its sender had seen was durable.
            positions: wasmkeep_storage::Positions::default(),
            deadline_ns,
            reply: ReplyTo::Core { core: from, slot },
        })),
        Remote::Reply { slot, outcome } => Wake::Reply { slot, outcome },
        Remote::Question(question) => Wake::Question(question),
    }
}
