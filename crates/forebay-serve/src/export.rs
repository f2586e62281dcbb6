//! A disk as clients see it.

use crate::config::ExportOptions;
use crate::error::ServeError;
use crate::pool::PIECE_MAX;
use forebay::Disk;
use forebay_nbd::export::{Abilities, BlockSizes, ExportInfo};

/// The largest payload of a read or a write, bytes: what clients may take for granted.
const PAYLOAD_MAX: u32 = 32 << 20;

/// A disk that is served.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) disk: Disk,
    /// What clients are told.
    pub(crate) info: ExportInfo,
    /// Whether zeroes that may be a hole are made by a discard.
    pub(crate) discards_to_zeroes: bool,
    /// Whether a read fills its memory. Where not, that is cleared: it has been somebody else's.
    pub(crate) keeps_data: bool,
}

impl Export {
    /// Opens the disk of an export.
    pub(crate) fn open(options: &ExportOptions) -> Result<Export, ServeError> {
        let failed = |source| ServeError::Open { spec: options.spec.clone(), source };
        let disk = Disk::open(&spec(options)).map_err(failed)?;
        let Some(size_bytes) = disk.capacity_bytes() else {
            return Err(ServeError::Grows { spec: options.spec.clone() });
        };
        let (limits, facts) = (disk.limits(), disk.info().facts);
        let read_only = options.read_only || limits.read_only;
        let has_zeroes = limits.max_write_zeroes_sectors > 0;
        let can = Abilities {
            read_only,
            flush: true,
            fua: true,
            trim: !read_only && limits.max_discard_sectors > 0,
            write_zeroes: !read_only && has_zeroes,
            fast_zero: !read_only && has_zeroes && facts.zeroes_fast,
            cache: true,
            // A flush of any connection covers what all of them have written: their workers' queues
            // are of one disk.
            multi_conn: true,
            rotational: limits.rotational,
        };
        let min = limits.logical_block_size;
        let block_size = BlockSizes {
            min,
            preferred: limits.io_min.max(4096).max(min).next_power_of_two(),
            max: PAYLOAD_MAX,
        };
        const { assert!(PIECE_MAX.is_power_of_two() && PIECE_MAX <= PAYLOAD_MAX as usize) };
        let (name, description) = (options.name.clone(), options.description.clone());
        let info = ExportInfo { name, description, size_bytes, can, block_size };
        info.check().map_err(|why| ServeError::NotOffered { spec: options.spec.clone(), why })?;
        let discards_to_zeroes = can.trim && facts.discards_to_zeroes;
        Ok(Export { disk, info, discards_to_zeroes, keeps_data: facts.keeps_data })
    }
}

/// The spec of an export's disk. One that is not to be written to is not opened for that, either.
fn spec(options: &ExportOptions) -> String {
    let spec = &options.spec;
    match options.read_only && !spec.contains("read_only=") {
        true if spec.contains('?') => format!("{spec}&read_only=on"),
        true => format!("{spec}?read_only=on"),
        false => spec.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_client_could_ask_for_is_refused() {
        let export = |len| ExportOptions {
            spec: "ram:1M".to_owned(),
            name: "n".repeat(len),
            description: String::new(),
            read_only: false,
        };
        assert!(Export::open(&export(4096)).is_ok());
        let refused = Export::open(&export(4097));
        assert!(matches!(refused, Err(ServeError::NotOffered { .. })), "{refused:?}");
    }
}
