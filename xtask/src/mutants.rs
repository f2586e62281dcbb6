//! `cargo xtask mutants`: weakens memory orderings of the core; a loom model must fail for each.
//!
//! If no model fails, an ordering is either too strong or not tested. So three tables
//! (`mutants/table.rs`, `mutants/cell.rs`, `mutants/durable.rs`) cover every ordering of some
//! files. An entry has the weakened ordering and the model that must fail, or the reason why no
//! model can fail. An ordering in no entry is an error. The crate is patched in a copy under
//! `target/mutants`, which is recreated each time. One build of it has all mutants.

mod cell;
mod durable;
mod owner;
mod schema;
mod table;

use std::collections::BTreeSet;

use self::schema::{MODULE, SELECT};
use self::table::FILES;
use crate::Outcome;
use crate::command::{Line, root};
use crate::patched::{Patched, read};

const CRATE: &str = "crates/forebay-core";

/// A short model of each of the two programs with models.
const OF_THE_PROGRAM: &str = "waits::one_waiter_and_one_waker";
const OF_THE_LIBRARY: &str = "wait::cell::models::delivery_below_the_goal_does_not_wake";

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
    table::MUTANTS.iter().chain(cell::MUTANTS).chain(durable::MUTANTS).chain(owner::MUTANTS)
}

/// Returns every ordering without a model.
fn unseen() -> impl Iterator<Item = &'static Unseen> {
    table::UNSEEN.iter().chain(cell::UNSEEN).chain(durable::UNSEEN).chain(owner::UNSEEN)
}

pub(crate) fn run() -> Outcome {
    for file in FILES {
        let text = read(&root().join(CRATE).join("src").join(file))?;
        check_text(file, &text)?;
    }
    let copy = Patched::make("mutants", &[CRATE])?;
    weaken(&copy)?;
    let tests = build(&copy)?;
    let (nr, mut alive) = (mutants().count(), Vec::new());
    for (index, mutant) in mutants().enumerate() {
        let Mutant { file, test, to, .. } = mutant;
        if !tests.contains(*test) {
            return Err(format!("there is no model `{test}`: fix the tables in xtask/src/mutants"));
        }
        let is_caught = !run_model(&copy, test).variable(SELECT, index.to_string()).succeeds();
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
            (None, _) => {
                return Err(format!("{file} has no `{from}`: fix the tables in xtask/src/mutants"));
            }
            _ => {
                return Err(format!(
                    "{file} has `{from}` twice: fix the tables in xtask/src/mutants"
                ));
            }
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

/// Writes all mutants into the copy.
fn weaken(copy: &Patched) -> Outcome {
    for file in FILES {
        let of_file: Vec<_> =
            mutants().enumerate().filter(|(_, mutant)| mutant.file == file).collect();
        copy.change(&format!("{CRATE}/src/{file}"), |text| schema::combine(text, &of_file))?;
    }
    copy.change(&format!("{CRATE}/src/lib.rs"), |text| Ok(format!("{text}{MODULE}")))
}

/// Builds the programs of all models, checks that a model passes without a mutant, and returns the
/// names of the models.
fn build(copy: &Patched) -> Result<BTreeSet<String>, String> {
    let mut tests = BTreeSet::new();
    for test in [OF_THE_PROGRAM, OF_THE_LIBRARY] {
        test_line(copy, test).argument("--no-run".to_owned()).run()?;
        if !run_model(copy, test).succeeds() {
            return Err(format!("the model `{test}` fails without a mutant"));
        }
        let list = ["--quiet", "--", "--list"].map(str::to_owned);
        let listed = list.into_iter().fold(test_line(copy, test), Line::argument).output()?;
        tests.extend(
            listed.lines().filter_map(|line| line.strip_suffix(": test")).map(String::from),
        );
    }
    Ok(tests)
}

/// Returns the command that runs a model.
fn run_model(copy: &Patched, test: &str) -> Line {
    let arguments = ["--quiet", "--", "--exact", test].map(str::to_owned);
    arguments.into_iter().fold(test_line(copy, test), Line::argument)
}

/// Returns the command that runs models of the program that has `test`.
fn test_line(copy: &Patched, test: &str) -> Line {
    let target = if test.contains("::models::") { "--lib" } else { "--test loom" };
    copy.cargo(&format!("test --profile models --package forebay-core {target}"), "mutants/models")
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
