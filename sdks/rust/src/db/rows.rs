//! What a query returned.

use super::{Error, FromValue, Value};
use crate::bindings::wasmkeep::actor::storage;

/// The rows of a query, in order.
#[derive(Clone, PartialEq, Debug)]
pub struct Rows {
    columns: Vec<String>,
    /// Row after row: its length is a multiple of the number of columns.
    values: Vec<Value>,
}

impl Rows {
    pub(super) fn from_wire(rows: storage::Rows) -> Self {
        Self { columns: rows.columns, values: rows.values }
    }

    /// The names of the columns, in order.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.values.len().checked_div(self.columns.len()).unwrap_or(0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The first row.
    pub fn first(&self) -> Option<Row<'_>> {
        self.iter().next()
    }

    /// All rows in order.
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        // A query without columns has no values either, so any width other than 0 does for it.
        self.values.chunks_exact(self.columns.len().max(1)).map(|values| Row { columns: &self.columns, values })
    }

    /// Reads every row with `read`, into a list.
    ///
    /// # Errors
    /// The first error of `read`.
    pub fn map<T, E>(&self, read: impl FnMut(Row<'_>) -> Result<T, E>) -> Result<Vec<T>, E> {
        self.iter().map(read).collect()
    }
}

/// One row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row<'a> {
    columns: &'a [String],
    values: &'a [Value],
}

impl<'a> Row<'a> {
    /// The value of a column, named as in the query or counted from 0, as a Rust type: `row.get::<i64>("n")?`.
    ///
    /// # Errors
    /// [`Error::Column`] if there is no such column or its value is not of type `T`.
    pub fn get<T: FromValue<'a>>(&self, column: impl ColumnIndex) -> Result<T, Error> {
        let index = column.find(self.columns)?;
        T::from_value(&self.values[index]).map_err(|error| match error {
            Error::Column(what) => Error::Column(format!("column \"{}\": {what}", self.columns[index])),
            other => other,
        })
    }

    /// All values in order.
    pub fn values(&self) -> &'a [Value] {
        self.values
    }
}

/// How a column is named: by its name (`&str`) or its place from 0 (`usize`).
pub trait ColumnIndex {
    /// The place of the column among `columns`.
    ///
    /// # Errors
    /// [`Error::Column`] if there is no such column, naming those there are.
    fn find(self, columns: &[String]) -> Result<usize, Error>;
}

impl ColumnIndex for usize {
    fn find(self, columns: &[String]) -> Result<usize, Error> {
        let message = || Error::Column(format!("no column {self}: the row has {}", columns.len()));
        (self < columns.len()).then_some(self).ok_or_else(message)
    }
}

impl ColumnIndex for &str {
    fn find(self, columns: &[String]) -> Result<usize, Error> {
        let message = || Error::Column(format!("no column \"{self}\"; there are: {}", columns.join(", ")));
        columns.iter().position(|name| name == self).ok_or_else(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_rows() -> Rows {
        Rows {
            columns: vec!["id".into(), "title".into()],
            values: vec![Value::Integer(1), Value::Text("one".into()), Value::Integer(2), Value::Null],
        }
    }

    #[test]
    fn rows_are_read_by_name_or_place() {
        let rows = two_rows();
        assert_eq!(rows.len(), 2);
        let read = rows.map(|row| Ok::<_, Error>((row.get::<i64>("id")?, row.get::<Option<String>>(1)?)));
        assert_eq!(read, Ok(vec![(1, Some("one".to_owned())), (2, None)]));
    }

    #[test]
    fn a_wrong_column_or_type_is_named() {
        let rows = two_rows();
        let row = rows.first().unwrap();
        let message = |error: Error| error.to_string();
        assert_eq!(message(row.get::<i64>("nr").unwrap_err()), "no column \"nr\"; there are: id, title");
        assert_eq!(message(row.get::<i64>(2).unwrap_err()), "no column 2: the row has 2");
        assert_eq!(message(row.get::<i64>("title").unwrap_err()), "column \"title\": asked for i64, found text");
    }

    #[test]
    fn a_statement_without_columns_has_no_rows() {
        let rows = Rows { columns: Vec::new(), values: Vec::new() };
        assert!(rows.is_empty() && rows.first().is_none());
        assert_eq!(rows.len(), 0);
    }
}
