//! Notes about buffers that are not registered (`fixedbufs`), or not placed as the job asks.

use forebay::Spec;
use forebay_fio::job::{Job, MemoryPolicy};
use forebay_fio::report::number::bytes;

use crate::bench::plan::{Target, innermost};
use crate::bench::registration::{REGISTERED_MAX, Registration, registrable_bytes};

/// Returns the notes about a target. `sharing` returns the job of each clone that uses the disk.
pub(super) fn notes<'a>(
    job: &Job,
    target: &Target,
    sharing: impl Iterator<Item = &'a Job>,
) -> Vec<String> {
    if !has_rings(&target.spec) {
        // The disk refuses to register buffers.
        return Vec::new();
    }
    let notes = [note_of_size(job, target, sharing), note_of_placement(job, target)];
    notes.into_iter().flatten().collect()
}

/// Returns a note about buffers that are too large to be registered together.
fn note_of_size<'a>(
    job: &Job,
    target: &Target,
    sharing: impl Iterator<Item = &'a Job>,
) -> Option<String> {
    let is_limited = target.spec.get("fixed_buffers") == Some(&*REGISTERED_MAX.to_string());
    if job.fixedbufs != Some(true) || !is_limited {
        return None;
    }
    let mut registration = Registration::default();
    sharing.for_each(|job| registration.add(job));
    let total = Some(registration.needed_bytes()).filter(|&total| total > REGISTERED_MAX)?;
    Some(format!(
        "{}: --fixedbufs: the buffers for {} need {}, but a ring registers at most {}; the other \
         buffers are not registered; lower --bs, --iodepth or --numjobs",
        job.name,
        target.name(),
        bytes(total),
        bytes(REGISTERED_MAX)
    ))
}

/// Returns a note about registered buffers that `numa_mem_policy` does not place.
fn note_of_placement(job: &Job, target: &Target) -> Option<String> {
    let is_registered = target.spec.get("fixed_buffers").is_some() && registrable_bytes(job) > 0;
    if job.placement.memory == MemoryPolicy::Default || !is_registered {
        return None;
    }
    Some(format!(
        "{}: --numa_mem_policy has no effect on its registered buffers for {}: their memory is \
         allocated when the disk is opened, before the job begins; set --fixedbufs=0, or run \
         forebay with numactl(8)",
        job.name,
        target.name()
    ))
}

/// Returns whether a disk does its I/O through rings.
fn has_rings(spec: &Spec) -> bool {
    let is_file = innermost(spec).is_some_and(|inner| inner.driver() == "file");
    is_file && !matches!(spec.get("engine"), Some("aio" | "psync"))
}

#[cfg(test)]
mod tests {
    use forebay_fio::cmdline::{Parsed, parse};

    use super::super::notes;
    use crate::bench::plan::plan;

    #[track_caller]
    fn check(args: &str, expected: &[&str]) {
        let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else {
            panic!("{args}")
        };
        assert_eq!(notes(&command.jobs, &plan(&command.jobs).expect(args)), expected, "{args}");
    }

    const ARGS: &str = "--filename=x --rw=randread --iodepth=64 --fixedbufs=1 --bs=1m --numjobs=";

    #[test]
    fn buffers_that_cannot_be_registered_together_are_noted() {
        check(&format!("{ARGS}16 --name=a"), &[]);
        let note = "a: --fixedbufs: the buffers for x need 1280MiB, but a ring registers at most \
                    1024MiB; the other buffers are not registered; lower --bs, --iodepth or \
                    --numjobs";
        check(&format!("{ARGS}20 --name=a"), &[note]);
        check(&format!("{ARGS}20 --name=a --ioengine=io_uring"), &[note]);
    }

    #[test]
    fn buffers_of_several_stages_are_registered_one_after_another() {
        check(&format!("{ARGS}10 --name=a --name=b --stonewall"), &[]);
        let note = "b: --fixedbufs: the buffers for x need 1280MiB, but a ring registers at most \
                    1024MiB; the other buffers are not registered; lower --bs, --iodepth or \
                    --numjobs";
        let args = format!("{ARGS}10 --name=a --fixedbufs=0 --name=b --stonewall --name=c");
        check(&args, &[note, &note.replace("b: ", "c: ")]);
    }

    #[test]
    fn disks_without_rings_have_no_note_beside_their_refusal() {
        for disk in ["--ioengine=libaio", "--filename=psync:x", "--filename=x?engine=aio"] {
            let args = format!("{ARGS}20 --name=a --numa_mem_policy=local {disk}");
            check(&args, &[]);
        }
    }

    #[test]
    fn memory_policy_of_registered_buffers_is_noted() {
        let of = |job: &str| {
            format!(
                "{job}: --numa_mem_policy has no effect on its registered buffers for x: their \
                 memory is allocated when the disk is opened, before the job begins; set \
                 --fixedbufs=0, or run forebay with numactl(8)"
            )
        };
        let args = "--filename=x --numa_mem_policy=local --name=a";
        check(args, &[]);
        check(&format!("{args} --fixedbufs=1"), &[&of("a")]);
        check(&format!("{args} --name=b --fixedbufs=1"), &[&of("a"), &of("b")]);
        check(&format!("{args} --fixedbufs=0 --name=b --fixedbufs=1"), &[&of("b")]);
        check(&format!("{args} --rw=trim --fixedbufs=1"), &[]);
        check("--filename=x?fixed_buffers=1M --numa_mem_policy=local --name=a", &[&of("a")]);
    }
}
