//! Operation ids: a write that is retried because its reply got lost applies once. The first outcome stands in a table, written
//! with what it is about, and is given again to the same request of the same caller. It does not go where the rows of a shard are
//! moved to.

use super::layout::Fnv;
use super::machine::{Fail, Machine};
use super::sql;
use crate::database::{Database, DatabaseError, Param};
use crate::host::Request;

/// One operation: its id, which belongs to its caller, and what tells its request from another.
#[derive(Debug)]
pub(super) struct Operation {
    id: Vec<u8>,
    hash: i64,
}

/// The body of a reply to an id that another request had.
pub(super) const REUSED: u8 = 7;

impl Operation {
    pub(super) fn new(id: &[u8], request: &Request<'_>) -> Self {
        // An address has no NUL in it.
        let id = [request.caller.as_bytes(), &[0], id].concat();
        let hash = Fnv::new().add(request.path.as_bytes()).add(&[0]).add(request.body).get().cast_signed();
        Self { id, hash }
    }
}

impl Machine {
    /// The status and body that an operation had before, if it had.
    pub(super) fn earlier(&self, db: &mut dyn Database, operation: &Operation) -> Result<Option<(u16, Vec<u8>)>, Fail> {
        let mut earlier = None;
        db.query(sql::OPERATION, &[Param::Blob(&operation.id), Param::Integer(self.now())], &mut |row| {
            let is_same = row.integer(0) == operation.hash;
            let status = u16::try_from(row.integer(1)).unwrap_or(500);
            earlier = Some(if is_same { (status, row.bytes(2).to_vec()) } else { (422, vec![REUSED]) });
            false
        })?;
        Ok(earlier)
    }

    pub(super) fn remember(
        &mut self,
        db: &mut dyn Database,
        operation: &Operation,
        status: u16,
        body: &[u8],
    ) -> Result<(), DatabaseError> {
        let until = self.now().saturating_add_unsigned(self.config.operation_window_ms);
        let params = [
            Param::Blob(&operation.id),
            Param::Integer(operation.hash),
            Param::Integer(status.into()),
            Param::Blob(body),
            Param::Integer(until),
        ];
        db.execute(sql::OPERATION_PUT, &params)?;
        self.state.operations_due = Some(self.state.operations_due.map_or(until, |due| due.min(until)));
        Ok(())
    }
}
