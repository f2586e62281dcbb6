//! Limits and properties of a file or block device, as reported by the kernel.
// It makes system calls that no library wraps.
#![allow(unsafe_code)]

use super::inline::{self, Nowait, Writes};
use super::options::Options;
use super::ranges::{self, Knowledge};
use super::sysfs::Queue;
use crate::error::OpenError;
use crate::info::Feature;
use forebay_core::QueueLimits;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The maximum of segments of one request: its vectors fit in 2 KiB per tag.
const MAX_SEGMENTS: u32 = 128;

/// The default of `max_sectors_kb` if the device reports none; Linux used it for a long time.
const MAX_SECTORS_KB: u32 = 1280;

/// Limits and other known properties.
#[derive(Debug)]
pub(super) struct Probed {
    pub(super) limits: QueueLimits,
    pub(super) features: Vec<Feature>,
    pub(super) ranges: Knowledge,
    pub(super) writes: Writes,
    /// The block device that the file is, or is on.
    pub(super) dev: u64,
    /// Bytes behind the last whole block.
    pub(super) out_of_reach_bytes: u64,
}

/// Queries the kernel.
pub(super) fn probe(file: &File, path: &Path, options: Options) -> Result<Probed, OpenError> {
    let metadata = file.metadata().map_err(|source| OpenError::System {
        path: path.to_owned(),
        call: "fstat",
        source,
    })?;
    let is_device = metadata.file_type().is_block_device();
    let dev = if is_device { metadata.rdev() } else { metadata.dev() };
    let queue = Queue::of(dev);
    let number = |attribute| queue.as_ref().and_then(|queue| queue.positive(attribute));
    let max_kb = number("max_sectors_kb").unwrap_or(MAX_SECTORS_KB).min(1 << 20);
    let mut limits = QueueLimits::default()
        .max_hw_sectors(max_kb * 2)
        .max_sectors(max_kb * 2)
        .max_segments(MAX_SEGMENTS)
        .volatile_cache(true)
        .fua(false)
        // The page cache writes in order, and a short write has not begun the rest. Without the
        // cache the parts of a write may run in parallel (NFS, FUSE), or its rest may go through
        // the page cache and fail at write-back (Linux: `direct_write_fallback`). The count is then
        // only a lower bound.
        .exact_counts(!options.direct)
        .rotational(number("rotational").is_some())
        .read_only(options.read_only);
    let mut features = Vec::new();
    let len = if is_device {
        device(file, path, &mut limits)?
    } else {
        regular(file, path, options, metadata.blksize(), &mut limits)?
    };
    let out_of_reach_bytes = capacity(path, len, options.growing && !is_device, &mut limits)?;
    if is_device && options.direct {
        limits.dma_alignment = number("dma_alignment").unwrap_or(511);
    }
    let beside =
        (!is_device && !options.read_only).then(|| ranges::beside(path, metadata.dev())).flatten();
    let writes = match () {
        () if is_device => Writes::Ring("a block device: io_uring makes buffered writes at once"),
        () if options.read_only => Writes::Ring("read only"),
        () if options.direct => Writes::Ring("direct=on: no write is buffered"),
        () => {
            let nowait = beside.as_ref().map_or(Nowait::Unknown, inline::ask_nowait);
            inline::of_file(file, limits.physical_block_size, nowait)
        }
    };
    let ranges = match is_device {
        true => Knowledge::OfDevice {
            discards: number("discard_max_bytes").is_some(),
            zeroes: number("write_zeroes_max_bytes").is_some(),
        },
        false => Knowledge::OfFile(beside.as_ref().and_then(ranges::ways)),
    };
    features.push(Feature::present(
        "flush",
        match is_device {
            true => "fdatasync, which has the device write its cache back",
            false => "fdatasync; fsync only if a caller asks for all metadata",
        },
    ));
    let reports_own = options.direct && is_device;
    features.push(fua(queue.as_ref(), options.fua, reports_own, &mut limits));
    features.push(match options.direct {
        true => Feature::present("direct", "O_DIRECT"),
        false => Feature::missing("direct", "not asked for: direct=on"),
    });
    Ok(Probed { dev, limits, features, ranges, writes, out_of_reach_bytes })
}

