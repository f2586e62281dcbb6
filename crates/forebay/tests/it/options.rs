//! Disks that are opened with options: on a spec, on a path of any bytes, and on a descriptor.

use crate::claims::try_lock;
use crate::common::{LoopDevice, Scratch, open};
use forebay::{Disk, DiskOptions, ImageLock, OpenError, PlugPolicy};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const LEN: u64 = 1 << 20;
const DRIVERS: [&str; 3] = ["file", "aio", "psync"];

/// Opens the scratch file as a program does, with additional flags.
fn file(scratch: &Scratch, flags: i32) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags).open(&scratch.path).expect("it opens")
}

#[track_caller]
fn refusal(opened: Result<Disk, OpenError>) -> String {
    match opened {
        Ok(disk) => panic!("{} opens", disk.info().spec),
        Err(error) => error.to_string(),
    }
}

/// Writes through the disk, and reads through `file`.
fn check_same(disk: &Disk, file: &File, byte: u8) {
    disk.write_all_at(&[byte; 4096], 4096).expect("a write");
    disk.flush().expect("a flush");
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 4096).expect("a read");
    assert_eq!(page, [byte; 4096], "{}", disk.info().spec);
}

#[test]
fn options_replace_keys_of_the_spec_and_appear_in_its_info() {
    let disk = Disk::options().queue_depth(8).plug(PlugPolicy::None).open("ram:1M?queue_depth=4");
    let disk = disk.expect("it opens");
    assert_eq!(disk.info().spec, "ram:1M?queue_depth=8&plug=none");
    assert_eq!((disk.info().policy.queue_depth, disk.info().policy.plug), (8, PlugPolicy::None));
    let scratch = Scratch::new(LEN);
    let options = Disk::options().lock(ImageLock::Off).read_only(true);
    let disk = options.open_path(&scratch.path).expect("it opens");
    assert!(disk.limits().read_only && disk.info().lock == Some(ImageLock::Off));
}

