//! Detection of disk images in other formats, which would be served as raw by mistake.
//!
//! The server never interprets a format: a client that can write an image could make it refer to
//! other files, and read them. The server only checks the format when it adds a disk, to warn
//! the operator.

use forebay::Spec;
use rustix::io::pread;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Bytes of an image that are read: a block of any file that was opened with `O_DIRECT`.
const HEAD_BYTES: usize = 4096;

/// The start of an image, aligned for `O_DIRECT`.
#[repr(C, align(4096))]
struct Head([u8; HEAD_BYTES]);

/// A format, the offset of its magic number, and the magic number.
///
/// LUKS is not included: a guest opens such a disk itself, and needs the raw bytes.
const FORMATS: [(&str, usize, &[u8]); 9] = [
    ("qcow2", 0, b"QFI\xfb"),
    ("qed", 0, b"QED\0"),
    ("vmdk", 0, b"KDMV"),
    ("vmdk", 0, b"# Disk DescriptorFile"),
    // Little-endian 0xbeda107f, after a text of 64 bytes.
    ("vdi", 64, b"\x7f\x10\xda\xbe"),
    ("vhdx", 0, b"vhdxfile"),
    // A dynamic image. A fixed one is raw, except for its last sector.
    ("vhd", 0, b"conectix"),
    // The mark of images of more than 2 TiB, and the older one.
    ("parallels", 0, b"WithouFreSpacExt"),
    ("parallels", 0, b"WithoutFreeSpace"),
];

/// Returns a warning if the file of this spec begins like an image in a format other than raw.
/// `None` also if the spec has no file, or the file cannot be read.
///
/// The server returns the same warning to a client of the control socket that adds such a file.
pub fn image_warning(spec: &str) -> Option<String> {
    let path = Spec::parse(spec).ok()?.file()?;
    // Opening a pipe would wait for its other end.
    let kind = std::fs::metadata(&path).ok()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return None;
    }
    warning_of(&path, File::open(&path).ok()?)
}

/// Returns the warning of [`image_warning`] for a spec whose file is already open: a confined
/// server cannot open it.
pub(crate) fn warning_of_open(spec: &str, file: impl AsFd) -> Option<String> {
    warning_of(&Spec::parse(spec).ok()?.file()?, file)
}

fn warning_of(path: &Path, file: impl AsFd) -> Option<String> {
    let mut head = Head([0; HEAD_BYTES]);
    // An image may be shorter than that. The rest is zero.
    pread(file, &mut head.0, 0).ok()?;
    let (format, path) = (format_of(&head.0)?, path.display());
    Some(format!(
        "{path}: this is a {format} image, and it is served as raw: clients see the {format} \
         file, not the disk in it; convert it with `qemu-img convert -O raw`, or serve it with \
         qemu-nbd"
    ))
}

fn format_of(head: &[u8; HEAD_BYTES]) -> Option<&'static str> {
    let has = |(_, at, mark): &&(&str, usize, &[u8])| head[*at..].starts_with(mark);
    FORMATS.iter().find(has).map(|(format, ..)| *format)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::OFlags;
    use std::io::ErrorKind;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn formats_are_recognized_by_their_marks() {
        for (format, at, mark) in FORMATS {
            let mut head = [0; HEAD_BYTES];
            head[at..at + mark.len()].copy_from_slice(mark);
            assert_eq!(format_of(&head), Some(format));
            head[at] ^= 1;
            assert_eq!(format_of(&head), None, "{format}");
        }
        assert_eq!(format_of(&[0; HEAD_BYTES]), None);
        let mut parallels = [0; HEAD_BYTES];
        for mark in ["WithouFreSpacExt", "WithoutFreeSpace"] {
            parallels[..mark.len()].copy_from_slice(mark.as_bytes());
            assert_eq!(format_of(&parallels), Some("parallels"), "{mark}");
        }
        let mut luks = [0; HEAD_BYTES];
        luks[..6].copy_from_slice(b"LUKS\xba\xbe");
        assert_eq!(format_of(&luks), None);
    }

    #[test]
    fn open_file_is_read_also_with_direct_io() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("disk.img");
        std::fs::write(&path, [&b"vhdxfile"[..], &[0; 8184]].concat()).unwrap();
        let spec = path.display().to_string();
        for flags in [OFlags::empty(), OFlags::DIRECT] {
            let mut options = File::options();
            let file = match options.read(true).custom_flags(flags.bits() as i32).open(&path) {
                Err(error) if error.kind() == ErrorKind::InvalidInput => continue,
                file => file.unwrap(),
            };
            let warning = warning_of_open(&spec, &file).expect("a warning");
            assert!(warning.contains("this is a vhdx image"), "{warning}");
        }
    }

    #[test]
    fn only_files_and_block_devices_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        std::fs::write(&path, b"QFI\xfb").unwrap();
        let path = path.display();
        for driver in ["", "psync:", "fault:", "fault:aio:"] {
            let spec = format!("{driver}{path}?read_only=on");
            let warning = image_warning(&spec).expect("a warning");
            assert!(warning.starts_with(&format!("{path}: this is a qcow2 image")), "{warning}");
        }
        for spec in ["ram:1M", "null:1M", "nowhere.img", "fault:ram:1M"] {
            assert_eq!(image_warning(spec), None, "{spec}");
        }
    }
}