/// Sets how durable writes are made, and returns a description.
///
/// If the device has no FUA, each RWF_DSYNC is a write and a flush of its own, which no other write
/// shares. A device not known to have FUA is treated as one without it. `asked` is the key `fua`.
/// With `reports_own` each write reports the errors of its own data.
fn fua(
    queue: Option<&Queue>,
    asked: Option<bool>,
    reports_own: bool,
    limits: &mut QueueLimits,
) -> Feature {
    let of_device = queue.map(|queue| queue.number("fua"));
    limits.fua = asked.unwrap_or(of_device.flatten().is_some_and(|fua| fua > 0));
    // RWF_DSYNC ends with a sync, which consumes an error of the file that is not reported yet. For
    // the write's own data, direct I/O reports the error to the write. The page cache reports it to
    // one of the syncs that run. On a file, direct I/O may also go through the page cache (Linux:
    // `direct_write_fallback`).
    limits.fua_is_sync = true;
    limits.fua_queueable = reports_own;
    let why = match of_device {
        _ if limits.fua => {
            return Feature::present("fua", "RWF_DSYNC on each write that asks for it");
        }
        None => {
            "/sys does not show on which device the file is (tmpfs, btrfs, NFS, overlay): a flush \
             follows the write, and is shared; fua=on: RWF_DSYNC"
        }
        Some(None) => {
            "/sys does not show whether the device has it: a flush follows the write, and is \
             shared; fua=on: RWF_DSYNC"
        }
        Some(Some(_)) => {
            "the device has none: a flush follows the write, and is shared; fua=on: RWF_DSYNC"
        }
    };
    Feature::missing("fua", why)
}

/// Reads the sizes of a block device. Returns its length in bytes.
fn device(file: &File, path: &Path, limits: &mut QueueLimits) -> Result<u64, OpenError> {
    // The request numbers from <linux/fs.h>.
    const BLKROGET: libc::Ioctl = 0x125E;
    const BLKSSZGET: libc::Ioctl = 0x1268;
    const BLKGETSIZE64: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl;
    const BLKIOMIN: libc::Ioctl = 0x1278;
    const BLKIOOPT: libc::Ioctl = 0x1279;
    const BLKPBSZGET: libc::Ioctl = 0x127B;
    let mut len = 0u64;
    // SAFETY: this request writes one u64 through the pointer.
    if unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut len) } != 0 {
        return Err(system(path, "ioctl(BLKGETSIZE64)"));
    }
    let number = |request, call| {
        let mut number = 0u32;
        // SAFETY: each of these requests writes one 32-bit number through the pointer.
        match unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut number) } {
            0 => Ok(number),
            _ => Err(system(path, call)),
        }
    };
    limits.logical_block_size = number(BLKSSZGET, "ioctl(BLKSSZGET)")?;
    let physical = number(BLKPBSZGET, "ioctl(BLKPBSZGET)")?;
    limits.physical_block_size = physical.max(limits.logical_block_size);
    limits.io_min = number(BLKIOMIN, "ioctl(BLKIOMIN)")?;
    limits.io_opt = number(BLKIOOPT, "ioctl(BLKIOOPT)")?;
    limits.read_only |= number(BLKROGET, "ioctl(BLKROGET)")? != 0;
    Ok(len)
}

/// Sets the I/O unit of a regular file. Returns its length in bytes.
fn regular(
    file: &File,
    path: &Path,
    options: Options,
    block: u64,
    limits: &mut QueueLimits,
) -> Result<u64, OpenError> {
    let statx = statx(file).ok_or_else(|| system(path, "statx"))?;
    limits.logical_block_size = 1;
    if options.direct {
        let (mut memory, mut offset) = (statx.stx_dio_mem_align, statx.stx_dio_offset_align);
        if statx.stx_mask & libc::STATX_DIOALIGN == 0 {
            (memory, offset) = (512, 512);
        }
        if offset == 0 || memory == 0 {
            return Err(OpenError::NoDirect { path: path.to_owned() });
        }
        limits.logical_block_size = offset.next_power_of_two();
        limits.dma_alignment = memory.next_power_of_two() - 1;
    }
    let block = (block.clamp(512, 1 << 16) as u32).next_power_of_two();
    limits.physical_block_size = block.max(limits.logical_block_size);
    limits.io_min = block;
    Ok(statx.stx_size)
}

