//! The files that the servers export.
//!
//! The page cache holds a file in pages of 4k or in *large folios*, depending on how the file was
//! written or read. For each small write, ext4 walks all blocks of a folio, so a server that writes
//! in small pieces pays for it. Most files that are copied or read from a disk are in large folios.
//! Both kinds are measured, each on its own file. Direct I/O uses a third file, because it drops
//! cached pages that other servers would have to read again.

use crate::measure::say;
use crate::servers::Medium;
use anyhow::{Context, Result};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Returns the path of the file to export as `medium`.
pub(crate) fn file_of(file: &Path, medium: Medium) -> PathBuf {
    match medium {
        Medium::Direct => file.with_extension("direct"),
        Medium::Folios => file.with_extension("folios"),
        Medium::Cached | Medium::Null | Medium::Model => file.to_owned(),
    }
}

/// Creates the files that these media need.
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

/// Creates a file without zero blocks, written `piece` bytes at a time.
fn make(path: &Path, size_mib: u64, piece: usize) -> Result<()> {
    // An existing file would keep its pages in the cache.
    let _ = std::fs::remove_file(path);
    let mut file = std::fs::File::create(path)?;
    let mut state = 1_u64;
    let mut block = vec![0_u8; piece];
    for _ in 0..(size_mib << 20) / piece as u64 {
        for word in block.chunks_exact_mut(8) {
            // Any non-zero sequence is fine. Source: G. Marsaglia, "Xorshift RNGs", 2003.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&block)?;
    }
    Ok(file.sync_all()?)
}
