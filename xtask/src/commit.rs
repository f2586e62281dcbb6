//! The commit of the checkout. If a CI run takes only a part of a set of tests, the hash of the
//! commit selects the part, so that several commits cover the set.

use crate::command::{Line, root};

/// Returns a number from the start of the commit's hash.
pub(crate) fn number() -> Result<u32, String> {
    let hash = Line::new("git", "-c")
        .argument(format!("safe.directory={}", root().display()))
        .argument("rev-parse".to_owned())
        .argument("HEAD".to_owned())
        .output()?;
    number_of(hash.trim())
}

fn number_of(hash: &str) -> Result<u32, String> {
    let number = hash.get(..8).and_then(|start| u32::from_str_radix(start, 16).ok());
    number.ok_or_else(|| format!("`{hash}` is not a commit's hash"))
}

#[cfg(test)]
mod tests {
    use super::number_of;

    #[test]
    fn the_start_of_a_hash_is_the_number() {
        assert_eq!(number_of("00000107aaaa"), Ok(0x107));
        assert!(number_of("HEAD").is_err());
        assert!(number_of("").is_err());
    }
}
