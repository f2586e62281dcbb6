//! The integration tests, as one program: shared helpers are compiled once, and all of them are
//! used.

mod backends;
mod blocking;
#[path = "../support/ceph.rs"]
mod ceph;
mod claims;
mod common;
mod contract;
mod counted_calls;
mod crowd;
mod data;
mod deadlines;
mod drivers;
mod durability;
mod early_ends;
mod event_loop;
#[cfg(feature = "tracing")]
mod events;
mod extents;
mod facts;
mod fallback;
mod forbidden;
#[path = "../support/forked.rs"]
mod forked;
mod futures;
mod group_commit;
mod held_calls;
mod holds;
mod hung_disks;
mod leaks;
mod limit_calls;
mod miri;
mod nbd;
mod nbd_peers;
#[path = "../support/nbd_server.rs"]
mod nbd_server;
mod options;
mod origins;
mod overlap;
#[path = "../support/own_driver.rs"]
mod own_driver;
mod owners;
mod plug;
mod plugged;
mod poll_handles;
mod progress;
mod raw_io;
mod rbd;
mod refusals;
mod rings;
mod run_queue;
mod scheduler_changes;
mod scripts;
mod seccomp;
mod signals;
mod size;
#[path = "../support/skip.rs"]
mod skip;
mod skips;
mod soak;
#[path = "../support/storage_daemon.rs"]
mod storage_daemon;
mod tags;
#[path = "../support/thin_device.rs"]
mod thin_device;
mod threads;
mod timeouts;
#[cfg(feature = "tokio")]
mod tokio;
mod vectored;
mod vhost_user;
mod wakeups;
mod write_back;
