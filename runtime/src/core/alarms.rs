//! Alarms: the one event that an actor sends to itself for later.
//!
//! Records in the log are the only truth of an alarm (`Meta`); this module keeps in memory when the next ones are due, takes in
//! what a run has set once that run has ended, and brings an alarm that is due to its actor. What is kept here may be wrong, after
//! a lost group for example: whether an alarm is due is decided from the actor's facts when it is the actor's turn.
//!
//! An alarm comes at least once. Its attempt is counted durably before the guest runs, so that an alarm that brings the node down
//! is known as one; it is cleared when the guest has succeeded, and put off otherwise.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::watch;
use wasmkeep_storage::store::{Alarm, Meta};
use wasmkeep_storage::{Address, Positions, Refused, StorageError};

use super::Core;
use super::actor::Actor;
use super::reply::ReplyTo;
use super::wake::{Event, Wake, Work};
use crate::event::{Outcome, Problem};
use crate::limits::{ALARM_RETRY_MS_MAX, ALARM_RETRY_MS_MIN, ALARMS_KEPT_MAX, ALARMS_LOOK_AHEAD_MS, EVENTS_PER_CORE_MAX};
use crate::node;

/// When the next alarms of a core are due.
#[derive(Default)]
pub(super) struct Alarms {
    due: BTreeSet<(u64, Address)>,
    by_actor: HashMap<Address, u64>,
    /// Alarms after this, Unix ms, are in the store only; `keep` fetches them in time.
    horizon_ms: u64,
    /// The node stops: none comes any more.
    stopped: bool,
    /// Wakes the pump when the first is due, and what it is set to.
    timer: Option<(u64, Pin<Box<tokio::time::Sleep>>)>,
}

impl Alarms {
    /// Takes in when an actor's alarm is due, in place of what was known.
    fn set(&mut self, address: &Address, at_ms: Option<u64>) {
        if let Some(old) = self.by_actor.remove(address) {
            self.due.remove(&(old, address.clone()));
        }
        let Some(at_ms) = at_ms.filter(|at_ms| *at_ms <= self.horizon_ms && !self.stopped) else { return };
        self.due.insert((at_ms, address.clone()));
        self.by_actor.insert(address.clone(), at_ms);
        if self.due.len() > ALARMS_KEPT_MAX
            && let Some((at_ms, last)) = self.due.pop_last()
        {
            self.by_actor.remove(&last);
            self.horizon_ms = at_ms.saturating_sub(1);
        }
    }

    /// Takes out one that is due. Registers for the time at which the next one is.
    fn poll_due(&mut self, cx: &mut Context<'_>, now_ms: u64) -> Poll<Address> {
        loop {
            let Some(at_ms) = self.due.first().map(|(at_ms, _)| *at_ms) else {
                self.timer = None;
                return Poll::Pending;
            };
            if at_ms <= now_ms
                && let Some((_, address)) = self.due.pop_first()
            {
                self.by_actor.remove(&address);
                return Poll::Ready(address);
            }
            // A clock that was set anew is noticed at the next sweep, which looks here again.
            let left = Duration::from_millis(at_ms - now_ms);
            let (set_to, timer) = self.timer.get_or_insert_with(|| (at_ms, Box::pin(tokio::time::sleep(left))));
            if *set_to == at_ms && timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            // Set to another time, or a little early.
            self.timer = None;
        }
    }
}

/// What an event has done to its actor's alarm, for as long as it runs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Wish {
    /// Nothing.
    #[default]
    None,
    Set(u64),
    Clear,
}

/// Why an event was run, as far as the alarm is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// The alarm, as it stood before this attempt.
    Alarm(Alarm),
    Other,
}

impl Core {
    /// One alarm that is due and can be taken; the rest wait for their turn.
    pub(super) fn poll_alarm(&self, cx: &mut Context<'_>) -> Poll<Wake> {
        if self.events.get() >= EVENTS_PER_CORE_MAX / 2 {
            return Poll::Pending;
        }
        self.alarms.borrow_mut().poll_due(cx, self.clock.wall_ms()).map(Wake::Alarm)
    }

