//! Which known name a mistyped one is most like.

/// The candidate with the smallest edit distance from `name`, if that is small enough for a typing
/// error: a third of the name's length, and one at least. Of equals, the first.
pub fn nearest(name: &str, candidates: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let tolerance = (name.len() / 3).max(1);
    candidates
        // No distance is less than the difference of lengths, and names may be very long.
        .filter(|candidate| candidate.len().abs_diff(name.len()) <= tolerance)
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|&(distance, _)| distance <= tolerance)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// How many bytes must be inserted, removed, replaced, or swapped with their neighbour: the
/// "optimal string alignment" distance.
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
}
