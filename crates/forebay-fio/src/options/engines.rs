//! Names of engines: those of fio that exist here, those that do not, and drivers.

use crate::errors::Short;
use crate::job::Engine;

/// The engines of fio that do not exist here.
#[rustfmt::skip]
const FOREIGN_ENGINES: &[&str] = &[
    "cpp_null", "cpuio", "dev-dax", "dfs", "e4defrag", "exec", "external", "falloc", "filecreate",
    "filedelete", "filestat", "ftruncate", "gfapi", "gfapi_async", "guasi", "http", "ime_aio",
    "ime_psync", "ime_psyncv", "io_uring_cmd", "libblkio", "libcufile", "libhdfs", "libiscsi",
    "libpmem", "librpma_apm_client", "librpma_apm_server", "librpma_gpspm_client",
    "librpma_gpspm_server", "libzbc", "mtd", "net", "netsplice", "nfs", "pmemblk", "rados", "rdma",
    "sg", "solarisaio", "splice", "syslet-rw", "windowsaio", "xnvme",
];

/// Returns whether fio has an engine of this name that does not exist here.
pub(crate) fn is_foreign_engine(word: &str) -> bool {
    FOREIGN_ENGINES.contains(&word) || word.starts_with("external:")
}

/// The driver of files. It chooses how it does I/O, as it does without `ioengine`.
const DRIVER_OF_FILES: &str = "file";

/// Drivers that are no engine of fio.
const OTHER_DRIVERS: [&str; 4] = ["ram", "model", "fault", "vhost-user"];

/// Parses the name of an engine. `None`: the default one, that of the disk.
pub(super) fn engine(word: &str) -> Result<Option<Engine>, String> {
    if word == DRIVER_OF_FILES {
        return Ok(None);
    }
    if is_foreign_engine(word) {
        return Err("forebay has no such engine".to_owned());
    }
    if OTHER_DRIVERS.contains(&word) {
        return Err(format!(
            "{word} is a driver: name the disk by --filename={word}:..., without \
             --ioengine"
        ));
    }
    let words: Vec<_> = Engine::all().map(Engine::word).collect();
    super::one_of(word, &words)?;
    let engine = Engine::from_word(word);
    engine.map(Some).ok_or_else(|| format!("unknown value '{}'", Short(word)))
}
