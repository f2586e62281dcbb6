//! The files of a package, below a directory that stands for `/`.

use std::path::Path;

use super::{copy, write};
use crate::Outcome;
use crate::command::{Line, root};

/// Where a package has its completions: shell, and path below `/usr/share`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/forebay"),
    ("fish", "fish/vendor_completions.d/forebay.fish"),
    ("zsh", "zsh/vendor-completions/_forebay"),
];

/// Writes the manual pages of the program, compressed, and its completions. `program` is a build
/// that runs on this machine.
pub(super) fn pages_and_completions(program: &str, share: &Path) -> Outcome {
    let staging = super::empty_directory("man")?;
    let pages = share.join("man");
    Line::new("env", "--")
        .argument(program.to_owned())
        .argument("man".to_owned())
        .argument(format!("--dir={staging}"))
        .run()?;
    install_pages(Path::new(&staging), &pages)?;
    for (shell, path) in COMPLETIONS {
        let script = Line::new("env", "--").argument(program.to_owned());
        let script = script.argument("completions".to_owned()).argument(shell.to_owned());
        write(&share.join(path), &script.output()?)?;
    }
    Ok(())
}

/// Compresses the pages of a directory into `man1`, `man3` and so on below another.
pub(super) fn install_pages(from: &Path, pages: &Path) -> Outcome {
    for name in names(from)? {
        let to = pages.join(section(&name)).join(&name);
        copy(&from.join(&name), &to)?;
        // Without name and time, so that equal pages give equal files.
        Line::new("gzip", "-9 --no-name --force").argument(to.display().to_string()).run()?;
    }
    Ok(())
}

/// Returns the names of the files in a directory.
pub(super) fn names(directory: &Path) -> Result<Vec<String>, String> {
    let failed = |error| format!("package: {}: {error}", directory.display());
    let entries = std::fs::read_dir(directory).map_err(failed)?;
    let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries.map(|entry| entry.map(name).map_err(failed)).collect()
}

/// Returns the directory of a page such as `forebay.1`.
fn section(page: &str) -> String {
    format!("man{}", page.rsplit('.').next().unwrap_or_default())
}

/// Returns the path of a compressed page below the directory that has `share`.
pub(super) fn page(share: &str, name: &str) -> String {
    format!("{share}/man/{}/{name}.gz", section(name))
}

/// Returns the paths of the completions below the directory that has `share`.
pub(super) fn completions(share: &str) -> [String; 3] {
    COMPLETIONS.map(|(_, path)| format!("{share}/{path}"))
}

/// Copies files of the checkout into a directory.
pub(super) fn copy_from_checkout(names: &[&str], to: &Path) -> Outcome {
    let copy_one = |name: &&str| {
        let name = Path::new(name);
        copy(&root().join(name), &to.join(name.file_name().unwrap_or_default()))
    };
    names.iter().try_for_each(copy_one)
}

/// Copies a program or library without its debug information and with these permissions.
pub(super) fn binary(from: &str, to: &Path, mode: &str) -> Outcome {
    copy(Path::new(from), to)?;
    let to = to.display().to_string();
    Line::new("strip", "--strip-unneeded --remove-section=.comment").argument(to.clone()).run()?;
    Line::new("chmod", mode).argument(to).run()
}
