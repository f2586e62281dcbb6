//! The files that are served.
//!
//! A file in the page cache is there in pages of 4k, or in *large folios*, after how it was written
//! or read: ext4 goes through all blocks of a folio for each small write, so a server that writes
//! in small pieces pays for it. Most files that are copied or read from a disk are in large folios.
//! Both are measured, each on a file of its own. Direct I/O has a third, since it drops pages of
//! the cache that others would then have to read again.

use super::servers::Medium;
use crate::measure::say;
use anyhow::{Context, Result};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file that is served as `medium`.
pub(crate) fn file_of(file: &Path, medium: Medium) -> PathBuf {
    match medium {
        Medium::Direct => file.with_extension("direct"),
        Medium::Folios => file.with_extension("folios"),
        Medium::Cached | Medium::Null => file.to_owned(),
    }
}

/// Makes the files that these media need.
pub(crate) fn lay_out(file: &Path, size_mib: u64, media: &[Medium]) -> Result<PathBuf> {
    let file = std::path::absolute(file)?;
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    for medium in [Medium::Direct, Medium::Folios, Medium::Cached] {
        let path = file_of(&file, medium);
        if medium == Medium::Cached || media.contains(&medium) {
            say(&format!("laying out {} ({size_mib} MiB)", path.display()));
            let piece = if medium == Medium::Folios { 1 << 20 } else { 4096 };
            make(&path, size_mib, piece).with_context(|| path.display().to_string())?;
        }
    }
    Ok(file)
}

/// Makes a file of bytes that nobody takes for zeroes, `piece` bytes at a time.
fn make(path: &Path, size_mib: u64, piece: usize) -> Result<()> {
    // One that is there would keep its pages.
    let _ = std::fs::remove_file(path);
    let mut file = std::fs::File::create(path)?;
    let mut state = 1_u64;
    let mut block = vec![0_u8; piece];
    for _ in 0..(size_mib << 20) / piece as u64 {
        for word in block.chunks_exact_mut(8) {
            // Any sequence would do. Source: G. Marsaglia, "Xorshift RNGs", 2003.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&block)?;
    }
    Ok(file.sync_all()?)
}
