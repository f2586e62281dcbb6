//! The identity of a file, whatever path names it.
//!
//! Links and relative paths give one file several names. Two paths name the same file if they have
//! the same [`FileId`]. A file that does not exist yet has one too, so that files which a run is
//! going to create are compared before it creates any.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// Links from name to name that are followed at most, as in Linux.
const LINKS_MAX: usize = 40;

/// A file that exists, or the place of one that does not.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum FileId {
    /// The number of a block device. Several nodes may stand for one device.
    BlockDevice(u64),
    /// The number of the file system, and of the file in it.
    Inode(u64, u64),
    /// The canonical path of a folder, which may be missing too, and a name in it.
    Missing(PathBuf),
}

impl FileId {
    /// Returns the identity of the file at a path.
    pub(crate) fn of(path: &Path) -> Self {
        match fs::metadata(path) {
            Ok(metadata) => Self::of_existing(&metadata),
            Err(_) => Self::Missing(place(path)),
        }
    }

    /// Returns the identity of a file that exists.
    pub(crate) fn of_existing(metadata: &fs::Metadata) -> Self {
        match metadata.file_type().is_block_device() {
            true => Self::BlockDevice(metadata.rdev()),
            false => Self::Inode(metadata.dev(), metadata.ino()),
        }
    }
}

/// Returns where a file would be created: a link without a target stands for that target.
fn place(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = path.parent().and_then(canonical);
        if let (Some(folder), Some(name)) = (folder, path.file_name()) {
            path = folder.join(name);
        }
        let Ok(target) = fs::read_link(&path) else { break };
        // A target that is not absolute is relative to the folder of the link.
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    path
}

/// Returns the canonical path of a folder. The part that does not exist yet has no links.
fn canonical(folder: &Path) -> Option<PathBuf> {
    let mut ancestors = folder.ancestors();
    let (existing, mut path) = ancestors.find_map(|ancestor| {
        let here = if ancestor.as_os_str().is_empty() { Path::new(".") } else { ancestor };
        Some((ancestor, here.canonicalize().ok()?))
    })?;
    for component in folder.strip_prefix(existing).ok()?.components() {
        match component {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_name_of_a_file_has_the_same_identity() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        let id = |name: &str| FileId::of(&at(name));
        fs::create_dir(at("sub")).expect("a directory");
        symlink("sub", at("to_sub")).expect("a link");
        symlink("../new", at("sub/to_new")).expect("a link");
        symlink("loop", at("loop")).expect("a link");
        let missing = ["new", "./new", "sub/../new", "to_sub/../new", "sub/to_new"];
        missing.iter().for_each(|name| assert_eq!(id(name), id("new"), "{name}"));
        assert_ne!(id("sub/new"), id("new"));
        assert_eq!(id("to_sub/new"), id("sub/new"));
        assert_eq!(id("loop"), id("./loop"));
        let in_missing_folders = ["p/q/f", "./p/q/f", "p/./q/f", "p/r/../q/f", "to_sub/../p/q/f"];
        in_missing_folders.iter().for_each(|name| assert_eq!(id(name), id("p/q/f"), "{name}"));
        assert_eq!(id("p/../new"), id("new"));
        assert_ne!(id("q/f"), id("p/q/f"));
        let here = fs::canonicalize(".").expect("the current directory");
        for name in ["missing/f", "./missing/f", "missing/../missing/f"] {
            assert_eq!(FileId::of(Path::new(name)), FileId::Missing(here.join("missing/f")));
        }

        fs::write(at("new"), "x").expect("a file");
        fs::hard_link(at("new"), at("hard")).expect("a link");
        for name in missing.into_iter().chain(["hard"]) {
            assert_eq!(id(name), id("new"), "{name}");
        }
        assert!(matches!(id("new"), FileId::Inode(..)));
    }
}
