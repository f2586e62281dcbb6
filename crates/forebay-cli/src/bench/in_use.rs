//! Block devices in use. Writing to a mounted device destroys its file system, so it needs an
//! option, as in fio (`allow_mounted_write`).
//!
//! Mounts are found in `/proc/self/mountinfo` by the device number, and by the number of their
//! source, because some file systems (btrfs) have numbers of their own. A disk is in use if one of
//! its partitions is, a partition if its disk is, and both if another device is built on them
//! (`holders` in sysfs). Other uses, such as swap or a mount in another namespace, are detected by
//! an exclusive open, which the kernel then refuses.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use forebay_fio::generator::Direction;
use forebay_fio::job::Job;
use rustix::fs::{Mode, OFlags, major, minor, open};
use rustix::io::Errno;

use super::plan::{Target, distinct};
use crate::failure::Failure;

/// Refuses jobs that write to a block device in use, unless the option allows it.
pub(super) fn check(jobs: &[Job], targets: &[Target]) -> Result<(), Failure> {
    for target in distinct(targets) {
        let job = &jobs[target.job];
        let writes = job.rw.has(Direction::Write) || job.rw.has(Direction::Trim);
        let Some(path) = target.path().filter(|_| writes && !job.allow_mounted_write) else {
            continue;
        };
        if let Some(use_of_it) = use_of(&path) {
            return Err(Failure::Run(format!(
                "{}: {} {use_of_it}; --rw={} would destroy its data; --allow_mounted_write=1 \
                 allows it",
                job.name,
                path.display(),
                job.rw.word()
            )));
        }
    }
    Ok(())
}

/// Returns how the block device at `path` is used: the end of a sentence that begins with its name.
pub(crate) fn use_of(path: &Path) -> Option<String> {
    let number = block_number(path)?;
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts: Vec<_> = mountinfo.lines().filter_map(Mount::parse).collect();
    find(&number, &mounts, Path::new("/sys/dev/block")).or_else(|| {
        // This open for reading, which is closed at once, changes nothing.
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        let is_busy = open(path, flags, Mode::empty()).err() == Some(Errno::BUSY);
        is_busy
            .then(|| "is in use by the system (swap, or a mount in another namespace)".to_owned())
    })
}

/// Returns `major:minor` of a block device; `None` for anything else.
pub(super) fn block_number(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let number = metadata.st_rdev();
    metadata.file_type().is_block_device().then(|| format!("{}:{}", major(number), minor(number)))
}

/// A line of mountinfo.
#[derive(Debug)]
struct Mount {
    /// The numbers of the file system and of its source.
    numbers: [Option<String>; 2],
    point: String,
}

impl Mount {
    /// Parses a line as in proc(5): number, parent, major:minor, root, mount point, ..., `-`, type,
    /// source, ...
    fn parse(line: &str) -> Option<Self> {
        let (head, tail) = line.split_once(" - ")?;
        let mut head = head.split(' ').skip(2);
        let (number, point) = (head.next()?, head.nth(1)?);
        let source = tail.split(' ').nth(1)?;
        // A relative source, such as `tmpfs`, is not a path.
        let source = Some(Path::new(source)).filter(|path| path.is_absolute());
        Some(Self {
            numbers: [Some(number.to_owned()), source.and_then(block_number)],
            point: point.replace("\\040", " "),
        })
    }
}

/// Returns how a device is used. `devices` is the folder `/sys/dev/block`.
fn find(number: &str, mounts: &[Mount], devices: &Path) -> Option<String> {
    // An entry is a link to the folder of the device; the parent of a partition's is the disk's.
    let own = fs::canonicalize(devices.join(number)).ok();
    let mut all = vec![(number.to_owned(), own.clone(), String::new())];
    if let Some(own) = own {
        let children = fs::read_dir(&own).into_iter().flatten().flatten().map(|entry| entry.path());
        all.extend(children.filter(|path| is_partition(path)).filter_map(|path| {
            let how = format!("has a partition, {}, which ", name_of(&path));
            Some((number_of(&path)?, Some(path), how))
        }));
        if let Some(disk) = own.parent().filter(|_| is_partition(&own)) {
            let how = format!("is a partition of {}, which ", name_of(disk));
            all.extend(number_of(disk).map(|number| (number, Some(disk.to_owned()), how)));
        }
    }
    let mounted = all.iter().find_map(|(number, _, how)| {
        let is_it = |mount: &&Mount| mount.numbers.iter().flatten().any(|n| n == number);
        mounts.iter().find(is_it).map(|mount| format!("{how}is mounted at {}", mount.point))
    });
    let held = |(_, folder, how): &(String, Option<PathBuf>, String)| {
        holder(folder.as_deref()?).map(|holder| format!("{how}is a part of {holder}"))
    };
    mounted.or_else(|| all.iter().find_map(held))
}

fn is_partition(folder: &Path) -> bool {
    folder.join("partition").exists()
}

fn number_of(folder: &Path) -> Option<String> {
    Some(fs::read_to_string(folder.join("dev")).ok()?.trim().to_owned())
}

fn name_of(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the name of a device that is built on this one: a volume, an array, an encrypted disk.
fn holder(folder: &Path) -> Option<String> {
    let first: PathBuf = fs::read_dir(folder.join("holders")).ok()?.next()?.ok()?.path();
    Some(name_of(&first))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A disk `8:0` with the partitions `8:1`, which is a part of `dm-0`, and `8:2`.
    fn devices() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |path: &str| dir.path().join(path);
        for path in ["sda/holders", "sda/sda1/holders/dm-0", "sda/sda2/holders", "numbers"] {
            fs::create_dir_all(at(path)).expect("a folder");
        }
        for (number, path) in [("8:0", "sda"), ("8:1", "sda/sda1"), ("8:2", "sda/sda2")] {
            fs::write(at(path).join("dev"), format!("{number}\n")).expect("a file");
            symlink(at(path), at("numbers").join(number)).expect("a link");
            if path != "sda" {
                fs::write(at(path).join("partition"), "1\n").expect("a file");
            }
        }
        dir
    }

    #[track_caller]
    fn check(number: &str, mounted: &str, expected: Option<&str>) {
        let devices = devices();
        let line = format!("22 27 {mounted} / /mnt/my\\040disk rw shared:1 - ext4 tmpfs rw");
        let mounts = [Mount::parse(&line).expect("a mount")];
        let found = find(number, &mounts, &devices.path().join("numbers"));
        assert_eq!(found.as_deref(), expected, "{number} with {mounted} mounted");
    }

    #[test]
    fn a_device_its_partitions_and_its_disk_count() {
        check("8:2", "8:2", Some("is mounted at /mnt/my disk"));
        check("8:0", "8:2", Some("has a partition, sda2, which is mounted at /mnt/my disk"));
        check("8:2", "8:0", Some("is a partition of sda, which is mounted at /mnt/my disk"));
        check("9:9", "9:9", Some("is mounted at /mnt/my disk"));
        check("8:1", "0:30", Some("is a part of dm-0"));
        check("8:2", "0:30", None);
        check("9:9", "0:30", None);
    }

    #[test]
    fn file_that_is_no_block_device_is_not_in_use() {
        assert_eq!(use_of(Path::new("/proc/self/exe")), None);
        assert_eq!(use_of(Path::new("/nowhere/at/all")), None);
    }
}
