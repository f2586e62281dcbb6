//! `cargo xtask pictures`: draws the pictures of the documentation again and compares them with the
//! committed ones, and opens pages and figures of every kind in a browser.
//!
//! The pictures come from experiments in virtual time, so they are the same on every machine.
//! `--write` replaces the committed ones. `--all` also opens the page of all experiments, which
//! takes minutes to draw.

mod browser;

use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::command::{Line, root, target};

/// The folder of the committed pictures.
const FOLDER: &str = "docs/pictures";

/// The pictures in the documentation. Each has a second file for dark pages.
const PICTURES: [&str; 3] = ["tags-hdd-iops", "tags-hdd-jain", "flush-each-sata-iops-of-hold"];

/// The commands that draw them, after `forebay`, without the folder.
const EXPERIMENTS: [&str; 2] = ["lab tags --device hdd", "lab flush"];

/// The command that draws the page of all experiments.
const ALL_EXPERIMENTS: &str = "lab";

pub(crate) fn run() -> Outcome {
    check(&EXPERIMENTS)
}

/// Checks the page of all experiments as well.
pub(crate) fn run_all() -> Outcome {
    check(&[&EXPERIMENTS[..], &[ALL_EXPERIMENTS]].concat())
}

fn check(experiments: &[&str]) -> Outcome {
    let (drawn, pages) = draw(experiments)?;
    let mut wrong = Vec::new();
    for name in files() {
        let committed = fs::read(root().join(FOLDER).join(&name)).unwrap_or_default();
        if committed != read(&drawn.join(&name))? {
            wrong.push(name);
        }
    }
    if !wrong.is_empty() {
        return Err(format!(
            "pictures: {} in {FOLDER} differ from those that the experiments draw; look at them \
             and run `cargo xtask pictures --write`",
            wrong.join(", ")
        ));
    }
    println!("pictures: {} files are those that the experiments draw", files().count());
    browser::check(&drawn, pages)
}

/// Replaces the committed pictures.
pub(crate) fn write() -> Outcome {
    let (drawn, _) = draw(&EXPERIMENTS)?;
    let folder = root().join(FOLDER);
    fs::create_dir_all(&folder).map_err(|error| cannot("create", &folder, &error))?;
    for name in files() {
        let path = folder.join(&name);
        fs::write(&path, read(&drawn.join(&name))?)
            .map_err(|error| cannot("write", &path, &error))?;
        println!("pictures: {FOLDER}/{name} is written");
    }
    Ok(())
}

/// Runs the experiments. Returns the folder of their figures, and the page of each.
fn draw(experiments: &[&str]) -> Result<(PathBuf, Vec<PathBuf>), String> {
    // With the profile of the first command of the README, which has built it already.
    Line::cargo("build --quiet --release --package forebay-cli").run()?;
    let folder = PathBuf::from(target("pictures"));
    // A figure that is no longer drawn must not be found.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| cannot("create", &folder, &error))?;
    let mut pages = Vec::new();
    for experiment in experiments {
        let name = experiment.split(' ').nth(1).unwrap_or("lab");
        let page = folder.join(format!("{name}.html"));
        let line = forebay(experiment)
            .argument(format!("--svg={}", folder.display()))
            .argument(format!("--html={}", page.display()));
        println!("pictures: {line}");
        line.output()?;
        pages.push(page);
    }
    Ok((folder, pages))
}

/// Returns a command of the program.
fn forebay(arguments: &str) -> Line {
    let line = Line::new("env", "").argument(target("release/forebay"));
    arguments.split(' ').fold(line, |line, word| line.argument(word.to_owned()))
}

/// Returns the names of the committed files.
fn files() -> impl Iterator<Item = String> {
    let both = |name| [format!("{name}.svg"), format!("{name}-dark.svg")];
    PICTURES.into_iter().flat_map(both)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| cannot("read", path, &error))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("pictures: cannot {what} {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::{FOLDER, files};
    use crate::command::root;
    use std::fs;

    #[test]
    fn the_folder_has_the_listed_files_and_no_others() {
        let entries = fs::read_dir(root().join(FOLDER)).unwrap();
        let mut found: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        found.sort();
        let mut expected: Vec<_> = files().collect();
        expected.sort();
        assert_eq!(found, expected);
    }
}
