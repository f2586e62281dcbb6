//! Opening the device of an NBD URI.
//!
//! A spec is the URI with the layer's keys among its own. The two sets do not overlap: a URI's keys
//! are `socket` and those that begin with `tls-`, and no key of the layer has such a name.

use super::connect;
use super::driver::NbdDriver;
use super::link::MAX_SEGMENTS;
use super::stream::Credentials;
use crate::claim::Claim;
use crate::driver::contract::DriverDevice;
use crate::driver::refusal::Refusal;
use crate::driver::{Facts, Opened};
use crate::error::{OpenError, SpecError};
use crate::info::{DiskFacts, Feature};
use crate::keys::Keys;
use crate::scheduler_below::SchedulerBelow;
use crate::settings::{Defaults, Settings};
use crate::spec::Spec;
use forebay_core::QueueLimits;
use forebay_nbd::client::Negotiated;
use forebay_nbd::uri::{Address, Uri};
use forebay_nbd::wire::BlockSizes;
use std::sync::Arc;

/// The maximum payload of a server that reports none, bytes.
const PAYLOAD_MAX: u32 = 32 << 20;

/// The maximum length of a discard or write-zeroes, sectors. The protocol allows 4 GiB less one
/// byte. A server takes long for such a range, which delays the requests behind it.
const RANGE_MAX_SECTORS: u32 = 1 << 21;

/// The reason for one hardware context if the server allows one connection.
const ONE_HW_QUEUE: &str =
    "1, where the server does not say that a flush on one connection covers all (MULTI_CONN)";

pub(in crate::driver) fn open(
    spec: &Spec,
    keys: &mut Keys,
    settings: &Settings,
) -> Result<Opened, OpenError> {
    let given = keys.take_where(&Uri::KEYS, Uri::is_key);
    let pairs = given.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let uri = Uri::from_parts(spec.target(), pairs)
        .map_err(|why| SpecError::Uri { target: spec.target().to_owned(), why })?;
    if settings.exclusive() {
        return Err(OpenError::Spec(SpecError::BadValue {
            key: String::from("exclusive"),
            value: String::from("on"),
            expected: "off: the server decides which other clients use an export".into(),
        }));
    }
    let refused = |refusal: Refusal| {
        let (why, source) = refusal.into_parts();
        OpenError::Nbd { uri: uri.to_string(), why, source }
    };
    let credentials = uri.tls.then(|| Credentials::of(&uri)).transpose();
    let credentials = credentials.map_err(|why| refused(why.into()))?;
    let connected = connect::connect(&uri, credentials.as_ref(), connect::TIMEOUT);
    let (stream, export) = connected.map_err(refused)?;
    let limits = limits(&export, settings);
    let one_hw_queue = (!export.can.multi_conn).then_some(ONE_HW_QUEUE);
    // A server may export a size that is not a multiple of its block size.
    let out_of_reach_bytes = export.size_bytes % u64::from(limits.logical_block_size);
    let notice = (out_of_reach_bytes > 0).then(|| {
        format!(
            "the server takes whole blocks of {} bytes: the last {out_of_reach_bytes} bytes of the \
             export are not part of the disk",
            limits.logical_block_size
        )
    });
    let disk = DiskFacts {
        // The server may zero fast, but the driver does not request FAST_ZERO, which a server must
        // refuse if it zeroes slowly.
        zeroes_fast: false,
        caches_reads: true,
        uses_tcp: matches!(uri.address, Address::Tcp { .. }),
        out_of_reach_bytes,
        ..DiskFacts::default()
    };
    let features = features(&uri, &export, &limits);
    let facts = Facts { disk, ..Facts::new("nbd", limits) };
    let shown_uri = uri.to_string();
    let driver = NbdDriver::new((uri, credentials), stream, export, facts);
    let device = DriverDevice::new(driver).refused_by(move |source| OpenError::Nbd {
        uri: shown_uri.clone(),
        why: source.to_string(),
        source: Some(source),
    });
    let device = Arc::new(device);
    let below = SchedulerBelow::Server;
    let defaults = Defaults { one_hw_queue, below, ..Defaults::default() };
    Ok(Opened { device, facts: disk, features, notice, defaults, claim: Claim::remote() })
}

/// Returns the limits that the server reports.
fn limits(export: &Negotiated, settings: &Settings) -> QueueLimits {
    let can = export.can;
    let default = BlockSizes { min: 1, preferred: 4096, max: PAYLOAD_MAX };
    let BlockSizes { min, preferred, max } = export.block_size.unwrap_or(default);
    let max_sectors = (max.min(PAYLOAD_MAX) >> 9).max(1);
    let range_sectors = |can: bool| if can { RANGE_MAX_SECTORS } else { 0 };
    let granularity = if can.trim { preferred.max(512) } else { 0 };
    QueueLimits::default()
        .capacity_bytes(Some(export.size_bytes - export.size_bytes % u64::from(min)))
        .logical_block_size(min)
        .physical_block_size(preferred.max(min))
        .io_min(preferred)
        .max_hw_sectors(max_sectors)
        .max_sectors(max_sectors.min(QueueLimits::default().max_sectors))
        .max_segments(MAX_SEGMENTS)
        .discard_granularity(granularity)
        .max_discard_sectors(range_sectors(can.trim).max(granularity >> 9))
        .max_write_zeroes_sectors(range_sectors(can.write_zeroes))
        .volatile_cache(can.flush && !can.read_only)
        .fua(can.fua && settings.fua().unwrap_or(true))
        // The server may make such a write durable by a sync of a file. Its next flush does not
        // report a failure of that sync again (nbdkit and nbd-server do this). The protocol permits
        // this, but it does not permit a durable write to succeed if its own data is lost. So such
        // writes need not wait for each other (`fua_queueable`).
        .fua_is_sync(true)
        .rotational(can.rotational)
        .read_only(can.read_only)
}

fn features(uri: &Uri, export: &Negotiated, limits: &QueueLimits) -> Vec<Feature> {
    let can = export.can;
    let says = match export.description.is_empty() {
        true => String::new(),
        false => format!("; it says: {}", export.description),
    };
    let zeroes = match can.fast_zero {
        true => "one range per request; the server supports fast zeroes, which are not used",
        false => "one range per request",
    };
    vec![
        Feature::present("nbd", format!("{}{says}", export.framing)),
        Feature::either(
            "tls",
            uri.tls,
            "nbds://: all data is encrypted",
            "nbd:// is not encrypted; nbds:// is",
        ),
        Feature::either(
            "multi_conn",
            can.multi_conn,
            "a connection for each hardware context",
            "the server does not have it: one connection, one hardware context",
        ),
        Feature::either("discard", can.trim, "one range in a request", "the server does not trim"),
        Feature::either(
            "write_zeroes",
            can.write_zeroes,
            zeroes,
            "the server does not write zeroes",
        ),
        match (can.flush, can.read_only) {
            (_, true) => Feature::missing("flush", "the export is read-only"),
            (true, false) => {
                Feature::present("flush", "the server's, which covers all connections")
            }
            (false, false) => {
                Feature::missing("flush", "the server has none; a flush ends at once")
            }
        },
        match (can.fua, limits.fua) {
            (true, true) => Feature::present("fua", "a flag of each write that asks for it"),
            (_, _) => Feature::missing("fua", "the server has none: a flush follows the write"),
        },
        Feature::either(
            "block_status",
            export.allocation.is_some(),
            "base:allocation",
            "the server does not report where data is",
        ),
    ]
}