#[test]
fn errors_name_the_option() {
    let scratch = Scratch::new(LEN);
    let path = scratch.path.to_str().expect("UTF-8");
    let set = |key, value| Disk::options().set(key, value).expect("a key of a driver");
    for (opened, expected) in [
        (
            Disk::options().queue_depth(0).open("ram:1M"),
            "queue_depth=0: expected a number from 1 to 10240",
        ),
        (
            set("sqpol", "on").open_path(path),
            "unknown key `sqpol` for driver `file`; did you mean `sqpoll`?",
        ),
        (
            Disk::options().direct(true).open("ram:1M"),
            "unknown key `direct` for driver `ram`; valid keys: ",
        ),
        (set("engine", "fast").open_path(path), "engine=fast: expected auto, io_uring, aio"),
        (
            Disk::options().driver("ram").open_path(path),
            "driver=ram: expected file, aio or psync for a path or a descriptor",
        ),
        (
            Disk::options().driver("aio").open("psync:disk.img"),
            "driver=aio: expected psync, which the spec psync:disk.img names",
        ),
        (
            Disk::options().driver("aio").open("file:disk.img"),
            "driver=aio: expected file, which the spec file:disk.img names",
        ),
        (
            Disk::options().tag_set("a&direct=on").open("ram:1M"),
            "tag_set=a&direct=on: expected a key without `=`, `&` and `?`, and a value without `&`",
        ),
        (
            Disk::options().open_path(""),
            "empty device spec; expected [driver:]target[?key=value&...], such as disk.img",
        ),
    ] {
        let error = refusal(opened);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn option_chooses_the_driver_of_paths_and_of_specs_that_name_none() {
    let scratch = Scratch::new(LEN);
    let path = scratch.path.to_str().expect("UTF-8");
    for driver in DRIVERS {
        let options = Disk::options().driver(driver);
        let named = format!("{driver}:{path}");
        for disk in [options.open(path), options.open(&named), options.open_path(path)] {
            assert_eq!(disk.expect("it opens").info().driver, driver);
        }
        let disk = options.open_file(file(&scratch, 0)).expect("it opens");
        assert_eq!(disk.info().driver, driver);
        check_same(&disk, &file(&scratch, 0), 7);
    }
}

#[test]
fn path_of_any_bytes_opens_its_file() {
    let scratch = Scratch::new(LEN);
    let names: [&[u8]; 5] = [
        b"a?direct=on",
        b"a%3Fb",
        b"ram:1M",
        b"caf\xe9 \xff.img",
        "caf\u{FFFD} \u{FFFD}.img".as_bytes(),
    ];
    for (nth, name) in names.into_iter().enumerate() {
        let path = scratch.path.with_file_name(OsStr::from_bytes(name));
        std::fs::write(&path, vec![0; LEN as usize]).expect("a file");
        for driver in DRIVERS {
            let disk = Disk::options().driver(driver).open_path(&path).expect("it opens");
            check_same(&disk, &File::open(&path).expect("it opens"), nth as u8 + 1);
            // One thread more than those that own a context, so that files are opened again.
            std::thread::scope(|scope| {
                scope.spawn(|| drop(disk.queue()));
            });
        }
        let shown = Disk::options().open_path(&path).expect("it opens").info().spec.clone();
        if std::str::from_utf8(name).is_ok() {
            open(&shown);
        } else {
            assert!(shown.ends_with("caf\u{FFFD} \u{FFFD}.img"), "{shown}");
        }
    }
}

#[test]
fn disk_on_a_descriptor_is_a_disk_on_its_file() {
    let scratch = Scratch::new(LEN);
    let disk = Disk::options().open_file(file(&scratch, 0)).expect("it opens");
    assert_eq!(disk.info().spec, scratch.path.to_str().expect("UTF-8"));
    check_same(&disk, &file(&scratch, 0), 1);
    // The same file by its path shares the state of the first disk.
    let other = open(&disk.info().spec);
    other.write_all_at(&[2; 512], 0).expect("a write");
    let point = other.durable_point();
    disk.flush().expect("a flush");
    assert!(other.is_durable(point), "both disks are on one place");
}

#[test]
fn descriptor_opens_its_own_file_after_its_name_is_gone_or_another_files() {
    for driver in DRIVERS {
        let scratch = Scratch::new(LEN);
        let (gone, read) = (file(&scratch, 0), file(&scratch, 0));
        std::fs::remove_file(&scratch.path).expect("it is removed");
        let removed = Disk::options().driver(driver).open_file(gone).expect("it opens");
        assert!(removed.info().spec.ends_with("disk.img (deleted)"), "{}", removed.info().spec);
        check_same(&removed, &read, 3);

        std::fs::write(&scratch.path, [9; 4096]).expect("a file of that name");
        let replaced = file(&scratch, 0);
        let again = replaced.try_clone().expect("a descriptor");
        std::fs::rename(&scratch.path, scratch.path.with_extension("old")).expect("it moves");
        std::fs::write(&scratch.path, [9; 8192]).expect("another file of that name");
        replaced.set_len(LEN).expect("it grows");
        let disk = Disk::options().driver(driver).open_file(again).expect("it opens");
        check_same(&disk, &replaced, 4);
        assert!(disk.info().spec.ends_with("disk.old"), "{}", disk.info().spec);
        assert_eq!(std::fs::read(&scratch.path).expect("it is there"), [9; 8192]);
    }
}

#[test]
fn descriptor_keeps_direct_io_and_refuses_another_choice() {
    let scratch = Scratch::new(LEN);
    let path = scratch.path.display();
    let options = Disk::options();
    let direct = options.open_file(file(&scratch, libc::O_DIRECT)).expect("it opens");
    assert_eq!(direct.info().spec, format!("{path}?direct=on"));
    assert!(direct.limits().dma_alignment > 1, "memory must be aligned");
    let cached = options.open_file(file(&scratch, 0)).expect("it opens");
    assert_eq!(cached.info().spec, path.to_string());
    options.clone().direct(true).open_file(file(&scratch, libc::O_DIRECT)).expect("the same");
    assert_eq!(
        refusal(options.clone().direct(true).open_file(file(&scratch, 0))),
        "direct=on: expected off, because the descriptor is open without O_DIRECT"
    );
    assert_eq!(
        refusal(options.direct(false).open_file(file(&scratch, libc::O_DIRECT))),
        "direct=off: expected on, because the descriptor is open with O_DIRECT"
    );
}

#[test]
fn descriptor_that_is_not_open_as_a_disk_needs_it_is_refused() {
    let scratch = Scratch::new(LEN);
    let options = Disk::options();
    let prefix = format!("{}: a disk cannot use its descriptor: ", scratch.path.display());
    let check = |file: File, expected: &str| {
        let error = refusal(options.open_file(file));
        assert!(error.starts_with(&format!("{prefix}{expected}")), "{error}");
    };
    check(file(&scratch, libc::O_APPEND), "it has O_APPEND, with which writes go to the end");
    check(file(&scratch, libc::O_SYNC), "it has O_SYNC or O_DSYNC");
    check(file(&scratch, libc::O_DSYNC), "it has O_SYNC or O_DSYNC");
    check(file(&scratch, libc::O_NOATIME), "it has O_NOATIME");
    check(file(&scratch, libc::O_PATH), "it has O_PATH");
    let written = OpenOptions::new().write(true).open(&scratch.path).expect("it opens");
    check(written, "it is open for writing only");
    let read = || File::open(&scratch.path).expect("it opens");
    check(read(), "it is open for reading only; open it for reading and writing, or set read_only");
    let disk = options.clone().read_only(true).open_file(read()).expect("it opens");
    disk.read_exact_at(&mut [0; 512], 0).expect("a read");
    disk.write_all_at(&[0; 512], 0).expect_err("it is read-only");
    let folder = File::open(scratch.path.parent().expect("a folder")).expect("it opens");
    let error = refusal(options.clone().read_only(true).open_file(folder));
    assert!(error.ends_with("not a regular file or a block device, but a directory"), "{error}");
    let (pipe, _writer) = std::io::pipe().expect("a pipe");
    let error = refusal(options.read_only(true).open_fd(pipe.into()));
    assert!(error.ends_with("not a regular file or a block device, but a pipe"), "{error}");
}

#[test]
fn locks_are_those_of_a_disk_on_the_path() {
    let scratch = Scratch::new(LEN);
    let spec = scratch.path.to_str().expect("UTF-8").to_owned();
    let options = Disk::options();
    let sole = options.clone().exclusive(true).open_file(file(&scratch, 0)).expect("it opens");
    assert!(refusal(Disk::open(&spec)).contains("has it open with exclusive=on"));
    assert!(
        refusal(options.open_file(file(&scratch, 0))).contains("has it open with exclusive=on")
    );
    drop(sole);
    let disk = options.open_file(file(&scratch, 0)).expect("it opens");
    assert!(!try_lock(&file(&scratch, 0), libc::F_WRLCK, 101), "the image is locked");
    drop(disk);
    assert!(try_lock(&file(&scratch, 0), libc::F_WRLCK, 101), "the locks ended with the disk");
    let other = file(&scratch, 0);
    assert!(try_lock(&other, libc::F_WRLCK, 0), "another program locks all of it");
    let error = refusal(options.open_file(file(&scratch, 0)));
    assert!(error.starts_with(&format!("{spec}: another program has locked it")), "{error}");
}

#[test]
fn descriptor_of_a_block_device_opens_it() {
    let Some(device) = LoopDevice::or_skip("descriptor_of_a_block_device_opens_it", LEN) else {
        return;
    };
    let node = || OpenOptions::new().read(true).write(true).open(&device.node).expect("it opens");
    let disk = Disk::options().open_file(node()).expect("it opens");
    assert_eq!((disk.capacity_bytes(), disk.info().spec.as_str()), (Some(LEN), &*device.node));
    check_same(&disk, &node(), 5);
    drop(disk);
    let sole: DiskOptions = Disk::options().exclusive(true);
    let disk = sole.open_file(node()).expect("it opens");
    assert!(refusal(Disk::open(&device.node)).contains("has it open with exclusive=on"));
    check_same(&disk, &node(), 6);
}

#[test]
fn disk_on_open_files_opens_none_itself_until_they_are_used_up() {
    let scratch = Scratch::new(LEN);
    let nr_open = || {
        let links = std::fs::read_dir("/proc/self/fd").expect("it is there").flatten();
        links
            .filter(|link| std::fs::read_link(link.path()).is_ok_and(|path| path == scratch.path))
            .count()
    };
    for driver in DRIVERS {
        let fds = (0..4).map(|_| OwnedFd::from(file(&scratch, 0))).collect();
        let options = Disk::options().driver(driver).nr_hw_queues(4);
        let disk = options.open_fds(fds).expect("it opens");
        assert_eq!(nr_open(), 4, "{driver}: the disk opens no file");
        // The place and the shared queue have two, and two owned queues have the others.
        let (opened, ends) = (std::sync::Barrier::new(4), std::sync::Barrier::new(4));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let _queue = disk.queue();
                    opened.wait();
                    ends.wait();
                });
            }
            opened.wait();
            let nr = nr_open();
            ends.wait();
            assert_eq!(nr, 5, "{driver}: the third owned queue opens the file");
        });
        // A thread of the driver may close the file of a queue.
        let await_open = |nr, why| {
            let start = std::time::Instant::now();
            while nr_open() != nr {
                assert!(start.elapsed().as_secs() < 20, "{driver}: {why}: {} files", nr_open());
                std::thread::yield_now();
            }
        };
        await_open(4, "the stock has its files back");
        check_same(&disk, &file(&scratch, 0), 9);
        drop(disk);
        await_open(0, "a disk that is closed leaves no file open");
    }
}

