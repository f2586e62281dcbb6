//! `cargo xtask mutants`: weakens memory orderings of the core; a loom model must fail for each.
//!
//! If no model fails, an ordering is either too strong or not tested. So three tables
//! (`mutants/table.rs`, `mutants/cell.rs`, `mutants/durable.rs`) cover every ordering of some
//! files. An entry has the weakened ordering and the model that must fail, or the reason why no
//! model can fail. An ordering in no entry is an error. The crate is patched in a copy under
//! `target/mutants`, which is recreated each time.

mod cell;
mod durable;
mod table;

use self::table::FILES;
use crate::Outcome;
use crate::command::{Line, root};
use crate::patched::{Patched, read};

const CRATE: &str = "crates/forebay-core";

/// One weakened ordering.
struct Mutant {
    /// Path below the crate's `src`.
    file: &'static str,
    /// The text, which is in the file exactly once. The entry covers all orderings in it.
    from: &'static str,
    to: &'static str,
    /// The model that must fail: of the test program `loom`, or a unit test in a module `models`.
    test: &'static str,
}

/// An ordering for which no model can detect a weakening.
struct Unseen {
    file: &'static str,
    from: &'static str,
    why: &'static str,
}

/// Returns every weakened ordering.
fn mutants() -> impl Iterator<Item = &'static Mutant> {
    table::MUTANTS.iter().chain(cell::MUTANTS).chain(durable::MUTANTS)
}

/// Returns every ordering without a model.
fn unseen() -> impl Iterator<Item = &'static Unseen> {
    table::UNSEEN.iter().chain(cell::UNSEEN).chain(durable::UNSEEN)
}

pub(crate) fn run() -> Outcome {
    for file in FILES {
        let text = read(&root().join(CRATE).join("src").join(file))?;
        check_text(file, &text)?;
    }
    let copy = Patched::make("mutants", &[CRATE])?;
    let (nr, mut alive) = (mutants().count(), Vec::new());
    for (index, mutant) in mutants().enumerate() {
        let Mutant { file, test, to, .. } = mutant;
        let is_caught = is_caught(&copy, mutant)?;
        let verdict = if is_caught { "caught by" } else { "ALIVE after" };
        let weak = to.lines().last().unwrap_or_default().trim();
        println!("mutants: [{}/{nr}] {file}: `{weak}`: {verdict} {test}", index + 1);
        if !is_caught {
            alive.push(format!("{file}: `{weak}` is caught by no model; {test} should do so"));
        }
    }
    for Unseen { file, from, why } in unseen() {
        let line = from.lines().last().unwrap_or_default().trim();
        println!("mutants: not seen by loom: {file}: `{line}`: {why}");
    }
    if alive.is_empty() { Ok(()) } else { Err(alive.join("\n")) }
}

/// Checks that every entry of the table matches the file once, and covers every ordering of it.
fn check_text(file: &str, text: &str) -> Outcome {
    let mutants = mutants().map(|mutant| (mutant.file, mutant.from));
    let unseen = unseen().map(|unseen| (unseen.file, unseen.from));
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

/// Returns whether the model fails on the weakened crate. A failed build is an error.
fn is_caught(copy: &Patched, mutant: &Mutant) -> Result<bool, String> {
    let line = test_line(copy, mutant.test);
    let file = format!("{CRATE}/src/{}", mutant.file);
    copy.with(&file, mutant.from, mutant.to, || {
        line.clone().argument("--no-run".to_owned()).argument("--quiet".to_owned()).run()?;
        let test = ["--quiet", "--", "--exact", mutant.test].map(str::to_owned);
        let line = test.into_iter().fold(line, Line::argument);
        let listed = line.clone().argument("--list".to_owned()).output()?;
        match listed.lines().any(|line| line == format!("{}: test", mutant.test)) {
            true => Ok(!line.succeeds()),
            false => Err(format!("there is no model `{}`: mend xtask/src/mutants", mutant.test)),
        }
    })
}

/// Returns the command that runs models of the program that has `test`.
fn test_line(copy: &Patched, test: &str) -> Line {
    let target = if test.contains("::models::") { "--lib" } else { "--test loom" };
    copy.cargo(&format!("test --profile models --package forebay-core {target}"), "loom")
        .variable("RUSTFLAGS", "--cfg blk_loom")
}

#[cfg(test)]
mod tests {
    use super::table::FILES;
    use super::{CRATE, check_text, mutants, read, root};

    #[test]
    fn the_table_fits_the_tree() {
        for file in FILES {
            let text = read(&root().join(CRATE).join("src").join(file)).unwrap();
            check_text(file, &text).unwrap();
        }
        assert!(mutants().all(|mutant| FILES.contains(&mutant.file)));
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
