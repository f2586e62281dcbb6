//! Counters of a disk by name, from the library's table of counters.
// Exports functions to C.
#![allow(unsafe_code)]

use crate::args::{place_of, text_of};
use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, guard};
use crate::handle;
use forebay::{COUNTERS, DiskStats, MergeKind, Op, OpStats, UnplugCause};
use std::ffi::{CString, c_char, c_int};
use std::sync::LazyLock;

/// A counter.
struct Named {
    name: CString,
    help: CString,
    get: Box<dyn Fn(&DiskStats) -> u64 + Send + Sync>,
}

impl Named {
    fn new(
        name: String,
        help: &str,
        get: impl Fn(&DiskStats) -> u64 + Send + Sync + 'static,
    ) -> Named {
        let text = |text: &str| CString::new(text).expect("names have no zero bytes");
        Named { name: text(&name), help: text(help), get: Box::new(get) }
    }
}

/// The counters in the order of their numbers: those of the table, those of the driver, and those
/// of each operation.
static ALL: LazyLock<Vec<Named>> = LazyLock::new(|| {
    let mut all: Vec<Named> = COUNTERS
        .iter()
        .map(|counter| {
            let get = |stats: &DiskStats| counter.of(&stats.queue);
            Named::new(counter.name.to_owned(), counter.help, get)
        })
        .collect();
    all.push(Named::new("nr_syscalls".to_owned(), "System calls made by the driver.", |stats| {
        stats.nr_syscalls
    }));
    all.push(Named::new(
        "skipped_runs".to_owned(),
        "Runs of hardware contexts that were left to another thread.",
        |stats| stats.skipped_runs,
    ));
    all.push(Named::new(
        "tag_rescues".to_owned(),
        "Waits for tags of a shared set that ended without a wake-up. Above 0 is a bug.",
        |stats| stats.tag_rescues,
    ));
    for kind in MergeKind::ALL {
        let help = "I/Os that merged into a request of others in this way.";
        let name = format!("merges_{}", kind.name());
        all.push(Named::new(name, help, move |stats| stats.queue.merges(kind)));
    }
    for cause in UnplugCause::ALL {
        let help = "How often requests were unplugged for this reason.";
        let name = format!("unplugs_{}", cause.name());
        all.push(Named::new(name, help, move |stats| stats.queue.unplugs(cause)));
    }
    for op in Op::ALL {
        let mut add = |what: &str, help: &str, get: fn(&OpStats) -> u64| {
            let name = format!("{}_{what}", op.name());
            all.push(Named::new(name, help, move |stats| get(stats.queue.op(op))));
        };
        add("bios", "I/Os of this operation that ended.", |op| op.bios);
        add("merges", "I/Os of this operation that merged into a request of others.", |op| {
            op.merges
        });
        add("requests", "Requests of this operation that completed.", |op| op.requests);
        add("bytes", "Bytes of the completed requests of this operation.", |op| op.bytes);
        add("ticks_ns", "Time from tag to completion, summed over requests, ns.", |op| op.ticks_ns);
    }
    all
});

/// Returns the number of counters. Counters are numbered from 0.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_stats_count() -> u32 {
    u32::try_from(guard(|| Ok(ALL.len() as i64))).unwrap_or(0)
}

fn text_at(index: u32, get: fn(&Named) -> &CString) -> *const c_char {
    let mut text = std::ptr::null();
    guard(|| {
        let counter = ALL.get(index as usize).ok_or_else(|| {
            Failure::invalid(format!("{index} is no counter; there are {}", ALL.len()))
        })?;
        text = get(counter).as_ptr();
        Ok(0)
    });
    text
}

/// Returns the name of a counter, such as "issued", or NULL if there is no such number. Names that
/// end in _ns are nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_stats_name(index: u32) -> *const c_char {
    text_at(index, |counter| &counter.name)
}

/// Returns the meaning of a counter as a sentence, or NULL if there is no such number.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_stats_help(index: u32) -> *const c_char {
    text_at(index, |counter| &counter.help)
}

/// Stores the counter with a name in *value. Counters count since the disk was opened.
///
/// Returns 0, or a negative errno: -ENOENT if there is no such counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_stats_get(
    disk: *mut forebay_disk,
    name: *const c_char,
    value: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle, and a C string or null.
        let (disk, name) = unsafe { (handle::get::<OpenDisk>(disk)?, text_of(name, "name")?) };
        let place = place_of(value)?;
        let counter = ALL.iter().find(|counter| counter.name.as_bytes() == name.as_bytes());
        let counter = counter.ok_or_else(|| {
            let text = format!("no counter is named `{name}`; forebay_stats_name() lists them");
            Failure::new(libc::ENOENT, text)
        })?;
        // SAFETY: the caller passes the place of a number; null was refused.
        unsafe { place.write((counter.get)(&disk.disk.stats())) };
        Ok(0)
    })
}

/// Stores the first nr counters in an array, in the order of their numbers.
///
/// Returns how many were stored, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_stats_read(
    disk: *mut forebay_disk,
    values: *mut u64,
    nr: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle.
        let disk = unsafe { handle::get::<OpenDisk>(disk) }?;
        let place = place_of(values)?;
        let stats = disk.disk.stats();
        let stored = ALL.iter().take(nr as usize).enumerate().map(|(at, counter)| {
            // SAFETY: the caller passes an array of `nr` numbers.
            unsafe { place.add(at).write((counter.get)(&stats)) };
        });
        Ok(stored.count() as c_int)
    })
}

#[cfg(test)]
mod tests {
    use super::ALL;
    use std::collections::BTreeSet;

    #[test]
    fn every_counter_has_a_name_of_its_own() {
        let names: BTreeSet<_> = ALL.iter().map(|counter| &counter.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
