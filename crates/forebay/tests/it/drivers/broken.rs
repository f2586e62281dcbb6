//! Devices that break a rule which no check of a completion finds: `forebay::testing` finds it.

use crate::backends::limits_of;
use crate::common::run_again;
use forebay::testing::{CHECKS, Check, LEN, Subject};
use forebay::{Backend, Batch, BlockStatus, Disk, Op, Request};
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
}

struct State {
    bytes: Vec<u8>,
    nr: u64,
}

struct Broken {
    state: Mutex<State>,
    breaks: Breaks,
}

impl Broken {
    fn serve(&self, state: &mut State, mut request: Request) {
        let State { bytes, nr } = state;
        *nr += 1;
        let len = match self.breaks {
            Breaks::MovesOnlyTheFirstPage => request.len().min(4096),
            _ => request.len(),
        } as usize;
        let range = request.offset() as usize..request.offset() as usize + len;
        let result = match (request.op(), self.breaks) {
            (_, Breaks::ForgetsEachNinth) if nr.is_multiple_of(9) => {
                return std::mem::forget(request);
            }
            (Op::Write, Breaks::LosesEachSeventhWrite) if nr.is_multiple_of(7) => Ok(()),
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

fn subject(breaks: Breaks) -> Subject<'static> {
    Subject::new(move |setup| {
        let state = Mutex::new(State { bytes: vec![0; LEN as usize], nr: 0 });
        let limits = setup.limits(limits_of(LEN, ""));
        let broken = Broken { state, breaks };
        Disk::with_backend(broken, limits, setup.policy()).expect("a disk")
    })
}

fn named(name: &str) -> Check {
    *CHECKS.iter().find(|check| check.name == name).expect("a check")
}

#[test]
fn each_broken_rule_fails_its_check() {
    for (breaks, name) in [
        (Breaks::LosesEachSeventhWrite, "written_data_is_read"),
        (Breaks::MovesOnlyTheFirstPage, "several_segments_are_one_range"),
        (Breaks::IgnoresZeroes, "ranges_are_zeroed"),
        (Breaks::FailsFlushes, "durable_writes_and_flushes_succeed"),
        (Breaks::ReadsOldData, "blocks_are_registers"),
        (Breaks::LosesEachSeventhWrite, "a_random_trace_ends_as_on_a_ram_disk"),
    ] {
        named(name).run(&subject(Breaks::Nothing));
        let run = || named(name).run(&subject(breaks));
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err(), "{breaks:?} passes {name}");
    }
}

#[test]
fn report_names_the_checks_that_fail_and_their_rules() {
    let run = || subject(Breaks::IgnoresZeroes).check();
    let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("it fails");
    let text = payload.downcast_ref::<String>().expect("a text");
    assert!(text.contains("ranges_are_zeroed (K6)"), "{text}");
    assert!(!text.contains("many_are_in_flight_at_once"), "{text}");
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
fn request_that_never_completes_ends_the_process_with_the_name_of_the_check() {
    let test = "drivers::broken::\
                request_that_never_completes_ends_the_process_with_the_name_of_the_check";
    let Some(output) = run_again(test, &[]) else {
        let limited = subject(Breaks::ForgetsEachNinth).time_limit(Duration::from_secs(1));
        return named("many_are_in_flight_at_once").run(&limited);
    };
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    assert!(
        text.contains("contract: many_are_in_flight_at_once has not ended within 1s"),
        "{text}"
    );
}
