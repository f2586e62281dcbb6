//! Devices that break a rule which no check of a completion finds: `forebay::testing` finds it.

use super::missed_events::{Missed, MissesEvents};
use crate::backends::limits_of;
use crate::common::run_again;
use crate::own_driver::{OwnDriver, Way};
use forebay::testing::{CHECKS, Check, LEN, Setup, Subject};
use forebay::{Backend, Batch, BlockStatus, Disk, Op, Policy, Request};
use std::env;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;

/// A rule that a device in memory breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Breaks {
    Nothing,
    LosesEachSeventhWrite,
    MovesOnlyTheFirstPage,
    IgnoresZeroes,
    FailsFlushes,
    ReadsOldData,
    ForgetsEachNinth,
    FailsReads,
    FailsWrites,
    /// Once the bad block was read, every read fails.
    FailsAfterTheBadBlock,
    /// Writes complete at once, and reach the memory with a later request.
    AppliesWritesLate,
    /// The disk is not opened with [`Setup::limits`].
    IgnoresLimits,
    /// The disk is not opened with [`Setup::policy`].
    IgnoresPolicy,
    /// The device takes requests of one page only.
    TakesOnePage,
    /// The disk is read before it is handed over.
    ReadsWhenItOpens,
}

/// The offset of 4 KiB that cannot be read, if a check asks for them.
const BAD: u64 = 8192;

struct State {
    bytes: Vec<u8>,
    nr: u64,
    /// Writes that have not reached the memory: the number of the request, offset and data.
    late: Vec<(u64, usize, Vec<u8>)>,
    is_failed: bool,
}

impl State {
    /// Applies the late writes that are older than eight requests.
    fn apply(&mut self) {
        let State { bytes, nr, late, .. } = self;
        late.retain(|(of, start, data)| {
            let is_late = *of + 8 > *nr;
            if !is_late {
                bytes[*start..start + data.len()].copy_from_slice(data);
            }
            is_late
        });
    }
}

struct Broken {
    state: Mutex<State>,
    breaks: Breaks,
    /// Whether the 4 KiB from [`BAD`] on cannot be read.
    has_bad_block: bool,
}

impl Broken {
    fn serve(&self, state: &mut State, mut request: Request) {
        state.nr += 1;
        state.apply();
        let State { bytes, nr, late, is_failed } = state;
        let len = match self.breaks {
            Breaks::MovesOnlyTheFirstPage => request.len().min(4096),
            _ => request.len(),
        } as usize;
        let range = request.offset() as usize..request.offset() as usize + len;
        let (start, end) = (request.offset(), request.offset() + request.len());
        if self.has_bad_block && request.op() == Op::Read {
            let is_bad = start < BAD + 4096 && BAD < end;
            *is_failed |= is_bad && self.breaks == Breaks::FailsAfterTheBadBlock;
            if is_bad || *is_failed {
                return request.complete(Err(BlockStatus::Medium));
            }
        }
        let result = match (request.op(), self.breaks) {
            (_, Breaks::ForgetsEachNinth) if nr.is_multiple_of(9) => {
                return std::mem::forget(request);
            }
            (Op::Write, Breaks::LosesEachSeventhWrite) if nr.is_multiple_of(7) => Ok(()),
            (Op::Write, Breaks::FailsWrites) | (Op::Read, Breaks::FailsReads) => {
                Err(BlockStatus::Io)
            }
            (Op::Write, Breaks::AppliesWritesLate) => {
                late.push((*nr, range.start, request.to_vec()));
                Ok(())
            }
            (Op::Write, _) => {
                request.copy_to(0, &mut bytes[range]);
                Ok(())
            }
            (Op::Read, Breaks::ReadsOldData) if nr.is_multiple_of(5) => {
                request.fill_zeroes(0, len);
                Ok(())
            }
            (Op::Read, _) => {
                request.copy_from(0, &bytes[range]);
                Ok(())
            }
            (Op::Discard | Op::WriteZeroes, Breaks::IgnoresZeroes) => Ok(()),
            (Op::Discard | Op::WriteZeroes, _) => {
                for (start, len) in request.ranges() {
                    bytes[start as usize..(start + len) as usize].fill(0);
                }
                Ok(())
            }
            (Op::Flush, Breaks::FailsFlushes) => Err(BlockStatus::Io),
            (Op::Flush, _) => Ok(()),
        };
        request.complete(result);
    }
}

