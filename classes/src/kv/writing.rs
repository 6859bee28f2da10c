//! What a shard writes: put, delete, increment, alone or many in one call. A single write takes one statement unless it fails.

use super::codec::{self, Kind};
use super::layout::Layout;
use super::machine::{Done, Fail, Machine};
use super::protocol::{Expect, Invalid, Options, Outcome, Write};
use super::reading::is_live;
use super::sql;
use crate::database::{Database, DatabaseError, Param};
use crate::host::{Effect, Reply, Request};
use crate::limits::KV_VERSION_MAX;

/// What stands in the way of every write of a shard whose versions are used up.
const USED_UP: Invalid = Invalid::VersionNumber(KV_VERSION_MAX + 1);

/// The status of a single write's reply.
const fn status(outcome: &Outcome) -> u16 {
    match outcome {
        Outcome::Put { .. } | Outcome::Deleted { .. } | Outcome::Incremented { .. } => 200,
        Outcome::Conflict { .. } => 409,
        Outcome::NotANumber | Outcome::Overflow | Outcome::NotApplied => 422,
    }
}

const fn has_written(outcome: &Outcome) -> bool {
    outcome.is_done() && !matches!(outcome, Outcome::Deleted { existed: false })
}

/// A number in ASCII decimal as an increment writes it: no sign but `-`, no leading zeros, nothing around it.
fn number(value: &[u8]) -> Option<i64> {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    let is_written_so = digits.iter().all(u8::is_ascii_digit) && (digits.first() != Some(&b'0') || value == b"0");
    if is_written_so { std::str::from_utf8(value).ok()?.parse().ok() } else { None }
}

/// The sum that an increment would write, and when its row ends.
type Sum = Result<(i64, Option<i64>), Outcome>;

impl Machine {
    pub(super) fn write(&mut self, db: &mut dyn Database, request: &Request<'_>, kind: Kind) -> Done {
        let (head, write) = codec::decode_write(request.body, kind)?;
        self.admit(head.shards, 1)?;
        self.changing(db, head.shards, head.options, request, |machine, db| {
            let outcome = machine.apply(db, &write)?;
            Ok((status(&outcome), codec::encode_outcome(&outcome), has_written(&outcome)))
        })
    }

