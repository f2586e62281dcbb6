//! The known name that a mistyped one is most similar to.

/// The shortest beginning of a name that counts as an abbreviation.
const PREFIX_MIN: usize = 3;

/// Returns the candidate that `name` abbreviates: the shortest that begins with it, if `name` has
/// three letters or more. If there is none, the candidate with the smallest edit distance, if that
/// is small enough for a typing error: a third of the name's length, and at least one. The first of
/// equally near candidates wins.
pub fn nearest(name: &str, candidates: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let candidates: Vec<_> = candidates.collect();
    let is_prefix = |candidate: &&&str| name.len() >= PREFIX_MIN && candidate.starts_with(name);
    if let Some(candidate) = candidates.iter().filter(is_prefix).min_by_key(|c| c.len()) {
        return Some(candidate);
    }
    let tolerance = (name.len() / 3).max(1);
    candidates
        .into_iter()
        // No distance is less than the difference of lengths, and names may be very long.
        .filter(|candidate| candidate.len().abs_diff(name.len()) <= tolerance)
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|&(distance, _)| distance <= tolerance)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// Returns how many bytes must be inserted, removed, replaced, or swapped with their neighbour:
/// the "optimal string alignment" distance.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    // Three rows of the usual table: two before, before, and this one.
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("iodepth", "iodepth", 0),
            ("iodpth", "iodepth", 1),
            ("iodetph", "iodepth", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn only_typing_errors_have_a_nearest_name() {
        let names = || ["rw", "bs", "runtime", "direct"].into_iter();
        assert_eq!(nearest("runtme", names()), Some("runtime"));
        assert_eq!(nearest("driect", names()), Some("direct"));
        assert_eq!(nearest("bx", names()), Some("bs"));
        assert_eq!(nearest("elephant", names()), None);
    }

    #[test]
    fn a_prefix_wins_over_a_smaller_distance() {
        let names = || ["seed", "seek_ns", "seek_ns_max"].into_iter();
        assert_eq!(nearest("seek", names()), Some("seek_ns"));
        assert_eq!(nearest("see", names()), Some("seed"), "the shortest");
        assert_eq!(nearest("se", names()), None, "too short for an abbreviation");
    }
}