#[test]
fn open_files_that_are_no_stock_are_refused() {
    let (scratch, other) = (Scratch::new(LEN), Scratch::new(LEN));
    let open = |scratch| file(scratch, 0);
    let refuse = |files: Vec<File>| {
        refusal(Disk::options().open_fds(files.into_iter().map(Into::into).collect()))
    };
    let error = refuse(vec![open(&scratch), open(&other)]);
    assert!(error.contains("the descriptors are of different files"), "{error}");
    let error = refuse(vec![open(&scratch), file(&scratch, libc::O_DIRECT)]);
    assert!(error.contains("open with different flags"), "{error}");
    // The caller's pipe keeps its flags.
    let (pipe, _end) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
    pipe.set_nonblocking(true).expect("a flag");
    let kept = pipe.try_clone().expect("a duplicate");
    let error = refuse(vec![OwnedFd::from(pipe).into()]);
    assert!(error.contains("neither a regular file nor a block device"), "{error}");
    let would_block = std::io::Read::read(&mut &kept, &mut [0; 1]).expect_err("no data");
    assert_eq!(would_block.kind(), std::io::ErrorKind::WouldBlock);
    let one = open(&scratch);
    let error = refuse(vec![one.try_clone().expect("a duplicate"), open(&scratch), one]);
    assert!(error.contains("it is a duplicate of another descriptor"), "{error}");
}

