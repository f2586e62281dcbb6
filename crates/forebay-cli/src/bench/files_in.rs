//! `opendir`: all files below a directory.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Returns the paths of all regular files and block devices below a directory, sorted. Symbolic
/// links are not followed, as in fio.
///
/// # Errors
/// A message: a directory cannot be read, a name is not UTF-8, or there is no file.
pub(super) fn all(directory: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let failed = |error| format!("cannot read {}: {error}", directory.display());
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(failed)?);
            if kind.is_dir() {
                directories.push(path);
            } else if kind.is_file() || kind.is_block_device() {
                let name = path.into_os_string().into_string();
                found.push(name.map_err(|raw| {
                    format!("{} is not UTF-8: rename it", Path::new(&raw).display())
                })?);
            }
        }
    }
    if found.is_empty() {
        return Err("it has no files: create some, or use --nrfiles".to_owned());
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_directories_below_are_found() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        assert!(all(dir.path()).is_err_and(|error| error.starts_with("it has no files")));
        fs::create_dir_all(dir.path().join("b/c")).expect("directories");
        for name in ["b/c/2", "a", "b/1"] {
            fs::write(dir.path().join(name), "x").expect("a file");
        }
        std::os::unix::fs::symlink("a", dir.path().join("link")).expect("a link");
        let found = all(dir.path()).expect("files");
        let below = |path: &String| {
            path.rsplit_once(dir.path().to_str().expect("text")).map(|p| p.1.to_owned())
        };
        let names: Vec<_> = found.iter().filter_map(below).collect();
        assert_eq!(names, ["/a", "/b/1", "/b/c/2"]);
        assert!(all(&dir.path().join("none")).is_err_and(|error| error.contains("cannot read")));
    }
}
