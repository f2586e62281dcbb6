//! Search for the one process that can be watched, if the user names none.

use crate::failure::Failure;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The directory of the sockets of services (`contrib/systemd`).
const SYSTEM: &str = "/run/forebay";

/// Returns the only socket in the usual directories at which a process of this user listens.
///
/// # Errors
/// Fails if there is none, or more than one.
pub(super) fn only_socket() -> Result<PathBuf, Failure> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    let own = own.map(|path| Path::new(&path).join("forebay"));
    let directories: Vec<PathBuf> = own.into_iter().chain([PathBuf::from(SYSTEM)]).collect();
    only_in(&directories)
}

fn only_in(directories: &[PathBuf]) -> Result<PathBuf, Failure> {
    let mut found = Vec::new();
    for directory in directories {
        for path in entries(directory) {
            // A service has a directory of its own there.
            found.extend(entries(&path).into_iter().chain([path]).filter(|path| answers(path)));
        }
    }
    let name = |path: &PathBuf| path.display().to_string();
    match &found[..] {
        [only] => Ok(only.clone()),
        [] => {
            let places: Vec<_> = directories.iter().map(name).collect();
            Err(Failure::Usage(format!(
                "no running process found in {}: name a socket, such as that of forebay serve \
                 --control SOCKET, or of a program that calls Insight::listen",
                places.join(" and ")
            )))
        }
        several => Err(Failure::Usage(format!(
            "several processes are running: name one of {}",
            several.iter().map(name).collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// Returns the entries of a directory, in order. One that cannot be read has none.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Returns whether a process listens there, and this user may connect.
fn answers(path: &Path) -> bool {
    let is_socket = path.metadata().is_ok_and(|file| file.file_type().is_socket());
    is_socket && UnixStream::connect(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_only_socket_that_answers_is_found_and_others_are_listed() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let find = || only_in(&[folder.path().to_owned(), at("none")]);
        let error = find().expect_err("nothing there").to_string();
        assert!(error.starts_with("no running process found in "), "{error}");
        assert!(error.contains("/none: name a socket, such as that of forebay serve"), "{error}");
        std::fs::create_dir(at("vm1")).expect("a folder");
        std::fs::write(at("file"), "").expect("a file");
        drop(UnixListener::bind(at("stale")).expect("a socket"));
        let _one = UnixListener::bind(at("vm1/control")).expect("a socket");
        assert_eq!(find().expect("one"), at("vm1/control"));
        let _two = UnixListener::bind(at("insight")).expect("a socket");
        let error = find().expect_err("two").to_string();
        let all = format!("{}, {}", at("insight").display(), at("vm1/control").display());
        assert_eq!(error, format!("several processes are running: name one of {all}"));
    }
}