impl Backend for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        let mut state = self.state.lock().expect("no panic");
        batch.for_each(|request| self.serve(&mut state, request));
    }
}

fn open(breaks: Breaks, setup: &Setup, has_bad_block: bool) -> Disk {
    let bytes = vec![0; LEN as usize];
    let state = Mutex::new(State { bytes, nr: 0, late: Vec::new(), is_failed: false });
    let mut limits = match breaks {
        Breaks::IgnoresLimits => limits_of(LEN, ""),
        _ => setup.limits(limits_of(LEN, "")),
    };
    if breaks == Breaks::TakesOnePage {
        limits.max_sectors = 8;
    }
    let policy = match breaks {
        Breaks::IgnoresPolicy => Policy::default(),
        _ => setup.policy(),
    };
    let broken = Broken { state, breaks, has_bad_block };
    let disk = Disk::with_backend(broken, limits, policy).expect("a disk");
    if breaks == Breaks::ReadsWhenItOpens {
        disk.read_at(&mut [0; 4096], 0).expect("a read");
    }
    disk
}

fn subject(breaks: Breaks) -> Subject<'static> {
    Subject::new(move |setup| open(breaks, setup, false))
}

fn failing_subject(breaks: Breaks) -> Subject<'static> {
    let failing = move |setup: &Setup| open(breaks, setup, true);
    subject(breaks).with_failing_block(BAD, BlockStatus::Medium, failing)
}

/// A driver whose waiting thread misses a kick or a completion.
fn subject_that_misses(missed: Missed) -> Subject<'static> {
    Subject::new(move |setup| {
        let inner = OwnDriver::new(setup.limits(limits_of(LEN, "")), Way::List);
        Disk::with_driver(MissesEvents::new(inner, missed), setup.policy()).expect("a disk")
    })
}

fn named(name: &str) -> Check {
    *CHECKS.iter().find(|check| check.name == name).expect("a check")
}

/// Broken rules whose check panics, with a part of the sentence.
const PANICS: [(Breaks, &str, &str); 15] = [
    (Breaks::LosesEachSeventhWrite, "written_data_is_read", "read other data"),
    (Breaks::MovesOnlyTheFirstPage, "several_segments_are_one_range", "read other data"),
    (
        Breaks::FailsFlushes,
        "durable_writes_and_flushes_succeed",
        "a durable write or a flush ended",
    ),
    (Breaks::IgnoresZeroes, "ranges_are_zeroed", "read other data"),
    (
        Breaks::ReadsWhenItOpens,
        "unaligned_or_out_of_range_io_is_refused",
        "the device got 1 requests, although all I/O was refused",
    ),
    (
        Breaks::TakesOnePage,
        "a_plug_makes_one_request_of_neighbours",
        "16 neighbours under a plug became 16 requests",
    ),
    (Breaks::IgnoresLimits, "a_large_bio_is_split", "use `Setup::limits`"),
    (
        Breaks::IgnoresPolicy,
        "nowait_io_ends_at_once",
        "a nowait read of more requests than tags (use `Setup::policy`",
    ),
    (Breaks::ReadsOldData, "blocks_are_registers", "register "),
    (Breaks::LosesEachSeventhWrite, "a_random_trace_ends_as_on_a_ram_disk", "(or other data)"),
    (
        Breaks::FailsAfterTheBadBlock,
        "an_error_ends_only_its_own_io",
        "the read of block 1 of 3 ended with Err(Medium); expected Ok(4096)",
    ),
    (Breaks::LosesEachSeventhWrite, "threads_share_a_context", "read other data"),
    (Breaks::AppliesWritesLate, "dropping_a_queue_completes_its_writes", "read other data"),
    (Breaks::FailsReads, "a_freeze_waits_for_entered_bios", "a read beside freezes ended with"),
    (
        Breaks::FailsWrites,
        "a_child_of_a_fork_uses_no_device",
        "a write during a fork ended with Err(Io)",
    ),
];

