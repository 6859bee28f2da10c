//! Every bound of the node: its name, why this number, what happens when it is reached. Storage has its own list.

/// Bytes of one request body. Above it: 413 `too-large`, at once when the request announces its length.
pub const REQUEST_BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of bodies, read from clients or on their way to them, held by one core: sixteen of the largest. Above it a request is
/// answered 503 `unavailable` with Retry-After before anything ran.
pub const BODY_BYTES_IN_FLIGHT_MAX: usize = 16 * REQUEST_BODY_BYTES_MAX;

/// Bytes of a request's head (its line and headers), as other servers choose it; also the read buffer of a connection. Above it:
/// 431.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Client connections of one core: what 1 GB of buffers and an open-file limit of 65,536 bear on a few cores. Above it a
/// connection is answered 503 with Retry-After and closed.
pub const CONNECTIONS_MAX: usize = 8192;

/// Accepted connections waiting for their core to take them. When every core's queue is full the acceptor waits, and
/// connections wait in the kernel's backlog instead.
pub const INCOMING_MAX: usize = 1024;

/// The kernel's queue of connections that were not accepted yet. Above it clients retry their SYN.
pub const LISTEN_BACKLOG: i32 = 1024;

/// Streams that are open at once on one HTTP/2 connection. A client waits before it opens more.
pub const H2_STREAMS_MAX: u32 = 256;

/// Bytes an HTTP/2 client may send ahead on one stream, and on one connection. Small, because a stalled core holds them all.
pub const H2_WINDOW_BYTES: u32 = 256 * 1024;

/// A connection that sent part of a request's head has this long to send the rest, ms. Then it is closed.
pub const HEAD_WAIT_MS_MAX: u64 = 10_000;

/// A connection without a request is kept this long, ms: longer than the 60 s of common proxies. Then it is closed.
pub const KEEP_ALIVE_MS_MAX: u64 = 75_000;

/// A body must make progress (one byte, either way) within this time, ms. Then its connection is closed.
pub const TRANSFER_STALL_MS_MAX: u64 = 30_000;

/// A body must be through within this time, ms: 16 MB at 0.5 Mbit/s. Then its connection is closed.
pub const TRANSFER_MS_MAX: u64 = 300_000;

/// Once we are done with a connection, its client has this long to stop sending, ms, so that it can read our last answer.
pub const LINGER_MS_MAX: u64 = 2_000;

/// How often a core looks for connections that overstay, ms. Every wait above is exact to this.
pub const SWEEP_MS: u64 = 1_000;

/// Bytes of a class's `env`, names and values. Above it the configuration is refused.
pub const CLASS_ENV_BYTES_MAX: usize = 64 * 1024;

/// Classes of one node; every class has about forty series in `/metrics`. Above it the configuration is refused.
pub const CLASSES_MAX: usize = 1024;

/// Bytes of a configuration file. Above it the file is refused.
pub const CONFIG_BYTES_MAX: u64 = 1024 * 1024;

/// Bytes of a class's name.
pub const CLASS_NAME_BYTES_MAX: usize = 63;

/// Bytes of an actor's name, after percent-decoding. Above it: 400 `bad-address`.
pub const ACTOR_NAME_BYTES_MAX: usize = 256;

/// Connections of the admin listener. Above it the oldest ones are served first and new ones wait.
pub const ADMIN_CONNECTIONS_MAX: usize = 64;

/// Bytes of a request to the admin listener: a statement of the largest size and its JSON. Above it: 413.
pub const ADMIN_BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// One admin request may take this long, ms. Then it is answered 504.
pub const ADMIN_WALL_MS_MAX: u64 = 60_000;

/// Bytes of an admin answer that the command line reads.
pub const ADMIN_ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Once its drain is over, a stopping node has this long to flush and checkpoint, ms. Then the process ends anyway: the journal
/// has everything that was acknowledged.
pub const STOP_FLUSH_MS_MAX: u64 = 60_000;

/// Events of one core that were taken and not answered yet. Above it an event is refused with 503 `mailbox-full`.
pub const EVENTS_PER_CORE_MAX: usize = 65_536;

