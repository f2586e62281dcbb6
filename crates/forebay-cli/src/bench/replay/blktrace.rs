//! Files of blktrace as logs.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

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
    let mut start_ns = None;
    while let Some(entry) = files.next_entry().map_err(|error| error.to_string())? {
        if let Some(mut step) = queued(&entry) {
            step.due_ns -= *start_ns.get_or_insert(step.due_ns);
            steps.push(step);
        }
    }
    Ok(Recording::new(vec![NAME.to_owned()], steps))
}

/// Returns the step of a queued bio, with the time of its record.
fn queued(entry: &Entry) -> Option<Step> {
    let record = &entry.record;
    if record.kind != Kind::Stage(record::Act::Queue) {
        return None;
    }
    let is = |categories| record.categories.has(categories);
    let act = match record.bytes {
        0 => return is(Categories::FLUSH).then(|| step(record.time_ns, 0, 0, Act::Datasync)),
        _ if is(Categories::DISCARD) => Act::Io(Direction::Trim),
        _ if is(Categories::WRITE) => Act::Io(Direction::Write),
        _ => Act::Io(Direction::Read),
    };
    Some(step(record.time_ns, record.sector * SECTOR_BYTES, record.bytes, act))
}

fn step(due_ns: u64, offset: u64, len: u32, act: Act) -> Step {
    Step { due_ns, offset, len, file: 0, act }
}
