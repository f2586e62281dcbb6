//! The functions `fsync` and `fdatasync`.
//!
//! Source: fsync(2), signal-safety(7), pthreads(7) for cancellation points.
// Functions that C programs call.
#![allow(unsafe_code)]

use super::choice::{Choice, Mode};
use super::rounds::{Kind, Outcome, Rounds};
use crate::keeper::Keeper;
use crate::program::{self, FileId, SignalsBlocked};
use crate::raw;
use forebay_run::JoinSyncs;
use forebay_run::area::{self, Counter, FileNumber, Stage};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// The number of files whose syncs can be shared at once. The number of a descriptor selects one.
const NR_PLACES: usize = 64;

/// Syncs of one file at a time.
struct Place {
    choice: Choice,
    rounds: Rounds<FileId, Keeper>,
}

static PLACES: [Place; NR_PLACES] =
    [const { Place { choice: Choice::new(), rounds: Rounds::new() } }; NR_PLACES];

/// A [`JoinSyncs`] as a number.
static JOIN_SYNCS: AtomicU8 = AtomicU8::new(JoinSyncs::Off as u8);

/// The process whose threads share syncs: the first one that has called. A child of a fork has
/// another id.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// This process is a child of a fork by libc. It may have got the id of its ancestor.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

#[cfg(not(any(test, forebay_libaio)))]
mod exports {
    use super::{IS_FORKED, JOIN_SYNCS, call};
    use forebay_run::Settings;
    use std::ffi::c_int;
    use std::sync::atomic::Ordering;

    /// The dynamic linker calls this when it has loaded the library.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static CONFIGURE: extern "C" fn() = configure;

    /// Reads the environment now, because the functions must not allocate memory.
    extern "C" fn configure() {
        JOIN_SYNCS.store(Settings::of_environment().join_syncs() as u8, Ordering::Relaxed);
        // SAFETY: the handler only stores a value.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
    }

    extern "C" fn after_fork() {
        IS_FORKED.store(true, Ordering::Relaxed);
    }

    unsafe extern "C-unwind" {
        /// Ends this thread if a cancellation is pending. Source: pthread_testcancel(3).
        fn pthread_testcancel();
    }

    /// Makes the data and the metadata of a file durable. Returns 0, or -1 and an errno.
    #[unsafe(no_mangle)]
    extern "C-unwind" fn fsync(fd: c_int) -> c_int {
        // SAFETY: no value of this frame needs to be dropped.
        unsafe { pthread_testcancel() };
        call(fd, true)
    }

    /// Makes the data of a file durable. Returns 0, or -1 and an errno.
    #[unsafe(no_mangle)]
    extern "C-unwind" fn fdatasync(fd: c_int) -> c_int {
        // SAFETY: as above.
        unsafe { pthread_testcancel() };
        call(fd, false)
    }
}

/// Makes a call as C has it, for all metadata or only what the data need. A panic ends the process.
#[cfg_attr(any(test, forebay_libaio), expect(dead_code, reason = "for the exported functions"))]
extern "C" fn call(fd: c_int, all: bool) -> c_int {
    match sync(fd, if all { Kind::All } else { Kind::Data }) {
        Ok(()) => 0,
        Err(errno) => {
            // SAFETY: the variable of this thread.
            unsafe { libc::__errno_location().write(errno) };
            -1
        }
    }
}

/// Counts a call, and syncs a file or waits for a sync that other threads share.
fn sync(fd: c_int, kind: Kind) -> Outcome {
    if !area::is_attached() {
        return choose(fd, kind);
    }
    if !area::is_detailed() {
        area::add(Counter::Syncs, 1);
        return choose(fd, kind);
    }
    let id = program::identity_of(fd as u32);
    let number = id.map_or(FileNumber::OTHER, |id| area::known_file(id.dev, id.ino));
    area::count(number, Counter::Syncs, 1);
    let start = program::now_ns();
    let outcome = choose(fd, kind);
    area::record(Stage::Sync, number, program::now_ns() - start);
    outcome
}

