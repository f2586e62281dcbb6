//! Exports: disks with their description for clients.

use crate::config::ExportOptions;
use crate::error::ServeError;
use crate::tenant::Tenant;
use forebay::{Disk, OpenError, Spec, SpecError};
use forebay_front::nbd::ExportFacts;
use forebay_front::stream::PIECE_MAX;
use forebay_nbd::export::{Abilities, ExportInfo};
use forebay_nbd::wire::BlockSizes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Largest payload of a read or a write, bytes, as in nbdkit. The protocol allows clients to assume
/// 32 MiB; kernels have sent requests of 49.9 MB. It does not affect memory: payloads larger than
/// [`PIECE_MAX`] are split.
const PAYLOAD_MAX: u32 = 64 << 20;

/// An export with its open disk.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) disk: Disk,
    /// Spec of the disk, as its user wrote it.
    pub(crate) spec: String,
    pub(crate) name: String,
    pub(crate) can: Abilities,
    /// Size of its blocks, bytes.
    pub(crate) block_bytes: u32,
    /// Facts for the sessions of clients.
    pub(crate) facts: ExportFacts,
    /// Its limits, its priority and its clients.
    pub(crate) tenant: Arc<Tenant>,
    /// `nr_requests`, if it was set while the server runs.
    pub(crate) nr_requests: NrRequests,
    /// Durable point of the disk when it was opened. As long as the disk has this one, no client
    /// has written.
    opened_point: u64,
}

/// The number of tags that was set for each hardware context, if one was. Relaxed: it is only
/// shown.
#[derive(Debug, Default)]
pub(crate) struct NrRequests(AtomicU32);

impl NrRequests {
    pub(crate) fn set(&self, nr: u32) {
        self.0.store(nr, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<u32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|nr| *nr > 0)
    }
}

impl Export {
    /// Opens the disk of an export. Returns its description for clients too, with the present size,
    /// which belongs to [`Sizes`](crate::sizes::Sizes) from then on.
    ///
    /// `nr_hw_queues`: number of hardware contexts, unless the spec chooses it.
    pub(crate) fn open(
        options: &ExportOptions,
        nr_hw_queues: Option<u32>,
    ) -> Result<(Export, ExportInfo), ServeError> {
        Export::of(options, open_disk(options, nr_hw_queues)?)
    }

