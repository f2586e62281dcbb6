//! Files of blktrace as logs.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::output;
use forebay_fio::generator::Direction;
use forebay_fio::iolog::{Act, Recording, Step};
use forebay_trace::directory;
use forebay_trace::reader::{Entry, TraceFiles};
use forebay_trace::record::{self, Categories, Kind, MAGIC, SECTOR_BYTES};

/// The name of the only file of a trace: the disk has to be given.
const NAME: &str = "trace";

/// Returns whether a path is a directory, or a file of blktrace.
pub(super) fn is_trace(path: &Path) -> io::Result<bool> {
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
pub(super) fn read(path: &Path) -> Result<Recording, String> {
    let paths = match path.is_dir() {
        true => {
            let disks = directory::find(path).map_err(|error| error.to_string())?;
            disks.into_values().flatten().collect()
        }
        false => vec![path.to_owned()],
    };
    let mut files = TraceFiles::open(&paths).map_err(|error| error.to_string())?;
    let mut steps = Vec::new();
    let mut device = None;
    while let Some(entry) = files.next_entry().map_err(|error| error.to_string())? {
        if let Some(step) = queued(&entry)? {
            if *device.get_or_insert(entry.record.device) != entry.record.device {
                return Err(
                    "the trace has I/O of several disks, which one replay would mix; record \
                            one disk, or give the file of one"
                        .to_owned(),
                );
            }
            steps.push(step);
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
    steps.sort_by_key(|step| step.due_ns);
    let start_ns = steps.first().map_or(0, |step| step.due_ns);
    steps.iter_mut().for_each(|step| step.due_ns -= start_ns);
    Ok(Recording::new(vec![NAME.to_owned()], steps))
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
