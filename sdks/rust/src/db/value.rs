//! SQLite's five kinds of value, and Rust's types beside them.

use super::Error;

pub use crate::bindings::wasmkeep::actor::storage::Value;

impl Value {
    /// SQLite's name of this kind of value, in lower case.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Integer(_) => "integer",
            Self::Real(_) => "real",
            Self::Text(_) => "text",
            Self::Blob(_) => "blob",
        }
    }
}

macro_rules! from_integers {
    ($($type:ty),*) => { $(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::Integer(i64::from(value))
            }
        }
    )* };
}

// Not u64 and usize: half of their values are no integer of SQLite, so whoever binds them decides what to do about it.
from_integers!(i8, i16, i32, i64, u8, u16, u32, bool);

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<&String> for Value {
    fn from(value: &String) -> Self {
        Self::Text(value.clone())
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Blob(value)
    }
}

impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Self {
        Self::Blob(value.to_vec())
    }
}

impl From<&Value> for Value {
    fn from(value: &Value) -> Self {
        value.clone()
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A Rust type that a value can be read as. No value is changed to fit: an integer that is out of range, a text where a
/// number was asked for or a NULL outside `Option` is an [`Error::Column`]. The one widening is an integer read as `f64`, for
/// columns where SQLite stores whole numbers as integers.
pub trait FromValue<'a>: Sized {
    /// Reads the value.
    ///
    /// # Errors
    /// [`Error::Column`], naming the type asked for and the kind found.
    fn from_value(value: &'a Value) -> Result<Self, Error>;
}

fn mismatch<T>(wanted: &str, value: &Value) -> Result<T, Error> {
    Err(Error::Column(format!("asked for {wanted}, found {}", value.kind())))
}

macro_rules! read_integers {
    ($($type:ty),*) => { $(
        impl FromValue<'_> for $type {
            fn from_value(value: &Value) -> Result<Self, Error> {
                match value {
                    Value::Integer(n) => <$type>::try_from(*n)
                        .map_err(|_| Error::Column(format!("{n} does not fit into {}", stringify!($type)))),
                    other => mismatch(stringify!($type), other),
                }
            }
        }
    )* };
}

read_integers!(i8, i16, i32, i64, u8, u16, u32, u64, usize);

impl FromValue<'_> for bool {
    /// 0 is false and 1 is true.
    fn from_value(value: &Value) -> Result<Self, Error> {
        match value {
            Value::Integer(0) => Ok(false),
            Value::Integer(1) => Ok(true),
            other => mismatch("bool (0 or 1)", other),
        }
    }
}

impl FromValue<'_> for f64 {
    fn from_value(value: &Value) -> Result<Self, Error> {
        match value {
            Value::Real(x) => Ok(*x),
            #[allow(clippy::cast_precision_loss, reason = "documented widening")]
            Value::Integer(n) => Ok(*n as f64),
            other => mismatch("f64", other),
        }
    }
}

impl<'a> FromValue<'a> for &'a str {
    fn from_value(value: &'a Value) -> Result<Self, Error> {
        match value {
            Value::Text(text) => Ok(text),
            other => mismatch("text", other),
        }
    }
}

impl FromValue<'_> for String {
    fn from_value(value: &Value) -> Result<Self, Error> {
        <&str>::from_value(value).map(str::to_owned)
    }
}

impl<'a> FromValue<'a> for &'a [u8] {
    fn from_value(value: &'a Value) -> Result<Self, Error> {
        match value {
            Value::Blob(bytes) => Ok(bytes),
            other => mismatch("blob", other),
        }
    }
}

impl FromValue<'_> for Vec<u8> {
    fn from_value(value: &Value) -> Result<Self, Error> {
        <&[u8]>::from_value(value).map(<[u8]>::to_vec)
    }
}

impl<'a> FromValue<'a> for &'a Value {
    fn from_value(value: &'a Value) -> Result<Self, Error> {
        Ok(value)
    }
}

impl FromValue<'_> for Value {
    fn from_value(value: &Value) -> Result<Self, Error> {
        Ok(value.clone())
    }
}

impl<'a, T: FromValue<'a>> FromValue<'a> for Option<T> {
    fn from_value(value: &'a Value) -> Result<Self, Error> {
        match value {
            Value::Null => Ok(None),
            other => T::from_value(other).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_exact_or_refused() {
        let beyond_doubles = (1_i64 << 53) + 1;
        assert_eq!(i64::from_value(&Value::Integer(beyond_doubles)), Ok(beyond_doubles));
        assert_eq!(i64::from_value(&Value::from(i64::MIN)), Ok(i64::MIN));
        let refused = u8::from_value(&Value::Integer(256));
        assert_eq!(refused, Err(Error::Column("256 does not fit into u8".into())));
        assert!(u64::from_value(&Value::Integer(-1)).is_err());
        assert!(i64::from_value(&Value::Real(1.0)).is_err());
        assert!(i64::from_value(&Value::Text("1".into())).is_err());
    }

    #[test]
    fn null_needs_an_option() {
        assert_eq!(Option::<String>::from_value(&Value::Null), Ok(None));
        assert_eq!(String::from_value(&Value::Null), Err(Error::Column("asked for text, found null".into())));
        assert_eq!(Value::from(Some("a")), Value::Text("a".into()));
    }

    #[test]
    fn text_and_blobs_do_not_mix() {
        assert_eq!(<&str>::from_value(&Value::Text("a\0b".into())), Ok("a\0b"));
        assert_eq!(<&[u8]>::from_value(&Value::Blob(Vec::new())), Ok(&[][..]));
        assert!(<&[u8]>::from_value(&Value::Text("a".into())).is_err());
        assert!(bool::from_value(&Value::Integer(2)).is_err());
    }
}
