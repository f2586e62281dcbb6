//! Expansion of `${VARIABLE}`, `$pagesize`, `$mb_memory` and `$ncpus` in a line.

use std::borrow::Cow;

use super::LINE_BYTES_MAX;
use crate::errors::Problem;
use crate::host::Host;
use crate::units::parse_bytes;

/// Returns a line with its environment variables expanded; a variable that is not set is empty. As
/// in fio, the result is not expanded again, and `${` without `}` is kept.
pub(super) fn variables<'a>(line: &'a str, host: &dyn Host) -> Result<Cow<'a, str>, Problem> {
    if !line.contains("${") {
        return Ok(Cow::Borrowed(line));
    }
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, tail)) = after.split_once('}') else { break };
        text.push_str(before);
        text.push_str(&host.variable(name).unwrap_or_default());
        rest = tail;
        if text.len() > LINE_BYTES_MAX {
            return Err(long_line());
        }
    }
    text.push_str(rest);
    if text.len() > LINE_BYTES_MAX { Err(long_line()) } else { Ok(Cow::Owned(text)) }
}

/// Returns the first variable of a line that is not set.
pub(super) fn first_unset<'a>(line: &'a str, host: &dyn Host) -> Option<&'a str> {
    let mut names = line.split("${").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
    names.find(|name| host.variable(name).is_none())
}

/// Returns a value with the keywords of the machine expanded. If the result is arithmetic, such as
/// `8*4096`, it is evaluated, as fio does with `bc`.
pub(super) fn keywords(value: &str, host: &dyn Host) -> Result<String, Problem> {
    let mut text = value.to_owned();
    let facts = [
        ("$pagesize", host.page_size_bytes()),
        ("$mb_memory", host.memory_mib()),
        ("$ncpus", host.nr_cpus()),
    ];
    for (keyword, number) in facts {
        if text.contains(keyword) {
            text = text.replace(keyword, &number.to_string());
        }
        // A keyword has six characters at least and a number twenty at most, so this is in time.
        if text.len() > LINE_BYTES_MAX {
            return Err(long_line());
        }
    }
    if text == value || !text.contains(['+', '-', '*', '/', '%', '^']) {
        return Ok(text);
    }
    // A path may have such characters too, and is none.
    Ok(parse_bytes(&format!("({text})")).map_or(text, |number| number.to_string()))
}

fn long_line() -> Problem {
    Problem::LongLine { max_bytes: LINE_BYTES_MAX }
}