    /// Returns the export of a disk of this size in bytes, with its description for clients.
    ///
    /// # Errors
    /// Returns an error if the disk cannot be exported.
    pub(crate) fn of(
        options: &ExportOptions,
        (disk, size_bytes): (Disk, u64),
    ) -> Result<(Export, ExportInfo), ServeError> {
        let (limits, facts) = (disk.limits(), disk.info().facts);
        // A client that copies such an export would miss the end of the file.
        if facts.out_of_reach_bytes > 0 {
            return Err(ServeError::OutOfReach {
                spec: options.written(),
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
            // A flush on any connection covers the writes of all: the queues of all workers belong
            // to one disk.
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
        info.check().map_err(|why| ServeError::NotOffered { spec: options.written(), why })?;
        let facts = ExportFacts {
            discards_to_zeroes: can.trim && facts.discards_to_zeroes,
            keeps_data: facts.keeps_data,
            caches_reads: facts.caches_reads,
        };
        let opened_point = disk.durable_point();
        let (name, spec) = (info.name.clone(), options.written());
        let tenant = Arc::new(Tenant::new(&disk, &name, options.priority));
        tenant
            .set_limits(&options.limits)
            .map_err(|source| ServeError::Limits { spec: options.written(), source })?;
        let block_bytes = min;
        let export = Export {
            disk,
            spec,
            name,
            can,
            block_bytes,
            facts,
            tenant,
            nr_requests: NrRequests::default(),
            opened_point,
        };
        Ok((export, info))
    }

    /// Returns whether a client's write may not be on stable storage: a write has ended and no
    /// flush has succeeded since, or a failed flush has lost data. A flush that fails before any
    /// write loses at most writes of other programs from before the disk was opened.
    pub(crate) fn has_unflushed_writes(&self) -> bool {
        let point = self.disk.durable_point();
        let is_unflushed = point != self.opened_point && !self.disk.is_durable(point);
        let lost = self.disk.lost_writes();
        is_unflushed || lost.is_some_and(|lost| lost.up_to > self.opened_point)
    }
}

/// Opens the disk of an export, unless it is open, and returns it with its size in bytes.
fn open_disk(
    options: &ExportOptions,
    nr_hw_queues: Option<u32>,
) -> Result<(Disk, u64), ServeError> {
    let grows = || ServeError::Grows { spec: options.written() };
    if let Some(disk) = &options.disk {
        return Ok((disk.clone(), disk.capacity_bytes().ok_or_else(grows)?));
    }
    let failed = |source| ServeError::Open { spec: options.written(), source };
    let mut spec = spec(options)?;
    let opened = match nr_hw_queues.filter(|_| !chooses_hw_queues(&spec)) {
        None => Disk::open_spec(&spec),
        Some(nr) => {
            let plain = spec.clone();
            spec.set(HW_QUEUES, &nr.to_string());
            match Disk::open_spec(&spec) {
                // The disk has not so many. Then threads share a hardware context.
                Err(OpenError::Spec(SpecError::BadValue { key, .. })) if key == HW_QUEUES => {
                    spec = plain;
                    Disk::open_spec(&spec)
                }
                opened => opened,
            }
        }
    };
    let disk = match opened {
        // The library refuses a disk of size 0, which is usually a mistake. NBD servers export it.
        // A disk with capacity=growing has no fixed size, and clients never access it beyond the
        // size of the export.
        Err(OpenError::TooSmall { len: 0, .. }) => {
            spec.set("capacity", "growing");
            let disk = Disk::open_spec(&spec).map_err(failed)?;
            return Ok((disk, 0));
        }
        opened => opened.map_err(failed)?,
    };
    let size_bytes = disk.capacity_bytes().ok_or_else(grows)?;
    Ok((disk, size_bytes))
}

/// Returns how many hardware contexts the disk of an export has, unless its spec chooses it.
/// `None`: the default.
pub(crate) fn nr_hw_queues(
    export: &ExportOptions,
    nr_rings: usize,
    nr_workers: usize,
) -> Option<u32> {
    match export.limits.client.weight {
        // Weights order the I/O of one context.
        Some(_) => Some(1),
        // One for each thread, and the shared one.
        None => (nr_rings > 0).then_some((nr_rings + nr_workers + 1) as u32),
    }
}

/// Key of a spec: the number of hardware contexts.
pub(crate) const HW_QUEUES: &str = "nr_hw_queues";

/// Returns whether a spec decides how many hardware contexts there are.
pub(crate) fn chooses_hw_queues(spec: &Spec) -> bool {
    [HW_QUEUES, "service", "run_queue", "tag_set"].iter().any(|key| spec.get(key).is_some())
}

/// Returns the spec of the disk. A disk that is served read-only is opened read-only.
pub(crate) fn spec(options: &ExportOptions) -> Result<Spec, ServeError> {
    let parsed = Spec::parse(&options.spec).map_err(OpenError::Spec);
    let failed = |source| ServeError::Open { spec: options.written(), source };
    let mut spec = parsed.map_err(failed)?;
    if options.read_only {
        match spec.switch("read_only") {
            Some(false) => return Err(ServeError::Writable { spec: options.written() }),
            // A value that is no switch is refused when the disk is opened.
            None if spec.get("read_only").is_some() => {}
            _ => spec.set("read_only", "on"),
        }
    }
    Ok(spec)
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
            read_only: true,
            ..ExportOptions::default()
        };
        assert!(Export::open(&export("direct=off"), None).is_ok());
        let refused =
            Export::open(&export("direct=on"), None).expect_err("it is refused").to_string();
        assert!(
            refused.contains("the last 272 bytes are not a whole block of 512 bytes"),
            "{refused}"
        );
    }

    fn opened_read_only(spec: &str) -> Result<Export, ServeError> {
        let spec = spec.to_owned();
        let options = ExportOptions { spec, read_only: true, ..ExportOptions::default() };
        Ok(Export::open(&options, None)?.0)
    }

    #[test]
    fn read_only_export_opens_its_disk_read_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("read_only=folder");
        std::fs::create_dir(&folder).expect("a folder");
        let path = folder.join("disk.img");
        std::fs::write(&path, vec![7; 1 << 20]).expect("a file");
        for keys in ["", "?", "?direct=off", "?read_only=on", "?read_only=yes&direct=off"] {
            let export = opened_read_only(&format!("{}{keys}", path.display())).expect(keys);
            assert!(export.disk.limits().read_only, "{keys}");
        }
    }

    #[test]
    fn read_only_export_of_a_writable_disk_is_refused() {
        for keys in ["read_only=off", "read_only=0", "read_only=on&read_only=no"] {
            let refused = opened_read_only(&format!("ram:1M?{keys}")).expect_err(keys).to_string();
            assert!(refused.starts_with(&format!("ram:1M?{keys}: ")), "{refused}");
            assert!(refused.contains("read-only"), "{refused}");
        }
    }

    #[test]
    fn a_name_that_no_client_could_ask_for_is_refused() {
        let export = |len| ExportOptions {
            spec: "ram:1M".to_owned(),
            name: "n".repeat(len),
            ..ExportOptions::default()
        };
        assert!(Export::open(&export(4096), None).is_ok());
        let refused = Export::open(&export(4097), None);
        assert!(matches!(refused, Err(ServeError::NotOffered { .. })), "{refused:?}");
    }
}
