//! The files that the rules check: tracked ones, and new ones that git does not ignore.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::command::Line;

/// One file of the tree.
#[derive(Debug, Clone)]
pub(super) struct SourceFile {
    /// Path relative to the root, with `/`.
    pub(super) path: String,
    pub(super) len_bytes: u64,
    pub(super) executable: bool,
    /// `None` if the file is not UTF-8 text.
    pub(super) text: Option<String>,
}

/// Lists the tree, without tracked files that are deleted in the working tree.
pub(super) fn list(root: &Path) -> Result<Vec<SourceFile>, String> {
    // CI may check out as one user and build as another, which git refuses without this setting.
    let git = Line::new("git", "-c").argument(format!("safe.directory={}", root.display()));
    let git = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        .iter()
        .fold(git, |git, argument| git.argument(argument.to_string()));
    let names = git.output()?;
    let mut paths: Vec<&str> = names.split_terminator('\0').collect();
    paths.sort_unstable();
    paths.dedup();
    paths.iter().filter_map(|path| read(root, path).transpose()).collect()
}

fn read(root: &Path, path: &str) -> Result<Option<SourceFile>, String> {
    let full = root.join(path);
    let Ok(metadata) = fs::symlink_metadata(&full) else {
        return Ok(None);
    };
    if !metadata.is_file() {
        return Ok(None);
    }
    let bytes = fs::read(&full).map_err(|error| format!("{path} cannot be read: {error}"))?;
    Ok(Some(SourceFile {
        path: path.to_string(),
        len_bytes: metadata.len(),
        executable: metadata.permissions().mode() & 0o111 != 0,
        text: String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')),
    }))
}

#[cfg(test)]
impl SourceFile {
    /// Returns a file for tests of the rules: text at a path.
    pub(super) fn of(path: &str, text: &str) -> Self {
        SourceFile {
            path: path.to_string(),
            len_bytes: text.len() as u64,
            executable: false,
            text: Some(text.to_string()),
        }
    }
}