type OpenSubject = fn() -> Subject<'static>;

/// Broken rules whose check never ends, so that the watchdog ends the process.
const HANGS: [(&str, OpenSubject); 5] = [
    ("many_requests_in_flight_all_complete", || subject(Breaks::ForgetsEachNinth)),
    ("dropping_a_disk_completes_its_io", || subject(Breaks::ForgetsEachNinth)),
    ("waiters_continue_after_the_end_of_a_hold", || subject(Breaks::ForgetsEachNinth)),
    ("a_descriptor_is_readable_when_a_reap_is_due", || subject_that_misses(Missed::Descriptors)),
    ("futures_complete_when_no_other_code_drives_the_disk", || subject_that_misses(Missed::Kicks)),
];

#[test]
fn each_check_has_a_broken_device_that_fails_it() {
    for check in CHECKS {
        let panics = PANICS.iter().any(|(_, name, _)| *name == check.name);
        let hangs = HANGS.iter().any(|(name, _)| *name == check.name);
        assert!(panics != hangs, "{}", check.name);
    }
}

#[test]
fn broken_rule_fails_its_check_with_a_sentence() {
    for (breaks, name, sentence) in PANICS {
        named(name).run(&failing_subject(Breaks::Nothing));
        let run = || named(name).run(&failing_subject(breaks));
        let panic = catch_unwind(AssertUnwindSafe(run));
        let panic = panic.expect_err(&format!("{breaks:?} passes {name}"));
        let text = panic.downcast_ref::<String>().expect("a sentence");
        assert!(text.contains(sentence), "{breaks:?}, {name}: {text}");
    }
}

#[test]
fn report_names_the_checks_that_fail_and_their_rules() {
    let run = || subject(Breaks::IgnoresZeroes).check();
    let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("it fails");
    let text = payload.downcast_ref::<String>().expect("a text");
    assert!(text.contains("ranges_are_zeroed (K6)"), "{text}");
    assert!(!text.contains("many_requests_in_flight_all_complete"), "{text}");
}

#[test]
fn report_gives_the_reason_for_a_check_that_is_skipped() {
    let test = "drivers::broken::report_gives_the_reason_for_a_check_that_is_skipped";
    let Some(output) = run_again(test, &[]) else { return subject(Breaks::Nothing).check() };
    let text = String::from_utf8_lossy(&output.stdout);
    let skipped = "contract: an_error_ends_only_its_own_io: skipped: the subject has no block";
    assert!(text.contains(skipped), "{text}");
    assert_eq!(text.matches(": skipped: ").count(), 1, "{text}");
}

#[test]
fn check_that_never_ends_ends_the_process_with_its_name() {
    const NAME: &str = "FOREBAY_BROKEN_CHECK";
    let test = "drivers::broken::check_that_never_ends_ends_the_process_with_its_name";
    for (name, _) in HANGS {
        let Some(output) = run_again(test, &[(NAME, name)]) else {
            let wanted = env::var(NAME).expect("the parent sets it");
            let (_, subject) = HANGS.into_iter().find(|row| row.0 == wanted).expect("a row");
            return named(&wanted).run(&subject().time_limit(Duration::from_millis(500)));
        };
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{name}: {text}");
        let line = format!("contract: {name} has not ended within 500ms: a request has not");
        assert!(text.contains(&line), "{name}: {text}");
    }
}

#[test]
fn driver_that_misses_no_event_passes_the_checks_of_waits() {
    for name in
        ["waiters_continue_after_the_end_of_a_hold", "a_descriptor_is_readable_when_a_reap_is_due"]
    {
        named(name).run(&subject_that_misses(Missed::Nothing));
    }
}