    /// The event of an alarm that is due.
    pub(super) fn alarm_event(&self, address: Address) -> Box<Event> {
        Box::new(Event {
            reply: ReplyTo::Alarm(address.clone()),
            address,
            work: Work::Alarm,
            caller: None,
            chain: Vec::new(),
            positions: Positions::default(),
            deadline_ns: self.now_ns().saturating_add(self.event_wall_ns()),
        })
    }

    /// An alarm's event has ended. One that could not even be tried comes again.
    pub(super) fn alarm_ended(&self, address: &Address, outcome: &Outcome) {
        let is_known = self.alarms.borrow().by_actor.contains_key(address);
        if matches!(outcome, Outcome::Problem(_)) && !is_known && self.classes.contains_key(&address.class) {
            let at_ms = self.clock.wall_ms().saturating_add(ALARM_RETRY_MS_MIN);
            self.alarms.borrow_mut().set(address, Some(at_ms));
        }
    }

    /// Whether what is due may be begun.
    pub(super) fn may_push(&self) -> bool {
        !self.alarms.borrow().stopped
    }

    /// What was lost may have been an alarm, or the clearing of one: all are read again.
    pub(super) fn reread_alarms(&self) {
        self.alarms.borrow_mut().horizon_ms = 0;
        self.alarms_wanted.notify_one();
    }
}

/// Keeps in memory what is due soon. Runs for as long as the core.
pub(super) async fn keep(core: Rc<Core>) {
    loop {
        let horizon_ms = core.alarms.borrow().horizon_ms;
        let now_ms = core.clock.wall_ms();
        let early_ms = ALARMS_LOOK_AHEAD_MS / 4;
        if core.alarms.borrow().stopped {
            return;
        }
        if horizon_ms < now_ms.saturating_add(early_ms)
            && let Err(error) = load(&core, now_ms.saturating_add(ALARMS_LOOK_AHEAD_MS)).await
        {
            tracing::error!(core = core.index, %error, "alarms that are due could not be read; they are tried again");
        }
        // Not for as long as it might: a clock that was set forward must be noticed. With more alarms than are kept the horizon is
        // near.
        let pause_ms = core.alarms.borrow().horizon_ms.saturating_sub(core.clock.wall_ms()).clamp(1_000, 60_000);
        let pause = tokio::time::sleep(Duration::from_millis(pause_ms));
        tokio::select! {
            () = pause => {}
            () = core.alarms_wanted.notified() => {}
        }
    }
}

/// Once the node stops, what comes due stays for its next start.
pub(super) async fn end_with(core: Rc<Core>, mut stop: watch::Receiver<node::Stop>) {
    let _or_the_node_is_gone = stop.wait_for(|stop| *stop != node::Stop::No).await;
    *core.alarms.borrow_mut() = Alarms { stopped: true, ..Alarms::default() };
}

/// Reads alarms due until `until_ms`, partition by partition, so that others run in between.
async fn load(core: &Core, until_ms: u64) -> Result<(), StorageError> {
    while core.store.is_failed() {
        core.room.notified().await;
    }
    // From here on what runs set is taken in.
    core.alarms.borrow_mut().horizon_ms = until_ms;
    take_in(core, core.store.recent_alarms(until_ms));
    for partition in core.store.partitions() {
        let found =
            core.store.alarms(partition, until_ms, ALARMS_KEPT_MAX).inspect_err(|_| core.alarms.borrow_mut().horizon_ms = 0)?;
        take_in(core, found);
        tokio::task::yield_now().await;
    }
    Ok(())
}

fn take_in(core: &Core, found: Vec<(u64, Address)>) {
    for (at_ms, address) in found {
        // An awake actor knows better and has said so; a class that is not served keeps its alarms for when it is again.
        let is_awake = core.actors.borrow().get(&address).is_some_and(|actor| actor.connection.borrow().is_some());
        if !is_awake && core.classes.contains_key(&address.class) {
            core.alarms.borrow_mut().set(&address, Some(at_ms));
        }
    }
    core.wake_pump();
}

/// How long an alarm is put off after so many attempts, ms.
fn retry_ms(attempts: u32) -> u64 {
    let doubled = ALARM_RETRY_MS_MIN.checked_shl(attempts.saturating_sub(1).min(32)).unwrap_or(ALARM_RETRY_MS_MAX);
    doubled.min(ALARM_RETRY_MS_MAX)
}