#[test]
fn files_of_a_stock_serve_one_disk_and_are_closed_with_it() {
    let scratch = Scratch::new(LEN);
    let options = Disk::options().lock(ImageLock::Shared);
    let open = || file(&scratch, 0);
    let (one, two) = (open(), open());
    let duplicates = || vec![one.try_clone().expect("a duplicate").into(), OwnedFd::from(open())];
    let first = vec![one.try_clone().expect("a duplicate").into(), OwnedFd::from(two)];
    let first = options.open_fds(first).expect("it opens");
    let error = refusal(options.open_fds(duplicates()));
    assert!(error.contains("or of one on which a disk is open"), "{error}");
    // The place, which the disks share, keeps one file of the first disk.
    let nr_open = || {
        let links = std::fs::read_dir("/proc/self/fd").expect("it is there").flatten();
        let links = links.filter_map(|link| std::fs::read_link(link.path()).ok());
        links.filter(|path| *path == scratch.path).count()
    };
    let more = (0..4).map(|_| OwnedFd::from(open())).collect();
    let second = options.open_fds(more).expect("it opens");
    drop(first);
    let start = std::time::Instant::now();
    while nr_open() > 1 + 1 + 4 {
        assert!(start.elapsed().as_secs() < 20, "{} files are open", nr_open());
        std::thread::yield_now();
    }
    drop(second);
    drop(options.open_fds(duplicates()).expect("its duplicate was closed"));
}