/// Syncs a file in the mode that is faster, or that the setting demands.
fn choose(fd: c_int, kind: Kind) -> Outcome {
    let place = &PLACES[fd as usize % NR_PLACES];
    let setting = JOIN_SYNCS.load(Ordering::Relaxed);
    if setting == JoinSyncs::Off as u8 {
        return sync_alone(fd, kind);
    }
    if setting == JoinSyncs::On as u8 {
        return shared(place, fd, kind).unwrap_or_else(|| sync_alone(fd, kind));
    }
    let mode = place.choice.begin();
    let outcome = match mode {
        Mode::Separate | Mode::Settled => None,
        Mode::Shared => shared(place, fd, kind),
    };
    let outcome = outcome.unwrap_or_else(|| sync_alone(fd, kind));
    let now = program::now_ns();
    if place.choice.end(mode, now) {
        let _blocked = SignalsBlocked::all();
        place.choice.advance(now);
    }
    outcome
}

/// Syncs a file in the rounds of its place. `None` if this thread has to make its own sync.
fn shared(place: &Place, fd: c_int, kind: Kind) -> Option<Outcome> {
    // No memory of the program is accessed.
    let _blocked = SignalsBlocked::all();
    let _not_cancelled = crate::exports::NoCancel::new();
    if IS_FORKED.load(Ordering::Relaxed) {
        return None;
    }
    let pid = std::process::id();
    let owner = OWNER.compare_exchange(0, pid, Ordering::Relaxed, Ordering::Relaxed);
    if owner.is_err_and(|owner| owner != pid) {
        return None;
    }
    let file = program::file_of(fd as u32)?;
    let keep = |spare: Option<Keeper>| {
        let keeper = spare.or_else(Keeper::new)?;
        keeper.keep(fd)?;
        // The number may have been used again since the first look.
        (program::file_of(fd as u32) == Some(file)).then_some(keeper)
    };
    let sync = |kind, kept: &mut Option<Keeper>| match kept {
        None => sync_alone(fd, kind),
        Some(_) => sync_round(file, kind, kept),
    };
    let (outcome, is_joined) = place.rounds.sync(file, kind, keep, sync)?;
    if is_joined && area::is_attached() {
        area::count(area::known_file(file.dev, file.ino), Counter::SyncsJoined, 1);
    }
    Some(outcome)
}

/// Makes the sync of a round, whose file is kept: by the program's number, if that refers to the
/// file before and after it, and otherwise by the ring.
fn sync_round(file: FileId, kind: Kind, kept: &mut Option<Keeper>) -> Outcome {
    let is_same = || program::file_of(file.fd) == Some(file);
    let by_number = is_same().then(|| sync_alone(file.fd as c_int, kind));
    // The number was not that of the file during the call.
    let is_other = matches!(by_number, Some(Err(libc::EBADF | libc::EINVAL)));
    let outcome = match by_number {
        Some(outcome) if !is_other && is_same() => outcome,
        _ => {
            let by_ring = kept.as_mut().and_then(|keeper| keeper.sync(kind == Kind::Data));
            match (by_ring, by_number) {
                // The kernel has no thread for the ring, or the program has closed it. No caller of
                // `fsync` expects ECANCELED.
                (None | Some(Err(libc::ECANCELED)), _) => Err(libc::EIO),
                // The error may be that of the file.
                (Some(Ok(())), Some(Err(errno))) if !is_other => Err(errno),
                (Some(outcome), _) => outcome,
            }
        }
    };
    if let Some(keeper) = kept {
        keeper.forget();
    }
    outcome
}

/// Makes the sync of one thread.
fn sync_alone(fd: c_int, kind: Kind) -> Outcome {
    let number = match kind {
        Kind::Data => libc::SYS_fdatasync,
        Kind::All => libc::SYS_fsync,
    };
    // SAFETY: the argument is a number.
    unsafe { raw::call(number, [fd as usize]) }.map(drop)
}
