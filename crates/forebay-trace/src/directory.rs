//! The names of the files of a trace.
//!
//! A trace is a directory. Each disk has a name in it, and one file for each of its hardware
//! contexts and submitting threads: `NAME.blktrace.0`, `NAME.blktrace.1` and so on, as `blktrace`
//! has one for each processor. So `blkparse -D DIR -i NAME` reads a disk. The file `devices` lists
//! the disks.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The file that lists the disks.
pub const DEVICES: &str = "devices";

/// The major number of disks that are no block devices: the first of those that Linux reserves for
/// local use.
pub const LOCAL_MAJOR: u32 = 240;

/// Returns the number of a device.
pub const fn device(major: u32, minor: u32) -> u32 {
    major << 20 | minor & 0xf_ffff
}

/// Returns the path of a file of a trace.
pub fn file_path(dir: &Path, name: &str, index: u32) -> PathBuf {
    dir.join(format!("{name}.blktrace.{index}"))
}

/// Returns a name for the disk of a spec that is not among `taken`: the last part of its path,
/// without characters that a shell or `blkparse` interprets.
pub fn disk_name(spec: &str, taken: &[String]) -> String {
    let target = spec.split('?').next().unwrap_or_default();
    let last = target.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default();
    let plain = |text: &str| text.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
    let name: String = match last.trim_matches('.') {
        "" => "disk".to_owned(),
        last => plain(last),
    };
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut all = std::iter::once(name.clone()).chain(numbered);
    all.find(|name| !taken.contains(name)).unwrap_or(name)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

/// Returns whether a name has no characters that a shell, a path or `blkparse` interprets.
pub(crate) fn is_plain_name(name: &str) -> bool {
    name.chars().all(is_plain)
}

/// Creates the directory of a trace, if it does not exist, with an empty list of disks.
///
/// # Errors
/// Fails if the directory has a file `devices` or `NAME.blktrace.N`, or cannot be written. No file
/// is changed then.
pub fn create(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir).map_err(|error| named(dir, "create the directory", &error))?;
    check_unused(dir)?;
    match create_file(&dir.join(DEVICES)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(taken(dir, "a file devices"))
        }
        Err(error) => Err(named(dir, "create the file devices", &error)),
    }
}

/// Creates a file that does not exist, for writing only: a confined process may lack the right to
/// read.
///
/// # Errors
/// Fails if it exists, or cannot be created.
pub fn create_file(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).open(path)
}

/// Checks that a trace can be created in this directory, which may not exist yet. Changes nothing.
///
/// # Errors
/// Fails if the directory has a file `devices` or `NAME.blktrace.N`.
pub fn check_unused(dir: &Path) -> io::Result<()> {
    if dir.is_dir() && find(dir).is_ok() {
        return Err(taken(dir, "a trace"));
    }
    match fs::symlink_metadata(dir.join(DEVICES)) {
        Ok(_) => Err(taken(dir, "a file devices")),
        Err(_) => Ok(()),
    }
}

/// Creates the directory of the next trace: `PREFIX` and a number, beginning with 1, in a directory
/// that exists. Nothing is replaced, and a number that was used is not used again while a later one
/// exists.
///
/// # Errors
/// Fails if the directory cannot be read or written.
pub fn create_next(parent: &Path, prefix: &str) -> io::Result<PathBuf> {
    let mut number = numbers(parent, prefix)?.last().copied().unwrap_or(0) + 1;
    loop {
        let dir = parent.join(format!("{prefix}{number}"));
        match fs::create_dir(&dir) {
            // Another process may have created it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(named(&dir, "create the directory", &error)),
            Ok(()) => return create(&dir).map(|()| dir),
        }
    }
}

/// Returns the numbers of the traces that [`create_next`] has made in a directory, in order.
///
/// # Errors
/// Fails if the directory cannot be read.
pub fn numbers(parent: &Path, prefix: &str) -> io::Result<Vec<u64>> {
    let entries = fs::read_dir(parent).map_err(|error| named(parent, "read it", &error))?;
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(prefix));
        // Not `+1` or `01`, which would not be found again.
        let number =
            digits.and_then(|text| text.parse::<u32>().ok().filter(|nr| nr.to_string() == text));
        numbers.extend(number.map(u64::from));
    }
    numbers.sort();
    Ok(numbers)
}

fn named(path: &Path, what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: cannot {what}: {error}", path.display()))
}

fn taken(dir: &Path, what: &str) -> io::Error {
    let dir = dir.display();
    let what =
        format!("{dir}: the directory has {what}: remove its files, or choose another directory");
    io::Error::new(io::ErrorKind::AlreadyExists, what)
}

/// Returns the line of a disk in the file [`DEVICES`]: number, name and spec.
pub fn device_line(device: u32, name: &str, spec: &str) -> String {
    let (major, minor) = (device >> 20, device & 0xf_ffff);
    // A spec has no line break in practice; one would look like another disk.
    let spec: String = spec.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("{major},{minor}\t{name}\t{spec}\n")
}