    pub(super) fn write_many(&mut self, db: &mut dyn Database, request: &Request<'_>) -> Done {
        let (head, writes) = codec::decode_writes(request.body)?;
        if head.is_atomic {
            let mut keys: Vec<_> = writes.iter().map(Write::key).collect();
            keys.sort_unstable();
            if keys.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(Invalid::KeyTwice.into());
            }
        }
        self.admit(head.shards, writes.len())?;
        self.changing(db, head.shards, head.options, request, |machine, db| {
            if head.is_atomic
                && let Some(outcomes) = machine.check_all(db, &writes)?
            {
                return Ok((409, codec::encode_outcomes(&outcomes), false));
            }
            machine.reserve(db, writes.len())?;
            let outcomes = writes.iter().map(|write| machine.apply(db, write)).collect::<Result<Vec<_>, _>>()?;
            Ok((200, codec::encode_outcomes(&outcomes), outcomes.iter().any(has_written)))
        })
    }

    fn admit(&self, shards: u32, count: usize) -> Result<(), Fail> {
        self.state.layout.admit_write(shards)?;
        let is_room = self.state.seq.saturating_add_unsigned(count as u64) < KV_VERSION_MAX;
        if is_room { Ok(()) } else { Err(USED_UP.into()) }
    }

    /// What all writes share: an operation id's earlier outcome, the number of shards that the first rows are written for, and how
    /// durable it all is. `run` gives status, body and whether anything was written.
    fn changing(
        &mut self,
        db: &mut dyn Database,
        shards: u32,
        options: Options<'_>,
        request: &Request<'_>,
        run: impl FnOnce(&mut Self, &mut dyn Database) -> Result<(u16, Vec<u8>, bool), DatabaseError>,
    ) -> Done {
        let reserved = self.state.reserved;
        let mut effect = if options.local { Effect::Local } else { Effect::Durable };
        let operation = options.operation.map(|id| super::operations::Operation::new(id, request));
        if let Some(operation) = &operation
            && let Some((status, body)) = self.earlier(db, operation)?
        {
            return Ok(Reply { status, body, effect });
        }
        let (status, body, has_written) = run(self, db)?;
        if has_written && self.state.layout.shards != shards {
            self.write_layout(db, Layout { shards, ..self.state.layout })?;
            effect = Effect::Durable;
        }
        if self.state.reserved != reserved {
            effect = Effect::Durable;
        }
        if let Some(operation) = operation {
            self.remember(db, &operation, status, &body)?;
        }
        Ok(Reply { status, body, effect })
    }

    fn apply(&mut self, db: &mut dyn Database, write: &Write<'_>) -> Result<Outcome, DatabaseError> {
        match *write {
            Write::Put { key, value, expect, ttl_ms } => {
                let now = self.now();
                let ends = ttl_ms.map(|ms| now.saturating_add_unsigned(ms));
                match self.put(db, key, value, expect, ends)? {
                    Some(version) => Ok(Outcome::Put { version }),
                    None => Ok(Outcome::Conflict { current: self.current(db, key)? }),
                }
            }
            Write::Delete { key, expect } => self.delete(db, key, expect),
            Write::Increment { key, delta } => match self.sum(db, key, delta)? {
                Ok((value, ends)) => {
                    let digits = value.to_string();
                    let version = self.put(db, key, digits.as_bytes(), Expect::Any, ends)?;
                    Ok(Outcome::Incremented { value, version: version.unwrap_or_default() })
                }
                Err(outcome) => Ok(outcome),
            },
        }
    }

    /// The new version, `None` if the row is not as expected.
    pub(super) fn put(
        &mut self,
        db: &mut dyn Database,
        key: &[u8],
        value: &[u8],
        expect: Expect,
        expires_at: Option<i64>,
    ) -> Result<Option<i64>, DatabaseError> {
        self.reserve(db, 1)?;
        let (now, version) = (Param::Integer(self.now()), self.state.seq + 1);
        let (key, value, number, ends) = (Param::Blob(key), Param::Blob(value), Param::Integer(version), expires_at.into());
        let is_written = match expect {
            Expect::Any => db.execute(sql::PUT, &[key, value, number, ends]).map(|_| true)?,
            Expect::Absent => db.execute(sql::PUT_ABSENT, &[key, value, number, ends, now])? > 0,
            Expect::Version(expected) => {
                db.execute(sql::PUT_VERSION, &[key, value, number, ends, now, Param::Integer(expected)])? > 0
            }
        };
        if !is_written {
            return Ok(None);
        }
        self.state.seq = version;
        self.note_due(expires_at);
        Ok(Some(version))
    }

    fn delete(&self, db: &mut dyn Database, key: &[u8], expect: Expect) -> Result<Outcome, DatabaseError> {
        let (blob, now) = (Param::Blob(key), Param::Integer(self.now()));
        let existed = match expect {
            Expect::Any => return Ok(Outcome::Deleted { existed: db.execute(sql::DELETE, &[blob, now])? > 0 }),
            Expect::Absent => false,
            Expect::Version(version) => db.execute(sql::DELETE_VERSION, &[blob, now, Param::Integer(version)])? > 0,
        };
        if existed {
            return Ok(Outcome::Deleted { existed });
        }
        match (expect, self.current(db, key)?) {
            (Expect::Absent, None) => Ok(Outcome::Deleted { existed }),
            (_, current) => Ok(Outcome::Conflict { current }),
        }
    }

    /// The version of a row that is there.
    fn current(&self, db: &mut dyn Database, key: &[u8]) -> Result<Option<i64>, DatabaseError> {
        let (now, mut current) = (self.now(), None);
        db.query(sql::VERSION, &[Param::Blob(key)], &mut |row| {
            current = is_live(row.integer_or_null(1), now).then(|| row.integer(0));
            false
        })?;
        Ok(current)
    }

    fn sum(&self, db: &mut dyn Database, key: &[u8], delta: i64) -> Result<Sum, DatabaseError> {
        let (now, mut sum) = (self.now(), Ok((delta, None)));
        db.query(sql::GET, &[Param::Blob(key)], &mut |row| {
            let ends = row.integer_or_null(2);
            if is_live(ends, now) {
                let added = |number: i64| number.checked_add(delta).ok_or(Outcome::Overflow);
                sum = number(row.bytes(0)).ok_or(Outcome::NotANumber).and_then(added).map(|value| (value, ends));
            }
            false
        })?;
        Ok(sum)
    }

    /// The outcomes of an atomic call if one of its writes would fail, so that none may be done. As its keys are distinct, what is
    /// true before the first write is true before each.
    fn check_all(&self, db: &mut dyn Database, writes: &[Write<'_>]) -> Result<Option<Vec<Outcome>>, DatabaseError> {
        let (mut outcomes, mut has_failed) = (Vec::with_capacity(writes.len()), false);
        for write in writes {
            let failed = self.failure(db, write)?;
            has_failed |= failed.is_some();
            outcomes.push(failed.unwrap_or(Outcome::NotApplied));
        }
        Ok(has_failed.then_some(outcomes))
    }

    fn failure(&self, db: &mut dyn Database, write: &Write<'_>) -> Result<Option<Outcome>, DatabaseError> {
        match *write {
            Write::Put { key, expect, .. } | Write::Delete { key, expect } => {
                let expected = match expect {
                    Expect::Any => return Ok(None),
                    Expect::Absent => None,
                    Expect::Version(version) => Some(version),
                };
                let current = self.current(db, key)?;
                Ok((current != expected).then_some(Outcome::Conflict { current }))
            }
            Write::Increment { key, delta } => Ok(self.sum(db, key, delta)?.err()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_what_an_increment_writes() {
        for value in [0, 7, -7, 10, i64::MIN, i64::MAX] {
            assert_eq!(number(value.to_string().as_bytes()), Some(value));
        }
        let others: [&[u8]; 14] = [
            b"",
            b"-",
            b"+1",
            b"01",
            b"-0",
            b"--1",
            b" 1",
            b"1 ",
            b"1.0",
            b"1e3",
            b"0x1",
            b"\xff",
            b"9223372036854775808",
            "١".as_bytes(),
        ];
        for value in others {
            assert_eq!(number(value), None, "{value:?}");
        }
    }
}
