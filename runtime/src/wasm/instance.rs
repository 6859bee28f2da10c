//! One resident actor's instance: runs its events, one after the other, and says how each ended.

use super::component::{Exports, Program};
use super::guest_log::{Level, cut};
use super::hooks::Hooks;
use super::http::{self, Handle, HandleError};
use super::limits::FAILURE_TEXT_BYTES_MAX;
use super::response::checked_response;
use super::sql::{Connection, EventBudget};
use super::state::HostState;
use super::types::{WitRequest, WitResponse};
use crate::event::{Request, Response};
use send_wrapper::SendWrapper;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use wasmkeep_storage::Address;
use wasmtime::component::{ComponentNamedList, Lift, Lower, TypedFunc};
use wasmtime::{PoolConcurrencyLimitError, Store, Trap, UpdateDeadline};
use wasmtime_wasi::I32Exit;

/// What an instance is made for.
pub struct ActorHost {
    /// Whose instance it is.
    pub address: Address,
    /// The class's settings; guests of wasi see them as environment variables too.
    pub env: Arc<BTreeMap<String, String>>,
    /// The actor's database.
    pub connection: Rc<Connection>,
    /// The CPU time of the event at hand. The caller resets it before each event, and before `Program::instantiate`, which
    /// runs guest code too. Aborting it ends the event at its next slice.
    pub budget: Rc<EventBudget>,
    /// Alarms and calls to other actors.
    pub hooks: Hooks,
    /// Bytes that all linear memories together may have.
    pub memory_bytes_max: usize,
}

/// Why an event of an instance has no result. The instance is dead then.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The guest trapped. The text is short and for people; the log has the guest's stack.
    #[error("{0}")]
    Trap(String),
    /// The event's CPU time ran out, or it was aborted.
    #[error("the event used up its CPU time")]
    CpuBudget,
    /// The guest trapped after a write of its was refused because storage is full: not its fault, and worth another try.
    #[error("the guest failed after storage was full")]
    StorageFull,
    /// The guest failed after it was refused memory.
    #[error("{0}")]
    Memory(String),
    /// The guest's answer is no HTTP response, or over a limit.
    #[error("the guest's response is unusable: {0}")]
    BadResponse(String),
    /// The instance was used after a failure; nothing ran.
    #[error("the instance has failed before")]
    Aborted,
    /// All instances of the engine are taken; nothing ran. Drop one and try again.
    #[error("the node holds as many resident actors as it can")]
    NoRoom,
}

/// An actor's resident instance. Belongs to the thread that made it.
pub struct Instance {
    store: Store<HostState>,
    entries: Entries,
    /// No event is running and none has failed.
    sound: bool,
}

/// The guest's functions, found once.
enum Entries {
    Actor { on_init: TypedFunc<(), ()>, on_request: TypedFunc<(WitRequest,), (WitResponse,)>, on_alarm: TypedFunc<(u32,), ()> },
    Http(Handle),
}

impl Program {
    /// Makes an instance of this component for one actor, on the thread that will run it, within a tokio runtime.
    pub async fn instantiate(&self, host: ActorHost) -> Result<Instance, Failure> {
        let clock = self.engine().clock();
        let mut store = Store::new(self.engine().wasmtime(), HostState::new(host, clock));
        store.limiter(|state| &mut state.limiter);
        interrupt_each_slice(&mut store);
        let meter = Rc::clone(&store.data().local.meter);
        let instance = match meter.metered(self.prelinked().instantiate_async(&mut store)).await {
            Ok(instance) => instance,
            Err(error) => return Err(classify(&store, &error)),
        };
        let entries = self.entries(&mut store, instance).map_err(|error| classify(&store, &error))?;
        store.data_mut().end_event();
        Ok(Instance { store, entries, sound: true })
    }

    fn entries(&self, store: &mut Store<HostState>, instance: wasmtime::component::Instance) -> wasmtime::Result<Entries> {
        Ok(match self.exports() {
            Exports::Actor { on_init, on_request, on_alarm } => Entries::Actor {
                on_init: instance.get_typed_func(&mut *store, on_init)?,
                on_request: instance.get_typed_func(&mut *store, on_request)?,
                on_alarm: instance.get_typed_func(&mut *store, on_alarm)?,
            },
            Exports::Http { handle } => Entries::Http(instance.get_typed_func(&mut *store, handle)?),
        })
    }
}

