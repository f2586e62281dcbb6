//! Every option of `bench` changes a side of a comparison or its report, or is refused, or noted.

use std::ffi::OsString;

use forebay_fio::cmdline::{self, Parsed};
use forebay_fio::options::OPTIONS;

use super::*;
use crate::bench::plan::plan;
use crate::option_examples::EXAMPLES;

/// Options with no effect on the arguments of the sides: they affect parsing, replace the run by
/// other output, or are always the same on both sides.
const ELSEWHERE: [&str; 9] = [
    "eta",
    "group_reporting",
    "help",
    "output",
    "parse-only",
    "readonly",
    "section",
    "showcmd",
    "warnings-fatal",
];

/// Returns the arguments of both sides with notes, or the error.
fn outcome(args: &str) -> Result<[Vec<String>; 3], String> {
    let taken = take(args.split_whitespace().map(OsString::from));
    let Ok(Parsed::Run(command)) = cmdline::parse(taken.rest) else { panic!("{args}") };
    let targets = plan(&command.jobs).expect(args);
    let asked = taken.asked.expect("a comparison");
    let planned = planned(&command, &targets, &asked).map_err(|error| error.text())?;
    let mut notes = planned.notes;
    notes.extend(crate::bench::notes::notes(&command.jobs, &targets));
    notes.extend(command.jobs.iter().flat_map(|job| job.warnings.clone()));
    notes.extend(command.warnings);
    notes.push(format!("as JSON: {}", command.run.format == OutputFormat::JSON));
    let [a, b] = planned.sides.map(|side| side.arguments(None));
    Ok([a, b, notes])
}

#[test]
fn every_option_changes_both_sides_or_is_refused_or_noted() {
    for option in OPTIONS.iter().filter(|option| !ELSEWHERE.contains(&option.name)) {
        let (_, needs, value) =
            EXAMPLES.iter().find(|(name, ..)| *name == option.name).expect(option.name);
        let needs: String = needs.split_whitespace().map(|need| format!(" --{need}")).collect();
        // Side B's key must differ from the option.
        let key = if option.name == "exclusive" { "elide" } else { "exclusive" };
        let without = format!("--compare=?{key}=off --name=a --filename=x{needs}");
        let with = format!("{without} --{}={value}", option.name);
        let Ok([a, b, notes]) = outcome(&with) else { continue };
        let [bare_a, bare_b, bare_notes] = outcome(&without).expect(&without);
        let is_changed = a != bare_a && b != bare_b;
        assert!(is_changed || notes != bare_notes, "{with}: {a:?} {b:?} {notes:?}");
    }
}
