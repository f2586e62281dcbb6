//! `cargo xtask mutants`: every memory ordering of the core, weakened, must make a loom model fail.
//!
//! An ordering that no model minds is either one too strong or one that is not tested. So each
//! stands in a table (`mutants/table.rs`) with what it is weakened to and the model that has to
//! fail, or with the reason why no model can; one that stands in neither is an error. The crate is
//! patched in a copy under `target/mutants`, which is made anew each time.

mod table;

use std::fs;
use std::path::{Path, PathBuf};

use self::table::{FILES, MUTANTS, UNSEEN};
use crate::Outcome;
use crate::command::{Line, root, target};

const CRATE: &str = "crates/forebay-core";

/// One ordering, weakened.
struct Mutant {
    /// Below the crate's `src`.
    file: &'static str,
    /// As it stands there, once. All orderings in it are those that are meant.
    from: &'static str,
    to: &'static str,
    /// The model that has to fail.
    test: &'static str,
}

/// An ordering that cannot be seen weaker by any model.
struct Unseen {
    file: &'static str,
    from: &'static str,
    why: &'static str,
}

pub(crate) fn run() -> Outcome {
    for file in FILES {
        let text = read(&root().join(CRATE).join("src").join(file))?;
        check_text(file, &text)?;
    }
    let copy = Copy::make()?;
    let mut alive = Vec::new();
    for (index, mutant) in MUTANTS.iter().enumerate() {
        let Mutant { file, test, to, .. } = mutant;
        let is_caught = copy.catches(mutant)?;
        let verdict = if is_caught { "caught by" } else { "ALIVE after" };
        let weak = to.lines().last().unwrap_or_default().trim();
        println!("mutants: [{}/{}] {file}: `{weak}`: {verdict} {test}", index + 1, MUTANTS.len());
        if !is_caught {
            alive.push(format!("{file}: `{weak}` is caught by no model; {test} should do so"));
        }
    }
    for Unseen { file, from, why } in UNSEEN {
        let line = from.lines().last().unwrap_or_default().trim();
        println!("mutants: not seen by loom: {file}: `{line}`: {why}");
    }
    if alive.is_empty() { Ok(()) } else { Err(alive.join("\n")) }
}

/// Every entry of the table stands in the file once, and every ordering of the file in an entry.
fn check_text(file: &str, text: &str) -> Outcome {
    let mutants = MUTANTS.iter().map(|mutant| (mutant.file, mutant.from));
    let unseen = UNSEEN.iter().map(|unseen| (unseen.file, unseen.from));
    let mut covered = Vec::new();
    for (_, from) in mutants.chain(unseen).filter(|(of, _)| *of == file) {
        let mut places = text.match_indices(from);
        match (places.next(), places.next()) {
            (Some((start, _)), None) => covered.push(start..start + from.len()),
            (None, _) => return Err(format!("{file} has no `{from}`: mend xtask/src/mutants")),
            _ => return Err(format!("{file} has `{from}` twice: mend xtask/src/mutants")),
        }
    }
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let is_comment = line.trim_start().starts_with("//");
        for word in
            ["Ordering::Acquire", "Ordering::Release", "Ordering::AcqRel", "Ordering::SeqCst"]
        {
            for (at, _) in line.match_indices(word) {
                if !is_comment && !covered.iter().any(|range| range.contains(&(start + at))) {
                    let line = line.trim();
                    return Err(format!(
                        "{file}: nothing shows that `{line}` is needed: add it to xtask/src/mutants"
                    ));
                }
            }
        }
        start += line.len();
    }
    Ok(())
}

/// A workspace of the core alone.
struct Copy(PathBuf);

impl Copy {
    fn make() -> Result<Copy, String> {
        let copy = PathBuf::from(target("mutants"));
        let package = copy.join(CRATE);
        if package.exists() {
            let error = |error| format!("{}: {error}", package.display());
            fs::remove_dir_all(&package).map_err(error)?;
        }
        copy_tree(&root().join(CRATE), &package)?;
        let members = r#"members = ["bench", "crates/*", "xtask"]"#;
        let manifest = read(&root().join("Cargo.toml"))?;
        let manifest = manifest
            .replace(members, &format!("members = [\"{CRATE}\"]"))
            .replace("default-members = [\"crates/forebay-cli\"]\n", "");
        write(&copy.join("Cargo.toml"), &manifest)?;
        write(&copy.join("Cargo.lock"), &read(&root().join("Cargo.lock"))?)?;
        Ok(Copy(copy))
    }

    /// Whether the model fails on the weakened crate. One that does not build is an error.
    fn catches(&self, mutant: &Mutant) -> Result<bool, String> {
        let file = self.0.join(CRATE).join("src").join(mutant.file);
        let text = read(&file)?;
        write(&file, &text.replacen(mutant.from, mutant.to, 1))?;
        let line = self.test_line();
        line.clone().argument("--no-run".to_owned()).argument("--quiet".to_owned()).run()?;
        let test = ["--quiet", "--", "--exact", mutant.test].map(str::to_owned);
        let line = test.into_iter().fold(line, Line::argument);
        let listed = line.clone().argument("--list".to_owned()).output()?;
        if !listed.lines().any(|line| line == format!("{}: test", mutant.test)) {
            return Err(format!("there is no model `{}`: mend xtask/src/mutants", mutant.test));
        }
        let is_caught = !line.succeeds();
        write(&file, &text)?;
        Ok(is_caught)
    }

    /// Where the gate loom builds, as it does: what both depend on is compiled once.
    fn test_line(&self) -> Line {
        Line::cargo("test --profile models --package forebay-core --test loom --manifest-path")
            .argument(self.0.join("Cargo.toml").display().to_string())
            .argument("--target-dir".to_owned())
            .argument(target("loom"))
            .variable("RUSTFLAGS", "--cfg blk_loom")
            .variable("RUST_BACKTRACE", "0")
    }
}

fn copy_tree(from: &Path, to: &Path) -> Outcome {
    let error = |error| format!("{} to {}: {error}", from.display(), to.display());
    fs::create_dir_all(to).map_err(error)?;
    for entry in fs::read_dir(from).map_err(error)? {
        let entry = entry.map_err(error)?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target).map_err(error)?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::table::{FILES, MUTANTS};
    use super::{CRATE, check_text, read, root};

    #[test]
    fn the_table_fits_the_tree() {
        for file in FILES {
            let text = read(&root().join(CRATE).join("src").join(file)).unwrap();
            check_text(file, &text).unwrap();
        }
        assert!(MUTANTS.iter().all(|mutant| FILES.contains(&mutant.file)));
    }

    #[test]
    fn an_ordering_that_stands_in_no_entry_is_an_error() {
        let file = root().join(CRATE).join("src/tag/count.rs");
        let text = read(&file).unwrap() + "\n    fence(Ordering::AcqRel);\n";
        let message = check_text("tag/count.rs", &text).unwrap_err();
        assert!(message.contains("`fence(Ordering::AcqRel);` is needed"), "{message}");
        assert!(check_text("tag/count.rs", "").unwrap_err().contains("has no"));
    }
}
