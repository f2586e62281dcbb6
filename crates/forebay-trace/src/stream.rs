//! The files of a trace on a byte stream, from the process that records to one that writes them.
//!
//! A confined server may not create files, and a trace belongs to the user who asked for it. So the
//! process that records sends the bytes of each file, and the receiver creates the files.
//!
//! The stream begins with [`MAGIC`]. Frames follow, each with a head of three numbers (little
//! endian, 32 bits): kind, file, and length of the bytes behind it. Files have the numbers 0, 1 and
//! so on, in the order in which they begin.
//!
//! - kind 1: a file begins; the bytes are its name: `devices` or `NAME.blktrace.N`;
//! - kind 2: the next bytes of the file;
//! - kind 3: the trace is complete; the bytes are the number of records and of lost ones (64 bits
//!   each). A stream without it was cut off.

use crate::directory::{DEVICES, is_plain_name, split_name};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// The first bytes of a stream; the last one is the version.
pub const MAGIC: [u8; 8] = *b"fbtrace\x01";

/// The most bytes of a frame. Longer writes are divided.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// The most files of a stream: a limit on what a wrong sender can make a receiver create.
const NR_FILES_MAX: usize = 1 << 16;

/// The longest name of a file, bytes, as in most file systems.
const NAME_BYTES_MAX: usize = 255;

const BEGIN: u32 = 1;
const BYTES: u32 = 2;
const END: u32 = 3;

/// Counts of a trace that is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records written to the files.
    pub records: u64,
    /// Records that found no room in their ring.
    pub lost: u64,
}

/// Sends the files of a trace.
#[derive(Debug)]
pub struct StreamWriter<W> {
    out: W,
    nr_files: u32,
    /// Whether a frame may have been cut off. Nothing may follow it: the receiver would read the
    /// next frame as the rest of that one.
    is_broken: bool,
}

impl<W: Write> StreamWriter<W> {
    /// Begins a stream.
    ///
    /// # Errors
    /// Fails if `out` does.
    pub fn new(mut out: W) -> io::Result<StreamWriter<W>> {
        out.write_all(&MAGIC)?;
        Ok(StreamWriter { out, nr_files: 0, is_broken: false })
    }

    /// Begins a file, and returns its number.
    ///
    /// # Errors
    /// Fails if `out` does.
    pub fn begin(&mut self, name: &str) -> io::Result<u32> {
        let file = self.nr_files;
        self.frame(BEGIN, file, name.as_bytes())?;
        self.nr_files += 1;
        Ok(file)
    }

    /// Sends the next bytes of a file.
    ///
    /// # Errors
    /// Fails if `out` does, and always after that.
    pub fn write(&mut self, file: u32, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(FRAME_BYTES_MAX).try_for_each(|chunk| self.frame(BYTES, file, chunk))
    }

    /// Ends the stream of a complete trace.
    ///
    /// # Errors
    /// Fails if `out` does.
    pub fn end(&mut self, totals: Totals) -> io::Result<()> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&totals.records.to_le_bytes());
        bytes[8..].copy_from_slice(&totals.lost.to_le_bytes());
        self.frame(END, 0, &bytes)?;
        self.out.flush()
    }

    fn frame(&mut self, kind: u32, file: u32, bytes: &[u8]) -> io::Result<()> {
        let mut head = [0; 12];
        // At most `FRAME_BYTES_MAX`.
        for (place, number) in head.chunks_exact_mut(4).zip([kind, file, bytes.len() as u32]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        if self.is_broken {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the stream was cut off"));
        }
        let sent = self.out.write_all(&head).and_then(|()| self.out.write_all(bytes));
        self.is_broken = sent.is_err();
        sent
    }
}

/// Receives a trace, and writes its files to a directory that [`create`](crate::directory::create)
/// has made. Returns when the trace is complete.
///
/// # Errors
/// Fails if a file cannot be written, and names it; if the stream ends early; or if it is none.
pub fn receive(mut from: impl Read, dir: &Path) -> io::Result<Totals> {
    let mut magic = [0; MAGIC.len()];
    read(&mut from, &mut magic)?;
    if magic != MAGIC {
        return Err(malformed(&format!("it begins with {magic:02x?}, expected {MAGIC:02x?}")));
    }
    let mut files = Files { dir, all: Vec::new() };
    let mut bytes = Vec::new();
    loop {
        let mut head = [0; 12];
        read(&mut from, &mut head)?;
        let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|nth| head[at + nth]));
        let (kind, file, len) = (number(0), number(4) as usize, number(8) as usize);
        if len > FRAME_BYTES_MAX {
            let why = format!("a frame of {len} bytes, expected at most {FRAME_BYTES_MAX}");
            return Err(malformed(&why));
        }
        bytes.resize(len, 0);
        read(&mut from, &mut bytes)?;
        match (kind, &bytes[..]) {
            (BEGIN, name) => files.begin(file, name)?,
            (BYTES, bytes) => files.write(file, bytes)?,
            (END, bytes) => {
                let Some((records, lost)) = bytes.split_first_chunk() else {
                    return Err(malformed("an end without counts"));
                };
                let Ok(lost) = lost.try_into() else {
                    return Err(malformed("an end without counts"));
                };
                let (records, lost) = (u64::from_le_bytes(*records), u64::from_le_bytes(lost));
                return Ok(Totals { records, lost });
            }
            (kind, _) => return Err(malformed(&format!("a frame of the unknown kind {kind}"))),
        }
    }
}

/// The files of a receiver, by number.
struct Files<'a> {
    dir: &'a Path,
    all: Vec<(String, File)>,
}

impl Files<'_> {
    /// Creates a file. `name` comes from another process, so it may only be that of a trace.
    fn begin(&mut self, number: usize, name: &[u8]) -> io::Result<()> {
        let nr = self.all.len();
        if number != nr || nr == NR_FILES_MAX {
            let why = format!("file {number} begins after {nr} others, of {NR_FILES_MAX} at most");
            return Err(malformed(&why));
        }
        let name = std::str::from_utf8(name).ok().filter(|name| {
            let is_disk = |(disk, _): (&str, u32)| !disk.is_empty() && is_plain_name(disk);
            name.len() <= NAME_BYTES_MAX
                && (*name == DEVICES || split_name(name).is_some_and(is_disk))
        });
        let name = name.ok_or_else(|| malformed("a name that no file of a trace has"))?;
        let path = self.dir.join(name);
        let file = match name {
            // It was created with the directory.
            DEVICES => File::options().append(true).open(&path),
            _ => File::create_new(&path),
        };
        let file = file.map_err(|error| self.named(name, &error))?;
        self.all.push((name.to_owned(), file));
        Ok(())
    }

    fn write(&mut self, number: usize, bytes: &[u8]) -> io::Result<()> {
        let Some((name, file)) = self.all.get_mut(number) else {
            return Err(malformed(&format!("bytes of file {number}, which has not begun")));
        };
        let written = file.write_all(bytes);
        let name = name.clone();
        written.map_err(|error| self.named(&name, &error))
    }

    fn named(&self, name: &str, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.dir.join(name).display()))
    }
}

/// Fills `bytes`.
fn read(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<()> {
    from.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "the stream of the trace has ended before the trace")
        }
        _ => error,
    })
}

fn malformed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not the stream of a trace: {why}"))
}

#[cfg(test)]
mod tests;