fn statx(file: &File) -> Option<libc::statx> {
    let mut statx = MaybeUninit::<libc::statx>::zeroed();
    let mask = libc::STATX_SIZE | libc::STATX_DIOALIGN;
    // SAFETY: the path is an empty C string, and the kernel writes one `statx` at most.
    let failed = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, mask, statx.as_mut_ptr())
    };
    // SAFETY: all zeroes is a valid value of this plain structure, and the kernel fills it in.
    (failed == 0).then(|| unsafe { statx.assume_init() })
}

/// Sets the capacity: whole blocks of a fixed-size file. Returns the number of bytes left out.
fn capacity(
    path: &Path,
    len: u64,
    growing: bool,
    limits: &mut QueueLimits,
) -> Result<u64, OpenError> {
    let block = limits.logical_block_size;
    let out_of_reach = len % u64::from(block);
    let whole = len - out_of_reach;
    if !growing && whole == 0 {
        return Err(OpenError::TooSmall { path: path.to_owned(), len, block });
    }
    limits.capacity_bytes = (!growing).then_some(whole);
    Ok(if growing { 0 } else { out_of_reach })
}

/// Returns the error of a failed system call on a path.
fn system(path: &Path, call: &'static str) -> OpenError {
    let path: PathBuf = path.to_owned();
    OpenError::System { path, call, source: io::Error::last_os_error() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::skip::skip;
    use crate::info::FeatureState;

    /// Checks whether there is FUA, and if not why, for this queue and this value of the key `fua`.
    fn check(queue: Option<&Queue>, given: Option<bool>, expected: Result<(), &str>) {
        for reports_own in [false, true] {
            let mut limits = QueueLimits::default();
            let feature = fua(queue, given, reports_own, &mut limits);
            assert_eq!(limits.fua, expected.is_ok(), "{queue:?} {given:?}");
            assert!(limits.fua_is_sync && limits.fua_queueable == reports_own);
            match (feature.state, expected) {
                (FeatureState::Present(how), Ok(())) => assert!(how.starts_with("RWF_DSYNC")),
                (FeatureState::Missing(why), Err(begin)) => {
                    assert!(why.starts_with(begin), "{why}");
                    assert!(
                        why.ends_with(
                            "a flush follows the write, and is shared; fua=on: RWF_DSYNC"
                        )
                    );
                }
                (state, _) => panic!("{state:?}"),
            }
        }
    }

    #[test]
    fn fua_is_native_only_where_the_queue_of_the_device_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let queue = Queue::at(folder.path());
        check(None, None, Err("/sys does not show on which device the file is"));
        check(None, Some(true), Ok(()));
        check(Some(&queue), None, Err("/sys does not show whether the device has it"));
        for (text, expected) in [("1\n", Ok(())), ("0\n", Err("the device has none"))] {
            std::fs::write(folder.path().join("fua"), text).expect("a file");
            check(Some(&queue), None, expected);
        }
    }

    #[test]
    fn durable_writes_of_a_file_share_no_sync_even_without_the_page_cache() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(1 << 20).expect("room");
        for direct in [false, true] {
            let options = Options { direct, growing: false, read_only: false, fua: Some(true) };
            let probed = probe(file.as_file(), file.path(), options).expect("its limits");
            assert!(probed.limits.fua && !probed.limits.fua_queueable);
        }
    }

    #[test]
    fn tmpfs_has_no_device_and_no_native_fua() {
        let Ok(file) = tempfile::NamedTempFile::new_in("/dev/shm") else {
            let test = "tmpfs_has_no_device_and_no_native_fua";
            return skip(test, "there is no tmpfs at /dev/shm");
        };
        let options = Options { direct: false, growing: true, read_only: false, fua: None };
        let probed = probe(file.as_file(), file.path(), options).expect("its limits");
        assert!(!probed.limits.fua);
    }
}