/// An actor's facts were read: from now on it says itself when its alarm is due.
pub(super) fn loaded(core: &Core, actor: &Actor, meta: Meta) {
    actor.meta.set(meta);
    if let Some(alarm) = meta.alarm
        && !actor.has_alarm_waiting()
    {
        core.alarms.borrow_mut().set(&actor.address, Some(alarm.at_ms));
        core.wake_pump();
    }
}

/// The alarm that an actor is to run now, its attempt counted durably; `None` if none is due.
pub(super) async fn begin(core: &Rc<Core>, actor: &Rc<Actor>) -> Result<Option<Alarm>, Problem> {
    let meta = actor.meta.get();
    let Some(alarm) = meta.alarm else { return Ok(None) };
    if alarm.at_ms > core.clock.wall_ms() {
        core.alarms.borrow_mut().set(&actor.address, Some(alarm.at_ms));
        core.wake_pump();
        return Ok(None);
    }
    let begun = Alarm { attempt: alarm.attempt.saturating_add(1), ..alarm };
    record(core, actor, Meta { alarm: Some(begun), ..meta }, true).map_err(|refused| refusal(&refused))?;
    core.want_turn();
    let lost = |_| Problem::Unavailable("the journal failed; try again".into());
    core.store.durable_at(actor.positions().gate).await.map_err(lost)?;
    Ok(Some(alarm))
}

/// An event has ended: records what it did to the alarm, and what became of the alarm that it was.
///
/// # Errors
/// What the event's outcome is instead, when the alarm it wanted could not be recorded.
pub(super) fn settle(core: &Core, actor: &Actor, cause: Cause, succeeded: bool) -> Result<(), Problem> {
    let wish = actor.wish.take();
    let meta = actor.meta.get();
    let generation = meta.alarm.map_or(0, |alarm| alarm.generation).wrapping_add(1);
    let (alarm, durable) = match (wish, cause) {
        (Wish::Set(at_ms), _) if succeeded => (Some(Alarm { at_ms, generation, attempt: 0 }), true),
        (Wish::Clear, _) if succeeded => (None, true),
        // Losing this in a crash means that the alarm comes once more.
        (_, Cause::Alarm(_)) if succeeded => (None, false),
        (_, Cause::Alarm(ran)) => {
            let attempt = ran.attempt.saturating_add(1);
            (Some(Alarm { at_ms: core.clock.wall_ms().saturating_add(retry_ms(attempt)), attempt, ..ran }), false)
        }
        _ => return Ok(()),
    };
    let recorded = if alarm == meta.alarm { Ok(()) } else { record(core, actor, Meta { alarm, ..meta }, durable) };
    // What is in the log counts, and if that is an alarm that was to be replaced it comes again.
    core.alarms.borrow_mut().set(&actor.address, actor.meta.get().alarm.map(|alarm| alarm.at_ms));
    core.wake_pump();
    recorded.map_err(|refused| refusal(&refused))
}

/// `on-init` of this version has succeeded; what it did to the alarm is part of that.
pub(super) fn initialised(core: &Core, actor: &Actor, version: u128) -> Result<(), Refused> {
    let meta = actor.meta.get();
    let (alarm, durable) = match actor.wish.get() {
        Wish::Set(at_ms) => (Some(Alarm { at_ms, generation: 0, attempt: 0 }), true),
        Wish::Clear => (None, true),
        Wish::None => (meta.alarm, false),
    };
    record(core, actor, Meta { init_version: version, alarm }, durable)?;
    core.alarms.borrow_mut().set(&actor.address, alarm.map(|alarm| alarm.at_ms));
    core.wake_pump();
    Ok(())
}

