//! Using shared keys from another actor. Every operation is one call, a listing one per shard at least.

use super::{Entry, Error, Expect, Listed};
use crate::actors::{self, Address};
use crate::hosted::{millis, now_ms};
use crate::{Request, Response};
use std::cell::RefCell;
use std::time::Duration;
use wasmkeep_classes::kv::cache::ReadCache;
use wasmkeep_classes::kv::client as wire;
use wasmkeep_classes::kv::merge::Merge;
use wasmkeep_classes::kv::protocol::{Found, Invalid, List, Options, Write};
use wasmkeep_classes::kv::{Shards, shard_name};

/// Keys in a read cache: what an actor reads again and again is few.
const CACHE_ENTRIES_MAX: usize = 10_000;

/// Bytes in a read cache, a fraction of what an instance may have.
const CACHE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The keys of a class.
#[derive(Clone, Debug)]
pub struct Client {
    class: String,
    shards: Result<Shards, Invalid>,
    cache: Option<RefCell<ReadCache>>,
}

/// How a value is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOptions<'a> {
    expect: Expect,
    ttl: Option<Duration>,
    wire: Options<'a>,
}

impl<'a> PutOptions<'a> {
    /// Durable, whatever is there, without an end.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only if the key is as expected.
    #[must_use]
    pub fn expect(mut self, expect: Expect) -> Self {
        self.expect = expect;
        self
    }

    /// The key is absent after so long. Without it, it is there until it is deleted, whatever end it had before.
    #[must_use]
    pub fn ttl(mut self, time: Duration) -> Self {
        self.ttl = Some(time);
        self
    }

    /// Does not wait for the disk: a crash of the node may forget the newest such writes.
    #[must_use]
    pub fn local(mut self) -> Self {
        self.wire = self.wire.local();
        self
    }

    /// Repeated by the same actor within an hour under the same id, 1 to 64 bytes, it applies once.
    #[must_use]
    pub fn operation(mut self, id: &'a [u8]) -> Self {
        self.wire = self.wire.operation(id);
        self
    }
}

/// A part of a listing, in byte order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// The keys.
    pub keys: Vec<Listed>,
    /// Whether listing again behind the last of them may find more.
    pub has_more: bool,
}

impl Client {
    /// The keys of a class with so many shards, 1 to 4,096. The number is a part of how they are stored: all who use the class
    /// give the same one, for ever.
    pub fn new(class: &str, shards: u32) -> Self {
        Self { class: class.to_owned(), shards: Shards::new(shards), cache: None }
    }

    /// Answers reads from memory if they are not older than this. Other actors' writes are seen that much later, this client's own
    /// at once. Keep the client in a `thread_local!` for it; it is lost with the instance.
    #[must_use]
    pub fn with_read_cache(mut self, max_age: Duration) -> Self {
        self.cache = Some(RefCell::new(ReadCache::new(millis(max_age), CACHE_ENTRIES_MAX, CACHE_BYTES_MAX)));
        self
    }

    /// Reads a key; `None` if it is absent.
    ///
    /// # Errors
    /// [`Error`].
    pub fn get<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Result<Option<Entry>, Error> {
        let known = self.cache.as_ref().and_then(|cache| cache.borrow_mut().get(key.as_ref(), now_ms()));
        known.map_or_else(|| self.get_fresh(key), Ok)
    }

    /// Like [`get`](Self::get), always asking the shard.
    ///
    /// # Errors
    /// [`Error`].
    pub fn get_fresh<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Result<Option<Entry>, Error> {
        let key = key.as_ref();
        let ticket = self.cache.as_ref().map(|cache| cache.borrow_mut().begin());
        let shards = self.shards()?;
        let answer = self.call(shards.of(key), wire::get(shards, key)?)?;
        let found = wire::got(answer.status(), answer.body())?;
        if let (Some(cache), Some(ticket)) = (&self.cache, ticket) {
            cache.borrow_mut().read(ticket, key, found.as_ref(), now_ms());
        }
        Ok(found.as_ref().map(Entry::from))
    }

    /// Writes a value durably, whatever is there, and returns its version: larger than any the key had.
    ///
    /// # Errors
    /// [`Error`].
    pub fn put<K: AsRef<[u8]> + ?Sized, V: AsRef<[u8]> + ?Sized>(&self, key: &K, value: &V) -> Result<i64, Error> {
        self.put_with(key, value, PutOptions::new())
    }

    /// Writes a value durably if the key is as expected, and returns its version.
    ///
    /// # Errors
    /// [`Error::Conflict`] if it is not.
    pub fn compare_and_set<K: AsRef<[u8]> + ?Sized, V: AsRef<[u8]> + ?Sized>(
        &self,
        key: &K,
        value: &V,
        expect: Expect,
    ) -> Result<i64, Error> {
        self.put_with(key, value, PutOptions::new().expect(expect))
    }

