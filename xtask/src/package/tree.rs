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
    let failed = |error| format!("package: {}: {error}", from.display());
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        let section = name.rsplit('.').next().unwrap_or_default();
        let to = pages.join(format!("man{section}")).join(&name);
        copy(&from.join(&name), &to)?;
        // Without name and time, so that equal pages give equal files.
        Line::new("gzip", "-9 --no-name --force").argument(to.display().to_string()).run()?;
    }
    Ok(())
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