/// Events waiting in one actor's mailbox: seconds of work for a fast actor. Above it: 503 `mailbox-full` with Retry-After.
pub const MAILBOX_EVENTS_MAX: usize = 1024;

/// Bytes of events waiting in one actor's mailbox: two of the largest bodies. Above it as above; one event always fits.
pub const MAILBOX_BYTES_MAX: usize = 2 * REQUEST_BODY_BYTES_MAX;

/// Bytes of outputs waiting at one core's gates. Above it no new event starts until some have left.
pub const GATE_BYTES_MAX: usize = 128 * 1024 * 1024;

/// What the pump takes before it lets the journal write and the other tasks of its core run.
pub const WAKES_PER_TURN_MAX: usize = 256;

/// Events and answers in the channel to one core. When it is full they wait with the sender, whose requests are bounded by
/// `EVENTS_PER_CORE_MAX`.
pub const REMOTE_MAX: usize = 1024;

/// How often a core looks at deadlines and idle actors, ms. Every such time is exact to this.
pub const CORE_SWEEP_MS: u64 = 50;

/// Alarms of one core whose times are kept in memory. Those due later are read again when they come near.
pub const ALARMS_KEPT_MAX: usize = 65_536;

/// Alarms due within this time are kept in memory, ms.
pub const ALARMS_LOOK_AHEAD_MS: u64 = 600_000;

/// An alarm whose event failed comes again after this, ms, then after twice as long each time.
pub const ALARM_RETRY_MS_MIN: u64 = 1_000;

/// But never later than this, ms.
pub const ALARM_RETRY_MS_MAX: u64 = 300_000;

/// Once nobody asks any more, running events of clients that went away have this long to end, ms. Then they are aborted.
pub const STOP_ACTORS_MS_MAX: u64 = 5_000;

/// Memory is given back to the system after a core had something of at least this many actors in memory, and most of it is gone.
pub const TRIM_ACTORS_MIN: usize = 256;

/// For so many sweeps it must have stayed so, which is about three seconds: actors that come and go every moment keep their memory.
pub const TRIM_SWEEPS: u32 = 60;

/// Events that an actor of a native class does in one transaction: beyond this a larger group saves little. The rest wait.
pub const NATIVE_BATCH_MAX: usize = 64;

/// Bytes of events after which a native class's transaction takes no more of them: a quarter of what a transaction may change.
pub const NATIVE_BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of answers after which a native class's batch does nothing more: two of the largest. The rest is another batch's.
pub const NATIVE_REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A batch that could not be brought to its consumer, who was busy or could not be reached, is tried again after this, ms.
pub const DELIVERY_WITHDRAWN_MS: u64 = 1_000;

/// The shortest token of the service door, bytes: 16 random letters and digits are not guessed. Below it the file is refused.
pub const API_TOKEN_BYTES_MIN: usize = 16;

/// The longest token of the service door, bytes: signed tokens of others are no longer. Above it the file is refused.
pub const API_TOKEN_BYTES_MAX: usize = 256;

/// Bytes of a token's name, which is a caller's name in logs. Above it the file is refused.
pub const API_TOKEN_NAME_BYTES_MAX: usize = 63;

/// Tokens of one node. Above it the file is refused.
pub const API_TOKENS_MAX: usize = 1024;

/// Bytes of a file of tokens: all of the longest. Above it the file is refused.
pub const API_TOKENS_FILE_BYTES_MAX: u64 = 512 * 1024;

/// Bytes of rows that one listing through the service door holds before it is answered. Above it: 413, with the advice to ask for
/// fewer rows.
pub const DOOR_LISTING_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes of values that one read of many keys through the service door holds before it is answered: as for a listing.
pub const DOOR_VALUES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Shards that one request through the service door asks at once. The rest are asked as answers come.
pub const DOOR_SHARDS_AT_ONCE: usize = 64;

/// Rows of a listing through the service door, unless asked otherwise.
pub const DOOR_LIST_ROWS: u32 = 100;

/// Bytes of a body of JSON at the service door: reading it keeps a core from everything else for some milliseconds. Above it: 413,
/// with the advice to send frames, which are passed on as they are.
pub const DOOR_JSON_BYTES_MAX: usize = 2 * 1024 * 1024;
