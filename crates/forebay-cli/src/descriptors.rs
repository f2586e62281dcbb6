//! The limit of descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of descriptors as far as the process may: each connection needs one, and each
/// file of a trace.
pub(crate) fn raise_nr_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // If that fails, the server refuses connections earlier, and a trace reports the failed open.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
