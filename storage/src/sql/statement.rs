//! Prepared statements of one connection, and the values that go in and come out of them.

use std::ffi::{CStr, c_int};
use std::ptr;

use rusqlite::ffi;

use super::session::Param;
use crate::error::SqlError;
use crate::limits::{RESULT_BYTES_MAX, STATEMENTS_CACHED_MAX, VALUE_BYTES_MAX};
use crate::types::{Rows, Value};

/// A prepared statement; finalised when dropped.
pub(super) struct Statement {
    raw: *mut ffi::sqlite3_stmt,
    /// Bytes of the text that it took, up to and with its semicolon.
    pub(super) taken_bytes: usize,
}

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: prepared by us and finalised once.
        unsafe { ffi::sqlite3_finalize(self.raw) };
    }
}

impl Statement {
    /// Prepares the first statement of a text; `None` if there is none in it.
    pub(super) fn prepare(db: *mut ffi::sqlite3, sql: &str) -> Result<Option<Self>, c_int> {
        let (mut raw, mut tail) = (ptr::null_mut(), ptr::null());
        let bytes = c_int::try_from(sql.len()).map_err(|_| ffi::SQLITE_TOOBIG)?;
        let flags = ffi::SQLITE_PREPARE_PERSISTENT as std::ffi::c_uint;
        // SAFETY: the text is given with its length; `db` is open.
        let code = unsafe { ffi::sqlite3_prepare_v3(db, sql.as_ptr().cast(), bytes, flags, &raw mut raw, &raw mut tail) };
        if code != ffi::SQLITE_OK {
            return Err(code);
        }
        let taken_bytes = (tail as usize).saturating_sub(sql.as_ptr() as usize);
        Ok((!raw.is_null()).then_some(Self { raw, taken_bytes }))
    }

    /// Binds all parameters. The values must stay until `reset`, which the caller's borrow of them guarantees.
    pub(super) fn bind(&self, params: &[Value]) -> Result<(), SqlError> {
        self.check_count(params.len())?;
        for (index, value) in (1..).zip(params) {
            bound(index, self.bind_one(index, value)?)?;
        }
        Ok(())
    }