/// Returns the disks of a trace, by name, with the paths of their files in the order of their
/// indices.
///
/// `path` is a directory, or the path of a single disk: that of one of its files, or of them
/// without `.blktrace.N`. If there are none of that name, it is a single file with the records of a
/// disk, such as `blkparse -d` writes.
///
/// # Errors
/// Fails if the directory cannot be read, or has no such file.
pub fn find(path: &Path) -> io::Result<BTreeMap<String, Vec<PathBuf>>> {
    let (dir, only) = match path.is_dir() {
        true => (path, None),
        false => {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let disk = split_name(&name).map_or(name.clone(), |(disk, _)| disk.to_owned());
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
            (dir.unwrap_or(Path::new(".")), Some(disk))
        }
    };
    let mut found: BTreeMap<String, Vec<(u32, PathBuf)>> = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((disk, index)) = split_name(&name) else { continue };
        if only.as_ref().is_none_or(|only| only == disk) {
            found.entry(disk.to_owned()).or_default().push((index, entry.path()));
        }
    }
    if found.is_empty() && path.is_file() {
        found.insert(only.unwrap_or_default(), vec![(0, path.to_owned())]);
    }
    if found.is_empty() {
        let what = format!("{}: expected files NAME.blktrace.N, found none", path.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    }
    let sorted = |mut files: Vec<(u32, PathBuf)>| {
        files.sort();
        files.into_iter().map(|(_, path)| path).collect()
    };
    Ok(found.into_iter().map(|(disk, files)| (disk, sorted(files))).collect())
}

/// Splits the name of a file into the disk and the index.
pub(crate) fn split_name(name: &str) -> Option<(&str, u32)> {
    let (disk, index) = name.rsplit_once(".blktrace.")?;
    Some((disk, index.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_distinct() {
        let mut taken = Vec::new();
        for (spec, name) in [
            ("/srv/disk.img?direct=on", "disk.img"),
            ("disk.img", "disk.img-2"),
            ("ram:64M", "ram-64M"),
            ("rbd:pool/image", "image"),
            ("a b*c", "a-b-c"),
            ("..", "disk"),
            ("", "disk-2"),
        ] {
            assert_eq!(disk_name(spec, &taken), name, "{spec}");
            taken.push(name.to_owned());
        }
    }

    #[test]
    fn directory_with_a_trace_or_its_list_is_refused_and_not_changed() {
        let dir = tempfile::tempdir().expect("a directory");
        let list = dir.path().join(DEVICES);
        fs::write(&list, "mine").expect("it is written");
        let error = create(dir.path()).expect_err("a list").to_string();
        assert!(error.contains("the directory has a file devices: remove"), "{error}");
        assert_eq!(fs::read_to_string(&list).ok().as_deref(), Some("mine"));
        fs::remove_file(&list).expect("it is there");
        create(dir.path()).expect("an empty directory");
        assert!(create(dir.path()).is_err());
    }

    #[test]
    fn next_trace_has_the_number_after_the_last_one() {
        let parent = tempfile::tempdir().expect("a directory");
        for name in ["1", "3", "t-7", "05", "x", "+9"] {
            fs::create_dir(parent.path().join(name)).expect("a directory");
        }
        assert_eq!(numbers(parent.path(), "").expect("it is read"), [1, 3]);
        let next = create_next(parent.path(), "").expect("it is written");
        assert_eq!(next, parent.path().join("4"));
        assert!(next.join(DEVICES).exists());
        let next = create_next(parent.path(), "t-").expect("it is written");
        assert_eq!(next, parent.path().join("t-8"));
        let error = create_next(&parent.path().join("none"), "").expect_err("it does not exist");
        assert!(error.to_string().contains("none: cannot read it: No such file"), "{error}");
    }

    #[test]
    fn files_of_a_trace_are_found_by_directory_disk_and_file() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, index) in [("b", 10), ("b", 9), ("a.blktrace", 0)] {
            fs::write(file_path(dir.path(), name, index), "").expect("it is written");
        }
        fs::write(dir.path().join(DEVICES), "").expect("it is written");
        let all = find(dir.path()).expect("files");
        assert_eq!(all.keys().collect::<Vec<_>>(), ["a.blktrace", "b"]);
        let paths = [9, 10].map(|index| file_path(dir.path(), "b", index));
        assert_eq!(all["b"], paths);
        for path in [dir.path().join("b"), file_path(dir.path(), "b", 9)] {
            let found = find(&path).expect("files");
            assert_eq!(found.len(), 1);
            assert_eq!(found["b"], paths);
        }
        let merged = dir.path().join("merged.bin");
        fs::write(&merged, "").expect("it is written");
        assert_eq!(find(&merged).expect("a file")["merged.bin"], [merged]);
        let error = find(&dir.path().join("c")).expect_err("no such disk").to_string();
        assert!(error.ends_with("c: expected files NAME.blktrace.N, found none"), "{error}");
    }
}
