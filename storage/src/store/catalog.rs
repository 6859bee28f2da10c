//! The catalog: one SQLite database per partition that lists every actor with its facts. It lives in the same log as the actors
//! and is checkpointed like them. It is the checkpoint of the facts' records, not their truth.

use std::rc::Rc;

use super::{CoreStore, Database, Inner, Meta, meta::Alarm, place};
use crate::error::{SqlError, StorageError};
use crate::sql::{Connection, EventBudget};
use crate::types::{Address, Value};

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS actors (class TEXT NOT NULL, name TEXT NOT NULL, init_version BLOB,
    alarm_at INTEGER, alarm_generation INTEGER, alarm_attempt INTEGER, base_stamp INTEGER, PRIMARY KEY (class, name)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS alarms ON actors (alarm_at) WHERE alarm_at IS NOT NULL;";
const SELECT: &str =
    "SELECT init_version, alarm_at, alarm_generation, alarm_attempt, base_stamp FROM actors WHERE class = ?1 AND name = ?2";
const PUT_META: &str = "INSERT INTO actors (class, name, init_version, alarm_at, alarm_generation, alarm_attempt)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE SET init_version = excluded.init_version, alarm_at = excluded.alarm_at,
    alarm_generation = excluded.alarm_generation, alarm_attempt = excluded.alarm_attempt";
const PUT_STAMP: &str = "INSERT INTO actors (class, name, base_stamp) VALUES (?1, ?2, ?3)
    ON CONFLICT DO UPDATE SET base_stamp = excluded.base_stamp";
const LIST: &str = "SELECT class, name FROM actors WHERE init_version <> zeroblob(16) AND (?1 IS NULL OR class = ?1)
    AND (class, name) > (?2, ?3) ORDER BY class, name LIMIT ?4";

const ALARMS: &str = "SELECT alarm_at, class, name FROM actors WHERE alarm_at <= ?1 ORDER BY alarm_at LIMIT ?2";

/// One partition's catalog, open. Stays open: there are few, and each wake of an actor asks one.
pub(super) struct Catalog {
    connection: Connection,
    database: Rc<Database>,
}

/// What the catalog has of one actor.
pub(super) struct Row {
    pub(super) meta: Option<Meta>,
    pub(super) base_stamp: u64,
}

impl Drop for Catalog {
    fn drop(&mut self) {
        self.database.open.set(false);
    }
}

impl Inner {
    /// The catalog of a partition; `None` if it has never been written and `make` is not asked for.
    fn catalog(self: &Rc<Self>, partition: u32, make: bool) -> Result<Option<Rc<Catalog>>, StorageError> {
        self.catalogs_used.set(true);
        if let Some(catalog) = self.catalogs.borrow().get(&partition) {
            return Ok(Some(Rc::clone(catalog)));
        }
        let address = place::catalog_address(partition);
        let database = self.load(&address)?;
        if database.pages.borrow().size_pages() == 0 && !make {
            return Ok(None);
        }
        let budget = Rc::new(EventBudget::new(self.options.clock.clone(), u64::MAX));
        let connection = self.connect(&database, budget, false)?;
        let catalog = Rc::new(Catalog { connection, database });
        if make {
            catalog.connection.exec_now(SCHEMA, &[], false).map_err(|error| failed(&address, &error))?;
        }
        self.catalogs.borrow_mut().insert(partition, Rc::clone(&catalog));
        Ok(Some(catalog))
    }

    /// Closes all catalogs that nobody uses right now; they are opened again when asked.
    pub(super) fn close_catalogs(&self) {
        let closed = self.catalogs.take();
        for catalog in closed.into_values() {
            let database = Rc::clone(&catalog.database);
            drop(catalog);
            database.pages.borrow_mut().set_base(None);
            self.forget_if_clean(&database);
        }
    }

    /// What the catalog has of an actor; facts newer than the catalog are not in it.
    pub(super) fn catalog_row(self: &Rc<Self>, address: &Address) -> Result<Option<Row>, StorageError> {
        let Some(catalog) = self.catalog(place::partition_of_database(address), false)? else { return Ok(None) };
        let key = [Value::Text(address.class.to_string()), Value::Text(address.name.to_string())];
        let rows = catalog.connection.query_now(SELECT, &key).map_err(|error| failed(&catalog.database.address, &error))?;
        Ok(row(&rows.values))
    }

    /// Writes facts and stamps of one partition in one transaction. Not durable yet when it returns.
    pub(super) fn fold_partition(
        self: &Rc<Self>,
        partition: u32,
        metas: &[(Address, Meta)],
        stamps: &[(Address, u64)],
    ) -> Result<(), StorageError> {
        let Some(catalog) = self.catalog(partition, true)? else { return Ok(()) };
        let connection = &catalog.connection;
        let write = || -> Result<(), SqlError> {
            connection.exec_now("BEGIN", &[], false)?;
            for (address, meta) in metas {
                connection.exec_now(PUT_META, &meta_params(address, meta), false)?;
            }
            for (address, stamp) in stamps {
                let key = [Value::Text(address.class.to_string()), Value::Text(address.name.to_string())];
                let [class, name] = key;
                connection.exec_now(PUT_STAMP, &[class, name, Value::Integer(stamp.cast_signed())], false)?;
            }
            connection.exec_now("COMMIT", &[], false)?;
            Ok(())
        };
        write().map_err(|error| {
            connection.end_event();
            failed(&catalog.database.address, &error)
        })
    }
}

impl CoreStore {
    /// The addresses of this core's known actors, in order, after `after`, at most `max`, of one class if given.
    pub fn list(&self, class: Option<&str>, max: usize) -> Result<Vec<Address>, StorageError> {
        let inner = &self.inner;
        let mut found: Vec<_> = inner
            .metas
            .borrow()
            .iter()
            .filter(|(address, meta)| meta.init_version != 0 && class.is_none_or(|class| class == &*address.class))
            .map(|(address, _)| address.clone())
            .collect();
        for partition in self.partitions() {
            let Some(catalog) = inner.catalog(partition, false)? else { continue };
            let empty = || Value::Text(String::new());
            let class = class.map_or(Value::Null, |class| Value::Text(class.to_owned()));
            let limit = Value::Integer(i64::try_from(max).unwrap_or(i64::MAX));
            let rows = catalog
                .connection
                .query_now(LIST, &[class, empty(), empty(), limit])
                .map_err(|error| failed(&catalog.database.address, &error))?;
            found.extend(rows.values.chunks_exact(2).filter_map(|row| match row {
                [Value::Text(class), Value::Text(name)] => Some(Address::new(class, name)),
                _ => None,
            }));
        }
        found.sort();
        found.dedup();
        found.truncate(max);
        Ok(found)
    }
}

impl CoreStore {
    /// The partitions of this core.
    pub fn partitions(&self) -> impl Iterator<Item = u32> + use<> {
        let (core, cores) = (self.inner.options.core, self.inner.options.cores);
        (0..place::PARTITIONS).filter(move |partition| place::core_of(*partition, cores) == core)
    }

    /// Alarms that a partition's catalog has, due until `until_ms` (Unix ms), the earliest first, at most `max`. Those of actors
    /// with newer facts are not among them: `recent_alarms` has these.
    pub fn alarms(&self, partition: u32, until_ms: u64, max: usize) -> Result<Vec<(u64, Address)>, StorageError> {
        let Some(catalog) = self.inner.catalog(partition, false)? else { return Ok(Vec::new()) };
        let signed = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
        let rows = catalog
            .connection
            .query_now(ALARMS, &[signed(until_ms), signed(max as u64)])
            .map_err(|error| failed(&catalog.database.address, &error))?;
        let metas = self.inner.metas.borrow();
        let alarm = |row: &[Value]| match row {
            [Value::Integer(at_ms), Value::Text(class), Value::Text(name)] => {
                Some((at_ms.cast_unsigned(), Address::new(class, name))).filter(|(_, address)| metas.get(address).is_none())
            }
            _ => None,
        };
        Ok(rows.values.chunks_exact(3).filter_map(alarm).collect())
    }

    /// Alarms due until `until_ms` that no catalog has yet, in no order.
    #[must_use]
    pub fn recent_alarms(&self, until_ms: u64) -> Vec<(u64, Address)> {
        let metas = self.inner.metas.borrow();
        let due = metas.iter().filter_map(|(address, meta)| Some((meta.alarm?.at_ms, address)));
        due.filter(|(at_ms, _)| *at_ms <= until_ms).map(|(at_ms, address)| (at_ms, address.clone())).collect()
    }
}

fn row(values: &[Value]) -> Option<Row> {
    let [init, at, generation, attempt, stamp] = values else { return None };
    let integer = |value: &Value| match value {
        Value::Integer(integer) => Some(integer.cast_unsigned()),
        _ => None,
    };
    let alarm = integer(at).map(|at_ms| Alarm {
        at_ms,
        generation: integer(generation).unwrap_or(0),
        attempt: integer(attempt).and_then(|attempt| u32::try_from(attempt).ok()).unwrap_or(0),
    });
    let meta = match init {
        Value::Blob(bytes) => {
            bytes.as_slice().try_into().ok().map(|bytes| Meta { init_version: u128::from_le_bytes(bytes), alarm })
        }
        _ => None,
    };
    Some(Row { meta, base_stamp: integer(stamp).unwrap_or(0) })
}

fn meta_params(address: &Address, meta: &Meta) -> [Value; 6] {
    let integer = |value: Option<u64>| value.map_or(Value::Null, |value| Value::Integer(value.cast_signed()));
    [
        Value::Text(address.class.to_string()),
        Value::Text(address.name.to_string()),
        Value::Blob(meta.init_version.to_le_bytes().to_vec()),
        integer(meta.alarm.map(|alarm| alarm.at_ms)),
        integer(meta.alarm.map(|alarm| alarm.generation)),
        integer(meta.alarm.map(|alarm| u64::from(alarm.attempt))),
    ]
}

fn failed(address: &Address, error: &SqlError) -> StorageError {
    StorageError::Open { address: address.to_string(), message: error.to_string() }
}
