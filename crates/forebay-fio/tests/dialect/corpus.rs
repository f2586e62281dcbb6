//! Job files of all shapes: what fio's parser accepts or refuses, ours does too, but for a list of
//! differences that are on purpose.

use std::collections::BTreeSet;
use std::path::Path;

use forebay_fio::cmdline::{CommandError, CommandErrors, Parsed, parse_with};

use crate::common::{Memory, corpus, fio};

/// What fio does with a file where ours does the opposite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fio {
    Accepts,
    Refuses,
}

use Fio::{Accepts, Refuses};

/// Differences, with their reasons.
const DIFFERENCES: &[(&str, Fio, &str)] = &[
    ("unclosed", Accepts, "it becomes a job without a name"),
    ("comment-in-name", Accepts, "it becomes a job without a name"),
    ("behind-section", Accepts, "it becomes a part of the name"),
    ("suffix", Accepts, "a unit that is none is a typing error, and 4 bytes are not meant"),
    ("arithmetic-bare", Accepts, "a part of the value would be dropped without a word"),
    ("fraction", Accepts, "a part of the value would be dropped without a word"),
    ("negative", Accepts, "no size is negative; fio takes it for a huge one"),
    ("arithmetic", Refuses, "documented, and only left out of some builds of fio"),
    ("blank", Refuses, "blanks around = are harmless, and fio takes them for some options"),
    ("words", Refuses, "the words are clear"),
    ("dash", Refuses, "the option is clear"),
    ("bom", Refuses, "nobody sees the mark that an editor has put there"),
    ("time-based", Accepts, "fio ignores the option; here it is an error"),
    ("engine", Accepts, "fio finds out when it starts the job"),
    ("unsupported", Accepts, "not supported yet"),
    ("include-section", Accepts, "fio prints an error and leaves the rest of the file out"),
    ("include-missing", Accepts, "fio prints an error and leaves the rest of the file out"),
    ("include-self", Accepts, "fio goes on until it has no descriptors left"),
    ("no-jobs", Accepts, "fio finds out when it starts"),
];

fn ours(name: &str) -> Result<Parsed, CommandErrors> {
    parse_with(["--parse-only", name].map(Into::into), &mut Memory { files: corpus() })
}

fn job_files() -> BTreeSet<String> {
    corpus()
        .into_keys()
        .filter(|name| Path::new(name).extension().is_some_and(|e| e == "fio"))
        .collect()
}

#[test]
fn corpus_is_accepted_or_refused_as_by_fio() {
    let test = "corpus_is_accepted_or_refused_as_by_fio";
    for name in job_files() {
        let Some(output) = fio(test, &["--parse-only", &name]) else { return };
        let theirs = if output.status.success() { Accepts } else { Refuses };
        let mine = ours(&name);
        let is_same = (theirs == Accepts) == mine.is_ok();
        let plain = name.strip_prefix("differs-").and_then(|name| name.strip_suffix(".fio"));
        match DIFFERENCES.iter().find(|(difference, ..)| Some(*difference) == plain) {
            None => assert!(is_same, "{name}: fio {theirs:?}, ours: {mine:?}"),
            Some((_, expected, _)) => assert!(!is_same && theirs == *expected, "{name}: {mine:?}"),
        }
    }
}

#[test]
fn the_corpus_is_as_its_names_say() {
    let names = job_files();
    assert!(names.len() >= 30, "{names:?}");
    for (difference, ..) in DIFFERENCES {
        assert!(names.contains(&format!("differs-{difference}.fio")), "{difference}");
    }
    for name in names {
        let accepts = match name.strip_prefix("differs-") {
            None => !name.starts_with("wrong-"),
            Some(rest) => DIFFERENCES.iter().any(|(difference, theirs, _)| {
                rest == format!("{difference}.fio") && *theirs == Refuses
            }),
        };
        let mine = ours(&name);
        assert_eq!(mine.is_ok(), accepts, "{name}: {mine:?}");
        for error in mine.as_ref().err().into_iter().flat_map(CommandErrors::list) {
            if let CommandError::JobFile(error) = error {
                let place = error.place.as_ref().expect("a place");
                assert!(place.text.get(place.range.clone()).is_some(), "{name}: {place:?}");
            }
        }
    }
}

#[test]
fn shapes_that_no_editor_keeps_are_read_as_fio_reads_them() {
    let test = "shapes_that_no_editor_keeps_are_read_as_fio_reads_them";
    let folder = tempfile::tempdir().expect("a folder");
    let shapes = [
        "[job]\r\nioengine=null\r\nsize=1m\r\n",
        "[job]\nioengine=null\nsize=1m",
        "  [ job ]  \n\tioengine=null\n  size=1m  \n\n   \nbs=4k\t\n",
        "",
        "\n\n\n",
        "[job]\nioengine=null\nsize=1m\n\x0c\x0b\n",
    ];
    for shape in shapes {
        let path = folder.path().join("shape.fio");
        std::fs::write(&path, shape).expect("a file");
        let Some(output) = fio(test, &["--parse-only", path.to_str().expect("UTF-8")]) else {
            return;
        };
        let files = [("shape.fio".to_owned(), shape.as_bytes().to_vec())].into();
        let args = ["--parse-only", "shape.fio"].map(Into::into);
        let mine = parse_with(args, &mut Memory { files });
        assert_eq!(mine.is_ok(), output.status.success(), "{shape:?}: {mine:?}");
    }
}