    /// As `bind`: the values stay borrowed until the caller has reset the statement.
    pub(super) fn bind_params<'p>(&self, params: impl ExactSizeIterator<Item = Param<'p>>) -> Result<(), SqlError> {
        self.check_count(params.len())?;
        let (raw, keep) = (self.raw, ffi::SQLITE_STATIC());
        for (index, param) in (1..).zip(params) {
            // SAFETY: as in `bind_one`.
            let code = unsafe {
                match param {
                    Param::Null => ffi::sqlite3_bind_null(raw, index),
                    Param::Integer(integer) => ffi::sqlite3_bind_int64(raw, index, integer),
                    Param::Text(text) => {
                        let bytes = length(text.len())?;
                        ffi::sqlite3_bind_text64(raw, index, text.as_ptr().cast(), bytes, keep, ffi::SQLITE_UTF8 as u8)
                    }
                    // An empty slice's pointer is dangling but not null, which would bind NULL.
                    Param::Blob(blob) => ffi::sqlite3_bind_blob64(raw, index, blob.as_ptr().cast(), length(blob.len())?, keep),
                }
            };
            bound(index, code)?;
        }
        Ok(())
    }

    fn check_count(&self, given: usize) -> Result<(), SqlError> {
        // SAFETY: the statement is live.
        let wanted = unsafe { ffi::sqlite3_bind_parameter_count(self.raw) };
        if usize::try_from(wanted) == Ok(given) {
            return Ok(());
        }
        let message = format!("the statement has {wanted} parameters and was given {given} values");
        Err(SqlError::Sql { code: ffi::SQLITE_RANGE, message })
    }

    fn bind_one(&self, index: c_int, value: &Value) -> Result<c_int, SqlError> {
        let (raw, keep) = (self.raw, ffi::SQLITE_STATIC());
        // SAFETY: the statement is live and the index within its count; texts and blobs stay until `reset`, see `bind`.
        Ok(unsafe {
            match value {
                Value::Null => ffi::sqlite3_bind_null(raw, index),
                Value::Integer(integer) => ffi::sqlite3_bind_int64(raw, index, *integer),
                Value::Real(real) => ffi::sqlite3_bind_double(raw, index, *real),
                Value::Text(text) => {
                    let bytes = length(text.len())?;
                    ffi::sqlite3_bind_text64(raw, index, text.as_ptr().cast(), bytes, keep, ffi::SQLITE_UTF8 as u8)
                }
                // A null pointer would bind NULL; an empty vector's is dangling but not null.
                Value::Blob(blob) => ffi::sqlite3_bind_blob64(raw, index, blob.as_ptr().cast(), length(blob.len())?, keep),
            }
        })
    }

    /// One step: `SQLITE_ROW`, `SQLITE_DONE` or an error.
    pub(super) fn step(&self) -> c_int {
        // SAFETY: the statement is live.
        unsafe { ffi::sqlite3_step(self.raw) }
    }

    /// Whether it writes nothing.
    pub(super) fn is_readonly(&self) -> bool {
        // SAFETY: the statement is live.
        unsafe { ffi::sqlite3_stmt_readonly(self.raw) != 0 }
    }

    /// Makes it ready for another run and lets go of the bound values.
    pub(super) fn reset(&self) {
        // SAFETY: the statement is live.
        unsafe {
            ffi::sqlite3_reset(self.raw);
            ffi::sqlite3_clear_bindings(self.raw);
        }
    }

    pub(super) fn columns(&self) -> Vec<String> {
        // SAFETY: the statement is live.
        let count = unsafe { ffi::sqlite3_column_count(self.raw) };
        let name = |index| {
            // SAFETY: the index is within the count; the name lives until the statement changes.
            let name = unsafe { ffi::sqlite3_column_name(self.raw, index) };
            // SAFETY: null (no memory) or a C string.
            if name.is_null() { String::new() } else { unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned() }
        };
        (0..count).map(name).collect()
    }

    /// Appends the current row's values; returns their bytes.
    pub(super) fn row(&self, rows: &mut Rows) -> usize {
        let mut bytes = 0;
        for index in 0..c_int::try_from(rows.columns.len()).unwrap_or(0) {
            let value = self.column(index);
            bytes += match &value {
                Value::Text(text) => text.len(),
                Value::Blob(blob) => blob.len(),
                _ => 0,
            } + size_of::<Value>();
            rows.values.push(value);
        }
        bytes
    }

    /// A column of the current row, if it is an integer.
    pub(super) fn integer(&self, index: c_int) -> Option<i64> {
        // SAFETY: a row is current; SQLite checks the index.
        unsafe {
            let is_integer = ffi::sqlite3_column_type(self.raw, index) == ffi::SQLITE_INTEGER;
            is_integer.then(|| ffi::sqlite3_column_int64(self.raw, index))
        }
    }

    /// A column of the current row, if it is of one of these types, until the next step.
    pub(super) fn bytes(&self, index: c_int, types: &[c_int]) -> Option<&[u8]> {
        // SAFETY: a row is current; SQLite checks the index. A blob's bytes are asked for as they are, so nothing is converted, and
        // they stay until the next step, before which the caller's borrow of the row ends.
        unsafe {
            let kind = ffi::sqlite3_column_type(self.raw, index);
            types.contains(&kind).then(|| {
                let at = ffi::sqlite3_column_blob(self.raw, index);
                bytes_at(at.cast(), ffi::sqlite3_column_bytes(self.raw, index))
            })
        }
    }

    fn column(&self, index: c_int) -> Value {
        let raw = self.raw;
        // SAFETY: a row is current and the index within the count; bytes are copied before the next call on the statement.
        unsafe {
            match ffi::sqlite3_column_type(raw, index) {
                ffi::SQLITE_INTEGER => Value::Integer(ffi::sqlite3_column_int64(raw, index)),
                ffi::SQLITE_FLOAT => Value::Real(ffi::sqlite3_column_double(raw, index)),
                ffi::SQLITE_TEXT => {
                    let text = ffi::sqlite3_column_text(raw, index);
                    Value::Text(String::from_utf8_lossy(bytes_at(text, ffi::sqlite3_column_bytes(raw, index))).into_owned())
                }
                ffi::SQLITE_BLOB => {
                    let blob = ffi::sqlite3_column_blob(raw, index);
                    Value::Blob(bytes_at(blob.cast(), ffi::sqlite3_column_bytes(raw, index)).to_vec())
                }
                _ => Value::Null,
            }
        }
    }
}

/// # Safety
/// `at` is null or points to `count` bytes that outlive the result.
unsafe fn bytes_at<'a>(at: *const u8, count: c_int) -> &'a [u8] {
    match usize::try_from(count) {
        // SAFETY: as the caller promises.
        Ok(count) if !at.is_null() && count > 0 => unsafe { std::slice::from_raw_parts(at, count) },
        _ => &[],
    }
}

fn bound(index: c_int, code: c_int) -> Result<(), SqlError> {
    if code == ffi::SQLITE_OK {
        return Ok(());
    }
    Err(SqlError::Sql { code, message: format!("binding parameter {index} failed") })
}

fn length(bytes: usize) -> Result<u64, SqlError> {
    if bytes > VALUE_BYTES_MAX {
        return Err(SqlError::TooLarge(format!("a value of {bytes} bytes; at most {VALUE_BYTES_MAX} fit")));
    }
    Ok(bytes as u64)
}

/// Checks what a query has returned so far.
pub(super) fn check_result(bytes: usize) -> Result<(), SqlError> {
    if bytes > RESULT_BYTES_MAX {
        return Err(SqlError::TooLarge(format!("the result is over {RESULT_BYTES_MAX} bytes; use LIMIT")));
    }
    Ok(())
}

/// Statements kept prepared, the last used ones, newest last.
#[derive(Default)]
pub(super) struct Cache {
    statements: Vec<(Box<str>, Statement)>,
}

impl Cache {
    /// Takes the statement of a text out, if it is there.
    pub(super) fn take(&mut self, sql: &str) -> Option<(Box<str>, Statement)> {
        let index = self.statements.iter().rposition(|(text, _)| **text == *sql)?;
        Some(self.statements.remove(index))
    }

    /// Puts a statement back that has been reset.
    pub(super) fn put(&mut self, text: Box<str>, statement: Statement) {
        if self.statements.len() >= STATEMENTS_CACHED_MAX {
            self.statements.remove(0);
        }
        self.statements.push((text, statement));
    }

    /// Finalises all of them.
    pub(super) fn clear(&mut self) {
        self.statements.clear();
    }
}