/// A batch of an actor that the node serves was committed: makes sure that it wakes by `at_ms`. An earlier alarm that is yet to
/// come stays, because it does no harm and another record would cost more.
///
/// # Errors
/// What the batch's outcomes are instead.
pub(super) fn keep_until(core: &Core, actor: &Actor, at_ms: Option<u64>, durable: bool) -> Result<(), Problem> {
    let meta = actor.meta.get();
    let now_ms = core.clock.wall_ms();
    let stays = |alarm: Alarm| alarm.at_ms > now_ms && at_ms.is_none_or(|at_ms| alarm.at_ms <= at_ms);
    let generation = meta.alarm.map_or(0, |alarm| alarm.generation).wrapping_add(1);
    let alarm = at_ms.map(|at_ms| Alarm { at_ms: at_ms.min(i64::MAX.cast_unsigned()), generation, attempt: 0 });
    let recorded = if meta.alarm == alarm || meta.alarm.is_some_and(stays) {
        Ok(())
    } else {
        record(core, actor, Meta { alarm, ..meta }, durable)
    };
    core.alarms.borrow_mut().set(&actor.address, actor.meta.get().alarm.map(|alarm| alarm.at_ms));
    core.wake_pump();
    recorded.map_err(|refused| refusal(&refused))
}

fn refusal(refused: &Refused) -> Problem {
    match refused {
        Refused::Full | Refused::TooLarge => Problem::StorageFull,
        Refused::Failed => Problem::UnknownOutcome,
    }
}

/// Writes an actor's facts to the log, as a write of its own.
fn record(core: &Core, actor: &Actor, meta: Meta, durable: bool) -> Result<(), Refused> {
    let lsn = core.store.record_meta(&actor.address, meta, durable)?;
    actor.meta.set(meta);
    actor.absorb(Positions { gate: if durable { lsn } else { Positions::default().gate }, seen: lsn });
    Ok(())
}

/// What the guest may do to its alarm.
pub(super) fn hooks(actor: &Rc<Actor>) -> (crate::wasm::SetAlarm, crate::wasm::GetAlarm) {
    let (set, get) = (Rc::downgrade(actor), Rc::downgrade(actor));
    let gone = || "the actor is gone".to_string();
    (
        Box::new(move |at_ms| {
            let actor = set.upgrade().ok_or_else(gone)?;
            // The catalog's numbers are signed; whoever sets an alarm beyond them means never.
            actor.wish.set(at_ms.map_or(Wish::Clear, |at_ms| Wish::Set(at_ms.min(i64::MAX.cast_unsigned()))));
            Ok(())
        }),
        Box::new(move || {
            let actor = get.upgrade().ok_or_else(gone)?;
            Ok(match (actor.wish.get(), actor.running_alarm.get()) {
                (Wish::Set(at_ms), _) => Some(at_ms),
                // The alarm that runs has come; it is none that is to come.
                (Wish::Clear, _) | (Wish::None, true) => None,
                (Wish::None, false) => actor.meta.get().alarm.map(|alarm| alarm.at_ms),
            })
        }),
    )
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn address(n: usize) -> Address {
        Address::new("a", &n.to_string())
    }

    #[test]
    fn pauses_double_from_a_second_to_five_minutes() {
        assert_eq!([1, 2, 3, 9, 10, 40, u32::MAX].map(retry_ms), [1_000, 2_000, 4_000, 256_000, 300_000, 300_000, 300_000]);
    }

    #[tokio::test]
    async fn the_earliest_comes_first_and_a_later_word_replaces_an_earlier_one() {
        let mut alarms = Alarms { horizon_ms: 1_000_000, ..Alarms::default() };
        alarms.set(&address(1), Some(30));
        alarms.set(&address(2), Some(20));
        alarms.set(&address(3), Some(10));
        alarms.set(&address(3), Some(40));
        alarms.set(&address(2), None);
        alarms.set(&address(4), Some(1_000_001));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(alarms.poll_due(cx, 29).is_pending());
        assert_eq!(alarms.poll_due(cx, 50), Poll::Ready(address(1)));
        assert_eq!(alarms.poll_due(cx, 50), Poll::Ready(address(3)));
        assert!(alarms.poll_due(cx, u64::MAX).is_pending() && alarms.by_actor.is_empty());
    }

    #[tokio::test]
    async fn more_than_are_kept_are_left_to_the_store_the_latest_first() {
        let mut alarms = Alarms { horizon_ms: u64::MAX, ..Alarms::default() };
        for n in 0..=ALARMS_KEPT_MAX {
            alarms.set(&address(n), Some(n as u64));
        }
        assert_eq!((alarms.due.len(), alarms.horizon_ms), (ALARMS_KEPT_MAX, ALARMS_KEPT_MAX as u64 - 1));
        assert_eq!(alarms.by_actor.len(), ALARMS_KEPT_MAX);
    }
}
