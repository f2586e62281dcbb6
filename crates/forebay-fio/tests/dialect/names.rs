//! Every name that the installed fio lists is in the table.

use std::collections::BTreeSet;

use forebay_fio::errors::UsageError;
use forebay_fio::options;

use crate::common::fio;

/// Returns the names that a help page of fio lists: the first words of its lines.
fn listed(page: &str) -> impl Iterator<Item = &str> {
    let names = page.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    names.filter(|name| !name.is_empty() && !name.contains(char::is_whitespace))
}

/// Returns the text after this word in the help page of one option.
fn field<'a>(page: &'a str, word: &str) -> Option<&'a str> {
    let fields = page.lines().filter_map(|line| line.trim_start().strip_prefix(word));
    fields.filter_map(|rest| rest.strip_prefix(':')).map(str::trim).next()
}

#[test]
fn every_name_that_fio_lists_is_in_the_table() {
    let test = "every_name_that_fio_lists_is_in_the_table";
    let page = |args: &[&str]| {
        let output = fio(test, args)?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(usage) = page(&["--help"]) else { return };
    let mut names = BTreeSet::new();
    for line in usage.lines().filter_map(|line| line.trim_start().strip_prefix("--")) {
        let end = line.find(|c: char| !(c.is_alphanumeric() || "-_".contains(c)));
        names.insert(line[..end.unwrap_or(line.len())].to_owned());
    }
    assert!(names.len() > 30, "the usage has become another one: {names:?}");

    let mut flags = Vec::new();
    let mut add = |name: &str, page: &str| {
        names.insert(name.to_owned());
        names.extend(field(page, "alias").map(str::to_owned));
        flags.push((name.to_owned(), field(page, "type").unwrap_or("").starts_with("empty or")));
    };
    let all = page(&["--cmdhelp=all"]).expect("it is there");
    assert!(listed(&all).count() > 200, "the list has become another one: {all}");
    for name in listed(&all) {
        add(name, &page(&[&format!("--cmdhelp={name}")]).expect("it is there"));
    }
    let engines = page(&["--enghelp"]).expect("it is there");
    for engine in engines.lines().filter_map(|line| line.strip_prefix('\t')) {
        for name in listed(&page(&[&format!("--enghelp={engine}")]).expect("it is there")) {
            add(name, &page(&[&format!("--enghelp={engine},{name}")]).expect("it is there"));
        }
    }
    let is_unknown =
        |name: &&String| matches!(options::lookup(name), Err(UsageError::UnknownOption { .. }));
    let missing: Vec<_> = names.iter().filter(is_unknown).collect();
    assert!(missing.is_empty(), "these are not in the table: {missing:?}");
    let is_other = |(name, is_flag): &&(String, bool)| {
        options::lookup(name).is_ok_and(|found| found.is_flag() != *is_flag)
    };
    let others: Vec<_> = flags.iter().filter(is_other).collect();
    assert!(others.is_empty(), "whether the value of these is optional differs: {others:?}");
}
