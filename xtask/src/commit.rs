//! The commit of the checkout. Its hash selects what a CI run tries of something larger, so that a
//! few commits cover more than one.

use crate::command::{Line, root};

/// Returns a number that the hash of the commit gives.
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
    fn the_begin_of_a_hash_is_a_number() {
        assert_eq!(number_of("00000107aaaa"), Ok(0x107));
        assert!(number_of("HEAD").is_err());
        assert!(number_of("").is_err());
    }
}
