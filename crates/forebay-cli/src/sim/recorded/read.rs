//! Recordings as threads of a simulated disk.
//!
//! An iolog has the I/Os of one thread. Files of one name are one file, also in several logs. They
//! lie one after another on the disk, in the order in which the logs name them. A trace of blktrace
//! has the number of the thread in each record, and offsets of the disk.

use std::path::{Path, PathBuf};

use forebay_fio::iolog::{Changes, Recording, Step};
use forebay_sim::RecordedThread;

use crate::failure::Failure;
use crate::recording::{blktrace, read_iolog};

/// Each file begins at a multiple of this many bytes.
const FILE_ALIGN: u64 = 1 << 20;

/// Returns the threads of these recordings, after these changes.
///
/// # Errors
/// A recording cannot be read, or a trace is given beside another recording.
pub(super) fn threads(
    paths: &[PathBuf],
    changes: &Changes,
) -> Result<Vec<RecordedThread>, Failure> {
    let about = |path: &Path| format!("--trace={}: ", path.display());
    let mut logs = Vec::new();
    for path in paths {
        let is_trace = blktrace::is_trace(path).map_err(|error| {
            Failure::Run(format!("{}cannot read the recording: {error}", about(path)))
        })?;
        if is_trace && paths.len() > 1 {
            let why = "a trace has the I/Os of all threads; give it alone, or only iologs";
            return Err(Failure::Usage(about(path) + why));
        }
        if is_trace {
            let traced = blktrace::read_threads(path);
            return traced
                .and_then(|traced| of_trace(traced, changes))
                .map_err(|error| Failure::Run(about(path) + &error));
        }
        let log = read_iolog(path).map_err(|error| error.with_context(&about(path)))?;
        logs.push((path.as_path(), log.changed(changes)));
    }
    of_logs(logs).map_err(|path| {
        Failure::Run(format!("{}its files are larger than any disk; split the log", about(path)))
    })
}

/// Returns a thread for each log. Each file gets a place on the disk.
///
/// # Errors
/// The path of the log whose files end beyond any disk.
fn of_logs(logs: Vec<(&Path, Recording)>) -> Result<Vec<RecordedThread>, &Path> {
    let mut files: Vec<(String, u64)> = Vec::new();
    for (_, log) in &logs {
        for (at, name) in (0..).zip(log.files()) {
            let end = log.end_of(at);
            match files.iter_mut().find(|(other, _)| other == name) {
                Some((_, of_file)) => *of_file = end.max(*of_file),
                None => files.push((name.clone(), end)),
            }
        }
    }
    // Each file begins after the ones before it.
    let mut next = Some(0_u64);
    let starts: Vec<(String, Option<u64>)> = files
        .into_iter()
        .map(|(name, end)| {
            let start = next;
            let end = start.and_then(|start| start.checked_add(end));
            next = end.and_then(|end| end.checked_next_multiple_of(FILE_ALIGN));
            (name, start)
        })
        .collect();
    let start_of = |name: &str| starts.iter().find(|(other, _)| other == name)?.1;
    let mut threads = Vec::new();
    for (path, log) in logs {
        let starts: Option<Vec<u64>> = log.files().iter().map(|name| start_of(name)).collect();
        let starts = starts.ok_or(path)?;
        let place = |step: &Step| {
            let offset = step.offset.checked_add(starts[usize::from(step.file)])?;
            Some(Step { offset, file: 0, ..*step })
        };
        let steps: Option<Vec<Step>> = log.steps().iter().map(place).collect();
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        threads.push(RecordedThread { name, steps: steps.ok_or(path)? });
    }
    Ok(threads)
}

/// Returns the threads of a trace, in the order of their first I/Os.
///
/// # Errors
/// There are more threads than a recording has numbers for.
fn of_trace(traced: blktrace::Traced, changes: &Changes) -> Result<Vec<RecordedThread>, String> {
    let mut pids: Vec<u32> = Vec::new();
    let mut steps = Vec::with_capacity(traced.ios.len());
    for (pid, step) in traced.ios {
        // Few threads, and mostly the same few.
        let at = pids.iter().position(|other| *other == pid).unwrap_or_else(|| {
            pids.push(pid);
            pids.len() - 1
        });
        let file = u16::try_from(at).map_err(|_| {
            "the trace has I/Os of more than 65536 threads; record a shorter one".to_owned()
        })?;
        steps.push(Step { file, ..step });
    }
    let name = |pid: &u32| match traced.names.get(pid) {
        Some(name) if name.ends_with(&format!(" {pid}")) => name.clone(),
        Some(name) => format!("{name} ({pid})"),
        None => format!("pid {pid}"),
    };
    // The changes do not distinguish threads from files.
    let names: Vec<String> = pids.iter().map(name).collect();
    let log = Recording::new(names, steps).changed(changes);
    let mut threads: Vec<RecordedThread> = log
        .files()
        .iter()
        .map(|name| RecordedThread { name: name.clone(), steps: Vec::new() })
        .collect();
    for step in log.steps() {
        threads[usize::from(step.file)].steps.push(Step { file: 0, ..*step });
    }
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fio::generator::Direction;
    use forebay_fio::iolog::Act;

    fn log(text: &str) -> Recording {
        Recording::parse(text).expect("a log")
    }

    #[test]
    fn files_of_several_logs_lie_one_after_another_and_names_are_shared() {
        let first = log("fio version 3 iolog\n0 a read 0 4096\n5 b write 8192 4096\n");
        let second = log("fio version 3 iolog\n0 b read 0 512\n3 a sync 0 0\n9 c read 0 512\n");
        let threads = of_logs(vec![(Path::new("x/one"), first), (Path::new("two"), second)]);
        let threads = threads.expect("small files");
        let offsets = |thread: &RecordedThread| {
            thread.steps.iter().map(|step| step.offset).collect::<Vec<_>>()
        };
        assert_eq!(
            (threads[0].name.as_str(), offsets(&threads[0])),
            ("one", vec![0, (1 << 20) + 8192])
        );
        assert_eq!(offsets(&threads[1])[0], 1 << 20);
        assert_eq!(offsets(&threads[1])[2], 2 << 20);
    }

    #[test]
    fn files_beyond_any_disk_are_refused() {
        let far = "fio version 3 iolog\n0 a read 9223372036854767616 4096\n0 b read 0 512\n\
                   0 c read 9223372036854767616 4096\n0 d read 0 512\n";
        assert_eq!(of_logs(vec![(Path::new("far"), log(far))]), Err(Path::new("far")));
    }

    #[test]
    fn threads_of_a_trace_keep_their_names_and_the_speed_changes() {
        let read = |due_ns| Step {
            due_ns,
            offset: 4096,
            len: 512,
            file: 0,
            act: Act::Io(Direction::Read),
        };
        let traced = blktrace::Traced {
            ios: vec![(7, read(0)), (3, read(100)), (7, read(200))],
            names: [(7, "fio".to_owned())].into(),
        };
        let changes = Changes { time_scale: 200, ..Changes::default() };
        let threads = of_trace(traced, &changes).expect("few threads");
        let of = |at: usize| {
            let RecordedThread { name, steps } = &threads[at];
            (name.as_str(), steps.iter().map(|step| step.due_ns).collect::<Vec<_>>())
        };
        assert_eq!(of(0), ("fio (7)", vec![0, 100]));
        assert_eq!(of(1), ("pid 3", vec![50]));
    }
}