/// At every tick guest code lets the other actors of its core go on, or ends when its event's time is used up.
fn interrupt_each_slice(store: &mut Store<HostState>) {
    let meter = SendWrapper::new(Rc::clone(&store.data().local.meter));
    store.epoch_deadline_callback(move |_| {
        Ok(if meter.may_go_on() {
            UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now()))
        } else {
            UpdateDeadline::Interrupt
        })
    });
    store.set_epoch_deadline(1);
}

impl Instance {
    /// Runs `on-init`. A component of `wasi:http` has none, which is success.
    pub async fn on_init(&mut self) -> Result<(), Failure> {
        let Entries::Actor { on_init, .. } = self.entries else { return Ok(()) };
        self.enter(None)?;
        let result = self.call(on_init, ()).await;
        self.leave(result)
    }

    /// Runs one request and checks the answer.
    pub async fn on_request(&mut self, request: Request, caller: Option<Address>) -> Result<Response, Failure> {
        self.enter(caller)?;
        let result = match self.entries {
            Entries::Actor { on_request, .. } => self.call(on_request, (request.into(),)).await.map(|(response,)| response.into()),
            Entries::Http(handle) => match http::handle(&mut self.store, handle, request).await {
                Ok(response) => Ok(response),
                Err(HandleError::Guest(error)) => Err(classify(&self.store, &error)),
                Err(HandleError::Response(why)) => Err(Failure::BadResponse(why)),
            },
        };
        let result = result.and_then(|response| checked_response(response).map_err(Failure::BadResponse));
        self.leave(result)
    }

    /// Runs `on-alarm`. A component of `wasi:http` has none, which is a trap.
    pub async fn on_alarm(&mut self, attempt: u32) -> Result<(), Failure> {
        let Entries::Actor { on_alarm, .. } = self.entries else {
            return Err(Failure::Trap("the component has no on-alarm".into()));
        };
        self.enter(None)?;
        let result = self.call(on_alarm, (attempt,)).await;
        self.leave(result)
    }

    /// Bytes of all linear memories, resident or not.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.store.data().limiter.bytes
    }

    fn enter(&mut self, caller: Option<Address>) -> Result<(), Failure> {
        if !std::mem::take(&mut self.sound) {
            return Err(Failure::Aborted);
        }
        self.store.data_mut().begin_event(caller);
        self.store.set_epoch_deadline(1);
        Ok(())
    }

    async fn call<P, R>(&mut self, func: TypedFunc<P, R>, params: P) -> Result<R, Failure>
    where
        P: ComponentNamedList + Lower + Send + Sync + 'static,
        R: ComponentNamedList + Lift + Send + Sync + 'static,
    {
        let meter = Rc::clone(&self.store.data().local.meter);
        let result = meter.metered(func.call_async(&mut self.store, params)).await;
        result.map_err(|error| classify(&self.store, &error))
    }

    fn leave<T>(&mut self, result: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(failure @ Failure::BadResponse(_)) = &result {
            self.store.data().local.log.write(Level::WARN, &failure.to_string());
        }
        self.store.data_mut().end_event();
        self.sound = result.is_ok();
        result
    }
}

/// What went wrong, in a line; the log gets all of it.
fn classify(store: &Store<HostState>, error: &wasmtime::Error) -> Failure {
    if error.is::<PoolConcurrencyLimitError>() {
        return Failure::NoRoom;
    }
    let state = store.data();
    let failure = match (error.downcast_ref::<Trap>(), state.limiter.refused) {
        (Some(Trap::Interrupt), _) => Failure::CpuBudget,
        _ if state.local.met_full.get() => Failure::StorageFull,
        (Some(Trap::StackOverflow), _) => Failure::Trap("the call stack is exhausted".into()),
        (_, Some(bytes)) => Failure::Memory(format!(
            "the guest failed after it was refused memory: it wanted {bytes} bytes, its limit is {}",
            state.limiter.bytes_max
        )),
        (Some(trap), None) => Failure::Trap(trap.to_string().trim_start_matches("wasm trap: ").into()),
        (None, None) => Failure::Trap(match error.downcast_ref::<I32Exit>() {
            Some(exit) => format!("the guest called exit({})", exit.0),
            None => first_line(&error.root_cause().to_string()),
        }),
    };
    state.local.log.write(Level::WARN, &format!("{failure}\n{error:?}"));
    failure
}

fn first_line(text: &str) -> String {
    cut(text.lines().next().unwrap_or_default(), FAILURE_TEXT_BYTES_MAX).into()
}
