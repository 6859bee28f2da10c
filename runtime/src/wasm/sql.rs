//! The SQL surface that the imports call.

pub(crate) use stub::{Connection, EventBudget};

mod stub {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use wasmkeep_storage::clock::Clock;
    use wasmkeep_storage::{Rows, SqlError, Value};

    pub struct EventBudget {
        left_ns: Cell<u64>,
        aborted: Cell<bool>,
    }

    impl EventBudget {
        pub fn new(_clock: Clock, cpu_ns: u64) -> Self {
            Self { left_ns: Cell::new(cpu_ns), aborted: Cell::new(false) }
        }
        pub fn charge(&self, ns: u64) {
            self.left_ns.set(self.left_ns.get().saturating_sub(ns));
        }
        pub fn abort(&self) {
            self.aborted.set(true);
        }
        pub fn reset(&self, cpu_ns: u64) {
            self.left_ns.set(cpu_ns);
            self.aborted.set(false);
        }
        pub fn exhausted(&self) -> bool {
            self.aborted.get() || self.left_ns.get() == 0
        }
    }

    pub struct Connection {
        pub last: RefCell<Vec<Value>>,
        budget: Rc<EventBudget>,
    }

    impl Connection {
        pub fn new(budget: Rc<EventBudget>) -> Self {
            Self { last: RefCell::default(), budget }
        }
        pub async fn exec(&self, sql: &str, params: &[Value], _durable: bool) -> Result<u64, SqlError> {
            match sql {
                "full" => return Err(SqlError::Full),
                "too large" => return Err(SqlError::TooLarge("x".into())),
                "not allowed" => return Err(SqlError::NotAllowed("ATTACH".into())),
                "unavailable" => return Err(SqlError::Unavailable),
                "sql" => return Err(SqlError::Sql { code: 2067, message: "UNIQUE".into() }),
                "wait" => std::future::pending().await,
                _ => {}
            }
            *self.last.borrow_mut() = params.to_vec();
            Ok(1)
        }
        pub async fn query(&self, _sql: &str, _params: &[Value]) -> Result<Rows, SqlError> {
            Ok(Rows { columns: vec!["v".into()], values: self.last.borrow().clone() })
        }
        pub fn budget(&self) -> &Rc<EventBudget> {
            &self.budget
        }
    }
}
