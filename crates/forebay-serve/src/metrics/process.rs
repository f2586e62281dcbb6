//! Metrics of the process, with the names that all Prometheus clients use.
//!
//! The files are opened before the process is confined. Each scrape reads them from their
//! beginning.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Dir, Mode, OFlags, open};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use forebay_insight::families::{Families, Name, Value};

/// Sources of the metrics of this process.
#[derive(Debug)]
pub(super) struct Process {
    stat: File,
    descriptors: Dir,
    started: SystemTime,
}

/// Fields of `/proc/self/stat`, in the kernel's units.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Process {
    pub(super) fn open() -> io::Result<Process> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        Ok(Process {
            stat: File::open("/proc/self/stat")?,
            descriptors: Dir::new(open("/proc/self/fd", flags, Mode::empty())?)?,
            started: SystemTime::now(),
        })
    }

    /// Writes the metrics that are available.
    pub(super) fn encode(&mut self, families: &mut Families<'_>) -> fmt::Result {
        if let Some(stat) = self.read_stat() {
            let seconds = stat.cpu_ticks as f64 / clock_ticks_per_second() as f64;
            families.one_counter(
                &Name::seconds("process_cpu", "CPU time of all threads."),
                Value::Seconds(seconds),
            )?;
            let gauges = [
                (Name::of("process_threads", "Threads of the process."), stat.threads),
                (Name::bytes("process_virtual_memory", "Virtual memory size."), stat.virtual_bytes),
                (
                    Name::bytes("process_resident_memory", "Resident memory size."),
                    stat.resident_pages * page_size() as u64,
                ),
            ];
            for (name, value) in gauges {
                families.one_gauge(&name, Value::Whole(value))?;
            }
        }
        if let Some(open) = self.open_descriptors() {
            families.one_gauge(
                &Name::of("process_open_fds", "Open file descriptors."),
                Value::Whole(open),
            )?;
        }
        if let Some(max) = getrlimit(Resource::Nofile).current {
            families.one_gauge(
                &Name::of("process_max_fds", "Limit of open file descriptors."),
                Value::Whole(max),
            )?;
        }
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        families.one_gauge(
            &Name::seconds("process_start_time", "Start time of the process since the Unix epoch."),
            Value::Seconds(started.as_secs_f64()),
        )
    }

    fn read_stat(&self) -> Option<Stat> {
        let mut text = [0; 2048];
        let len = self.stat.read_at(&mut text, 0).ok()?;
        parse_stat(std::str::from_utf8(&text[..len]).ok()?)
    }

    fn open_descriptors(&mut self) -> Option<u64> {
        self.descriptors.rewind();
        let mut count = 0;
        while let Some(entry) = self.descriptors.read() {
            let entry = entry.ok()?;
            count += u64::from(!entry.file_name().to_bytes().starts_with(b"."));
        }
        Some(count)
    }
}

/// Parses `/proc/PID/stat`; see proc_pid_stat(5), whose field numbers begin at 1.
fn parse_stat(text: &str) -> Option<Stat> {
    // The name of the program, in parentheses, may contain anything.
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // The first of these is the third field of the file.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        cpu_ticks: field(14)? + field(15)?,
        threads: field(20)?,
        virtual_bytes: field(23)?,
        resident_pages: field(24)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let fields: Vec<_> = (3..=52).map(|field| field.to_string()).collect();
        let text = format!("1 (a) 9 (b)) {}", fields.join(" "));
        let expected =
            Stat { cpu_ticks: 14 + 15, threads: 20, virtual_bytes: 23, resident_pages: 24 };
        assert_eq!(parse_stat(&text), Some(expected));
        assert_eq!(parse_stat("1 (a) R 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn this_process_has_threads_memory_and_descriptors() {
        let mut process = Process::open().unwrap();
        let stat = process.read_stat().unwrap();
        assert!(stat.threads > 0 && stat.resident_pages > 0 && stat.virtual_bytes > 1 << 20);
        let before = process.open_descriptors().unwrap();
        assert!(before >= 5, "{before}");
        // Other tests open and close descriptors at the same time, but fewer than this.
        let _files: Vec<_> = (0..500).map(|_| File::open("/dev/null").unwrap()).collect();
        assert!(process.open_descriptors().unwrap() > before + 250);
    }
}
