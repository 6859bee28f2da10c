//! The framing of what clients and state machines say to each other: fixed-width little-endian numbers, and bytes behind their
//! length. Whoever changes a message changes the version in its path.

/// Bytes that are no message: too short, too long, or with a value that means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("malformed message")
    }
}

impl std::error::Error for Malformed {}

/// Builds a message.
#[derive(Clone, Default, Debug)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty message.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// An empty message with room for so many bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    /// How long it is by now, bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The message.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self, value: i64) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Whether there is one, and it.
    pub fn option_u64(&mut self, value: Option<u64>) -> &mut Self {
        match value {
            Some(value) => self.u8(1).u64(value),
            None => self.u8(0),
        }
    }

    /// Bytes behind their length.
    ///
    /// # Panics
    /// On 4 GiB and more: callers bound what they send long before.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.u32(u32::try_from(value.len()).expect("messages are bounded"));
        self.bytes.extend_from_slice(value);
        self
    }

    /// Text behind its length.
    pub fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }
}

/// Takes a message apart. Every method fails on what is not there; nothing is allocated on a length's word alone.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// From the first byte of a message.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*first)
    }

    /// One byte.
    ///
    /// # Errors
    /// At the end of the message; so do all others.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.take::<1>().map(|[byte]| byte)
    }

    /// Four bytes.
    ///
    /// # Errors
    /// As `u8`.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// As `u8`.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }

    /// Eight bytes, signed.
    ///
    /// # Errors
    /// As `u8`.
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.take().map(i64::from_le_bytes)
    }

    /// As `Writer::option_u64`.
    ///
    /// # Errors
    /// As `u8`, and when the flag is neither 0 nor 1.
    pub fn option_u64(&mut self) -> Result<Option<u64>, Malformed> {
        match self.u8()? {
            0 => Ok(None),
            1 => self.u64().map(Some),
            _ => Err(Malformed),
        }
    }

    /// Bytes behind their length.
    ///
    /// # Errors
    /// As `u8`.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        let (first, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(first)
    }

    /// Text behind its length.
    ///
    /// # Errors
    /// As `u8`, and when it is not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    /// A number of items that follow, each of at least `item_bytes_min`: never more than the rest of the message can hold.
    ///
    /// # Errors
    /// As `u8`, and when the rest is too short for so many.
    pub fn count(&mut self, item_bytes_min: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        if count.checked_mul(item_bytes_min.max(1)).is_none_or(|bytes| bytes > self.rest.len()) {
            return Err(Malformed);
        }
        Ok(count)
    }

    /// The message must end here.
    ///
    /// # Errors
    /// When it does not.
    pub const fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let mut writer = Writer::new();
        writer.u8(7).u32(8).u64(9).i64(-1).option_u64(None).option_u64(Some(3)).bytes(b"").text("ä");
        let bytes = writer.into_bytes();
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.u8(), reader.u32(), reader.u64(), reader.i64()), (Ok(7), Ok(8), Ok(9), Ok(-1)));
        assert_eq!((reader.option_u64(), reader.option_u64()), (Ok(None), Ok(Some(3))));
        assert_eq!((reader.bytes(), reader.text(), reader.end()), (Ok(&b""[..]), Ok("ä"), Ok(())));
        assert_eq!(reader.u8(), Err(Malformed));
    }

    #[test]
    fn a_length_beyond_the_message_is_refused_before_anything_is_allocated() {
        let bytes = u32::MAX.to_le_bytes();
        assert_eq!(Reader::new(&bytes).bytes(), Err(Malformed));
        assert_eq!(Reader::new(&bytes).count(1), Err(Malformed));
        assert_eq!(Reader::new(&[2, 0, 0, 0, 0, 0]).count(1), Ok(2));
        assert_eq!(Reader::new(&[2, 0, 0, 0, 0, 0]).count(2), Err(Malformed));
        assert_eq!(Reader::new(&[2]).option_u64(), Err(Malformed));
        assert_eq!(Reader::new(&[1, 0, 0, 0, 0xff]).text(), Err(Malformed));
    }
}
