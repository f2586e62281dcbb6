//! A disk as clients see it.

use crate::config::ExportOptions;
use crate::error::ServeError;
use crate::pool::PIECE_MAX;
use forebay::{Disk, OpenError};
use forebay_nbd::export::{Abilities, BlockSizes, ExportInfo};

/// The largest payload of a read or a write, bytes, as in nbdkit. The protocol lets clients assume
/// 32 MiB; kernels have sent requests of 49.9 MB. Memory does not depend on it: larger payloads
/// than [`PIECE_MAX`] travel in pieces.
const PAYLOAD_MAX: u32 = 64 << 20;

/// A disk that is served.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) disk: Disk,
    /// What clients are told.
    pub(crate) info: ExportInfo,
    /// Whether zeroes that may be a hole are made by a discard.
    pub(crate) discards_to_zeroes: bool,
    /// The durable point that it was opened with: nothing is written by us until there is another.
    opened_point: u64,
    /// Whether a read fills its memory. Where not, that is cleared: it has been somebody else's.
    pub(crate) keeps_data: bool,
    /// Whether a read fills a cache that later reads find.
    pub(crate) caches_reads: bool,
}

impl Export {
    /// Opens the disk of an export.
    pub(crate) fn open(options: &ExportOptions) -> Result<Export, ServeError> {
        let (disk, size_bytes) = open_disk(options)?;
        let (limits, facts) = (disk.limits(), disk.info().facts);
        // Whoever copies it would have a copy without its end, and not know.
        if facts.out_of_reach_bytes > 0 {
            return Err(ServeError::OutOfReach {
                spec: options.spec.clone(),
                out_of_reach: facts.out_of_reach_bytes,
                block: limits.logical_block_size,
            });
        }
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
        let opened_point = disk.durable_point();
        let (keeps_data, caches_reads) = (facts.keeps_data, facts.caches_reads);
        Ok(Export { disk, info, discards_to_zeroes, opened_point, keeps_data, caches_reads })
    }

    /// Returns whether a client's write may not be on stable storage: one has ended and no flush
    /// has succeeded since, or a failed flush has lost some. A flush that fails before any write
    /// loses at most what others wrote before the disk was opened.
    pub(crate) fn has_unflushed_writes(&self) -> bool {
        let point = self.disk.durable_point();
        let is_unflushed = point != self.opened_point && !self.disk.is_durable(point);
        let lost = self.disk.lost_writes();
        is_unflushed || lost.is_some_and(|lost| lost.up_to > self.opened_point)
    }
}

/// Opens the disk of an export, and returns it with its size in bytes.
fn open_disk(options: &ExportOptions) -> Result<(Disk, u64), ServeError> {
    let failed = |source| ServeError::Open { spec: options.spec.clone(), source };
    let spec = spec(options);
    let disk = match Disk::open(&spec) {
        // The library has no disk of size 0, since few programs mean one. Servers of NBD have.
        // A disk that may grow has no size of its own, and no client gets beyond that of the
        // export.
        Err(OpenError::TooSmall { len: 0, .. }) => {
            let disk = Disk::open(&with_key(&spec, "capacity=growing")).map_err(failed)?;
            return Ok((disk, 0));
        }
        opened => opened.map_err(failed)?,
    };
    let Some(size_bytes) = disk.capacity_bytes() else {
        return Err(ServeError::Grows { spec: options.spec.clone() });
    };
    Ok((disk, size_bytes))
}

/// Returns a spec with one more key.
fn with_key(spec: &str, key: &str) -> String {
    format!("{spec}{}{key}", if spec.contains('?') { '&' } else { '?' })
}

/// The spec of an export's disk. One that is not to be written to is not opened for that, either.
fn spec(options: &ExportOptions) -> String {
    let spec = &options.spec;
    match options.read_only && !spec.contains("read_only=") {
        true => with_key(spec, "read_only=on"),
        false => spec.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_lacks_the_end_of_its_file_is_refused() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        let path = folder.path().join("disk.img");
        std::fs::write(&path, vec![7; 10_000]).expect("a file");
        let export = |keys| ExportOptions {
            spec: format!("{}?{keys}", path.display()),
            name: String::new(),
            description: String::new(),
            read_only: true,
        };
        assert!(Export::open(&export("direct=off")).is_ok());
        let refused = Export::open(&export("direct=on")).expect_err("it is refused").to_string();
        assert!(refused.contains("its last 272 bytes are no whole block of 512"), "{refused}");
    }

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