    /// Writes a value with all that can be said about it, and returns its version.
    ///
    /// # Errors
    /// [`Error`].
    pub fn put_with<K: AsRef<[u8]> + ?Sized, V: AsRef<[u8]> + ?Sized>(
        &self,
        key: &K,
        value: &V,
        options: PutOptions<'_>,
    ) -> Result<i64, Error> {
        let (key, value, ttl_ms) = (key.as_ref(), value.as_ref(), options.ttl.map(millis));
        let write = Write::Put { key, value, expect: options.expect, ttl_ms };
        self.write(&write, options.wire, wire::put, |version| Some(Some(Found { value, version: *version, ttl_ms })))
    }

    /// Deletes a key durably. Returns whether it was there.
    ///
    /// # Errors
    /// [`Error`].
    pub fn delete<K: AsRef<[u8]> + ?Sized>(&self, key: &K) -> Result<bool, Error> {
        self.delete_if(key, Expect::Any)
    }

    /// Deletes a key durably if it is as expected. Returns whether it was there.
    ///
    /// # Errors
    /// [`Error::Conflict`] if it is not.
    pub fn delete_if<K: AsRef<[u8]> + ?Sized>(&self, key: &K, expect: Expect) -> Result<bool, Error> {
        self.write(&Write::Delete { key: key.as_ref(), expect }, Options::new(), wire::deleted, |_| Some(None))
    }

    /// Adds to a value that is a whole number in decimal digits, durably; an absent one is 0. Returns the sum.
    ///
    /// # Errors
    /// [`Error::NotANumber`]; the value is as it was then.
    pub fn increment<K: AsRef<[u8]> + ?Sized>(&self, key: &K, delta: i64) -> Result<i64, Error> {
        let write = Write::Increment { key: key.as_ref(), delta };
        Ok(self.write(&write, Options::new(), wire::incremented, |_| None)?.0)
    }

    /// Keys that begin with `prefix`, in byte order, behind `after` if it is given: at most `limit`. Values are left out.
    ///
    /// # Errors
    /// [`Error`].
    pub fn list<P: AsRef<[u8]> + ?Sized>(&self, prefix: &P, after: Option<&[u8]>, limit: u32) -> Result<Page, Error> {
        let shards = self.shards()?;
        let mut merge = Merge::new(shards, &List { prefix: prefix.as_ref(), after, limit, values: false })?;
        loop {
            let wanted = merge.wanted().into_iter().map(|(shard, list)| Ok((shard, wire::list(shards, &list)?)));
            let calls: Vec<(u32, wire::Call)> = wanted.collect::<Result<_, Error>>()?;
            if calls.is_empty() {
                let page = merge.finish();
                return Ok(Page { keys: page.rows, has_more: page.has_more });
            }
            for (shard, call) in calls {
                let answer = self.call(shard, call)?;
                merge.give(shard, &wire::listed(answer.status(), answer.body())?);
            }
        }
    }

    fn shards(&self) -> Result<Shards, Error> {
        self.shards.clone().map_err(Error::from)
    }

    /// One write. `left` says what it left behind, if that is known.
    fn write<'v, T>(
        &self,
        write: &Write<'_>,
        options: Options<'_>,
        read: impl FnOnce(u16, &[u8]) -> Result<T, wire::Error>,
        left: impl FnOnce(&T) -> Option<Option<Found<'v>>>,
    ) -> Result<T, Error> {
        let ticket = self.cache.as_ref().map(|cache| cache.borrow_mut().begin());
        let done = self.send_write(write, options, read);
        if let (Some(cache), Some(ticket)) = (&self.cache, ticket) {
            match done.as_ref().ok().and_then(left) {
                Some(row) => cache.borrow_mut().wrote(ticket, write.key(), row.as_ref(), now_ms()),
                None => cache.borrow_mut().forget(write.key()),
            }
        }
        done
    }

    fn send_write<T>(
        &self,
        write: &Write<'_>,
        options: Options<'_>,
        read: impl FnOnce(u16, &[u8]) -> Result<T, wire::Error>,
    ) -> Result<T, Error> {
        let shards = self.shards()?;
        let answer = self.call(shards.of(write.key()), wire::write(shards, write, options)?)?;
        Ok(read(answer.status(), answer.body())?)
    }

    fn call(&self, shard: u32, call: wire::Call) -> Result<Response, Error> {
        let request = Request::post(format!("/{}", call.path)).with_body(call.body);
        Ok(actors::call(&Address::new(&self.class, shard_name(shard)), &request)?)
    }
}
