//! Files of blktrace as logs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::output;
use forebay_fio::generator::Direction;
use forebay_fio::iolog::{Act, Recording, Step};
use forebay_trace::directory;
use forebay_trace::reader::{Entry, TraceFiles};
use forebay_trace::record::{self, Categories, Kind, MAGIC, Notify, SECTOR_BYTES};

/// The name of the only file of a trace: the disk has to be given.
const NAME: &str = "trace";

/// Returns whether a path is a directory, or a file of blktrace.
pub(crate) fn is_trace(path: &Path) -> io::Result<bool> {
    if path.is_dir() {
        return Ok(true);
    }
    let mut first = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut first)?;
    // The lowest byte is the version; the reader refuses others than 7.
    let is_magic = |word: u32| word >> 8 == MAGIC >> 8;
    let word = <[u8; 4]>::try_from(first).map(u32::from_ne_bytes);
    Ok(word.is_ok_and(|word| is_magic(word) || is_magic(word.swap_bytes())))
}

/// Returns the queued bios of a trace: of all its files, if it is a directory.
pub(crate) fn read(path: &Path) -> Result<Recording, String> {
    let Traced { ios, .. } = read_threads(path)?;
    let steps = ios.into_iter().map(|(_, step)| step).collect();
    Ok(Recording::new(vec![NAME.to_owned()], steps))
}

/// The queued bios of a trace.
#[derive(Debug, Default)]
pub(crate) struct Traced {
    /// Each with the number of its thread, in the order of their times. The first one is due at 0.
    pub(crate) ios: Vec<(u32, Step)>,
    /// The names of threads by their numbers, where the trace has them.
    pub(crate) names: BTreeMap<u32, String>,
}

/// Returns the queued bios of a trace with their threads.
pub(crate) fn read_threads(path: &Path) -> Result<Traced, String> {
    let paths = match path.is_dir() {
        true => {
            let disks = directory::find(path).map_err(|error| error.to_string())?;
            disks.into_values().flatten().collect()
        }
        false => vec![path.to_owned()],
    };
    let mut files = TraceFiles::open(&paths).map_err(|error| error.to_string())?;
    let Traced { mut ios, mut names } = Traced::default();
    let mut device = None;
    while let Some(entry) = files.next_entry().map_err(|error| error.to_string())? {
        if let Kind::Notify(Notify::Process) = entry.record.kind {
            names.extend(entry.text().map(|name| (entry.record.pid, name)));
        }
        if let Some(step) = queued(&entry)? {
            if *device.get_or_insert(entry.record.device) != entry.record.device {
                return Err(
                    "the trace has I/O of several disks, which one replay would mix; record \
                            one disk, or give the file of one"
                        .to_owned(),
                );
            }
            ios.push((entry.record.pid, step));
        }
    }
    if files.nr_missing() > 0 {
        output::stderr(&format!(
            "forebay: {}: {} records are missing from the trace: their I/Os are not replayed\n",
            path.display(),
            files.nr_missing()
        ));
    }
    // The records of a file need not be in the order of their times.
    ios.sort_by_key(|(_, step)| step.due_ns);
    let start_ns = ios.first().map_or(0, |(_, step)| step.due_ns);
    ios.iter_mut().for_each(|(_, step)| step.due_ns -= start_ns);
    Ok(Traced { ios, names })
}

/// Returns the step of a queued bio, with the time of its record.
///
/// # Errors
///
/// The bio ends after the largest offset of a file.
fn queued(entry: &Entry) -> Result<Option<Step>, String> {
    let record = &entry.record;
    if record.kind != Kind::Stage(record::Act::Queue) {
        return Ok(None);
    }
    let is = |categories| record.categories.has(categories);
    let act = match record.bytes {
        0 => return Ok(is(Categories::FLUSH).then(|| step(record.time_ns, 0, 0, Act::Datasync))),
        _ if is(Categories::DISCARD) => Act::Io(Direction::Trim),
        _ if is(Categories::WRITE) => Act::Io(Direction::Write),
        _ => Act::Io(Direction::Read),
    };
    let offset = record.sector.checked_mul(SECTOR_BYTES);
    let end = |offset: &u64| offset.checked_add(record.bytes.into());
    let fits = |offset: &u64| end(offset).is_some_and(|end| i64::try_from(end).is_ok());
    let offset = offset.filter(fits).ok_or_else(|| {
        format!("the trace has an I/O at sector {}, beyond any disk", record.sector)
    })?;
    Ok(Some(step(record.time_ns, offset, record.bytes, act)))
}

fn step(due_ns: u64, offset: u64, len: u32, act: Act) -> Step {
    Step { due_ns, offset, len, file: 0, act }
}
