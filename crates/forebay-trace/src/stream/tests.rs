//! Streams that arrive whole, are cut off, or are wrong.

use super::*;
use crate::directory;

fn stream(write: impl FnOnce(&mut StreamWriter<&mut Vec<u8>>) -> io::Result<()>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::new(&mut bytes).expect("memory");
    write(&mut writer).expect("memory");
    bytes
}

fn received(bytes: &[u8]) -> (tempfile::TempDir, io::Result<Totals>) {
    let dir = tempfile::tempdir().expect("a directory");
    directory::create(dir.path()).expect("it is empty");
    let totals = receive(bytes, dir.path());
    (dir, totals)
}

/// Takes so many bytes, fails once, and then takes all.
struct Stalls(usize, bool);

impl Write for Stalls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match (self.0.min(bytes.len()), self.1) {
            (0, false) => {
                self.1 = true;
                Err(io::ErrorKind::WouldBlock.into())
            }
            (0, true) => panic!("{} bytes after a frame that was cut off", bytes.len()),
            (nr, _) => {
                self.0 -= nr;
                Ok(nr)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn nothing_follows_a_frame_that_was_cut_off() {
    let mut writer = StreamWriter::new(Stalls(MAGIC.len() + 12 + 3, false)).expect("room");
    let error = writer.begin("a-disk.blktrace.0").expect_err("no room");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    let error = writer.write(0, &[1; 4096]).expect_err("it is cut off");
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    assert!(writer.end(Totals::default()).is_err());
}

#[test]
fn files_arrive_with_their_names_and_bytes() {
    let totals = Totals { records: 7, lost: u64::MAX };
    let long = vec![5; FRAME_BYTES_MAX + 3];
    let bytes = stream(|out| {
        let list = out.begin(DEVICES)?;
        let file = out.begin("a-disk.blktrace.0")?;
        out.write(list, b"one\n")?;
        out.write(file, &long)?;
        out.write(list, b"two\n")?;
        out.end(totals)
    });
    let (dir, result) = received(&bytes);
    assert_eq!(result.expect("a complete trace"), totals);
    let read = |name: &str| std::fs::read(dir.path().join(name)).expect("a file");
    assert_eq!((read(DEVICES), read("a-disk.blktrace.0")), (b"one\ntwo\n".to_vec(), long));
}

#[test]
fn stream_that_is_cut_off_anywhere_fails() {
    let bytes = stream(|out| {
        let file = out.begin("a.blktrace.0")?;
        out.write(file, b"abc")?;
        out.end(Totals::default())
    });
    for len in 0..bytes.len() {
        let error = received(&bytes[..len]).1.expect_err("it is cut off");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{len}: {error}");
    }
    assert!(received(&bytes).1.is_ok());
}

#[test]
fn wrong_streams_are_refused_and_create_no_other_file() {
    let begin = |name: &str| stream(|out| out.begin(name).map(drop));
    let changed = |at: usize, byte: u8| {
        let mut bytes = begin("a.blktrace.0");
        bytes[at] = byte;
        bytes
    };
    let all = [
        (begin("../a.blktrace.0"), "a name that no file"),
        (begin("/tmp/a.blktrace.0"), "a name that no file"),
        (begin(".blktrace.0"), "a name that no file"),
        (begin("a.blktrace.-1"), "a name that no file"),
        (begin("passwd"), "a name that no file"),
        (begin(&format!("{}.blktrace.0", "a".repeat(250))), "a name that no file"),
        (changed(7, 9), "it begins with"),
        (changed(8, 9), "the unknown kind 9"),
        (changed(12, 3), "file 3 begins after 0 others"),
        (changed(19, 1), "a frame of 16777228 bytes"),
        (stream(|out| out.write(0, b"a")), "bytes of file 0, which has not begun"),
        (stream(|out| out.frame(END, 0, &[0; 15])), "an end without counts"),
        (stream(|out| out.frame(END, 0, &[0; 3])), "an end without counts"),
    ];
    for (bytes, expected) in all {
        let (dir, result) = received(&bytes);
        let error = result.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}, expected {expected}");
        let files = std::fs::read_dir(dir.path()).expect("a directory");
        assert_eq!(files.count(), 1, "{expected}: only the list of disks");
    }
}

#[test]
fn existing_file_is_not_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    directory::create(dir.path()).expect("it is empty");
    let path = directory::file_path(dir.path(), "a", 0);
    std::fs::write(&path, "mine").expect("a file");
    let bytes = stream(|out| out.begin("a.blktrace.0").map(drop));
    let error = receive(&bytes[..], dir.path()).expect_err("it exists").to_string();
    assert!(error.contains("a.blktrace.0: File exists"), "{error}");
    assert_eq!(std::fs::read_to_string(path).ok().as_deref(), Some("mine"));
}
