//! The contract of every driver: the same operations have the same results, byte for byte, on an
//! owned context and on the shared context.
//!
//! The checks are those of [`forebay::testing`], and a few about disks that specs open
//! ([`opening`]). The table below generates a test of each check for each driver. `null` moves no
//! data: there the tests check statuses and lengths only.

mod opening;

use crate::backends;
use crate::ceph;
use crate::common::{Scratch, open};
use crate::drivers;
use crate::nbd_server::{NbdServer, export};
use crate::rbd;
use crate::storage_daemon::StorageDaemon;
use crate::vhost_user;
use forebay::testing::{self, CHECKS};
use forebay::{BlockStatus, Buf, Disk};
use forebay_nbd::wire::numbers::{OPT_EXTENDED_HEADERS, OPT_STRUCTURED_REPLY};
use std::sync::RwLockReadGuard;

/// Size of the disks, in bytes.
pub(crate) const LEN: u64 = 1 << 20;

/// A driver under test and the storage behind it. A file starts out filled with zeroes.
pub(crate) struct Subject {
    driver: String,
    rules: &'static str,
    scratch: Scratch,
    server: Option<NbdServer>,
    daemon: Option<StorageDaemon>,
    /// The spec of an image, and the cluster, which no test disturbs meanwhile.
    image: Option<(String, ceph::Used<RwLockReadGuard<'static, ()>>)>,
}

/// `fault` rules that may not change any result: they only delay completions.
const LATE: &str = "rule=write:delay=200us:nth=5&rule=any:delay=50us:nth=3&rule=flush:delay=1ms";

/// The same for a device without a cache, which receives no flushes.
const LATE_RAM: &str = "rule=write:delay=200us:nth=5&rule=any:delay=50us:nth=3";

/// The same: the layer continues after short counts and retries after busy errors.
const HARMLESS: &str = "rule=read:short=4k:nth=3&rule=write:short=8k:nth=5&rule=any:busy:nth=7";

impl Subject {
    /// Returns the driver with this name. `fault_x` is `x` behind `fault` with harmless rules,
    /// `late_x` is `x` behind `fault` with delays, `model_x` is the device `x` of the driver
    /// `model`, `nbd_x` is an NBD server that lacks a feature, and `backend_x` is a back end that
    /// serves requests on `x`. Returns `None`, and says so, if the driver cannot be tested here.
    fn of(name: &str) -> Option<Subject> {
        let rules = match name.split_once('_') {
            Some(("fault", _)) => HARMLESS,
            Some(("late", "ram")) => LATE_RAM,
            Some(("late", _)) => LATE,
            _ => "",
        };
        let driver = name.replace("late_", "fault:").replace("fault_", "fault:");
        let driver = driver.replace("model_", "model:");
        let server = driver.split_once("nbd").map(|(_, kind)| server(kind));
        let scratch = Scratch::new(LEN);
        let daemon = match driver.ends_with("vhost_user") {
            true => Some(vhost_user::daemon(&scratch)?),
            false => None,
        };
        let image = match driver.ends_with("rbd") {
            true => {
                let cluster = rbd::cluster()?;
                let image = cluster.create(LEN, "layering");
                // Each byte of a discard is zeroed, as on the other disks.
                cluster.set(&image, "rbd_skip_partial_discard", "false");
                Some((cluster.spec(&image), cluster))
            }
            false => None,
        };
        Some(Subject { driver, rules, scratch, server, daemon, image })
    }

    /// Returns whether a read returns the data that was written.
    fn moves_data(&self) -> bool {
        !self.driver.ends_with("null")
    }

    fn is_file(&self) -> bool {
        ["file", "aio", "psync"].iter().any(|driver| self.driver.ends_with(driver))
    }

    fn is_faulty(&self) -> bool {
        self.driver.starts_with("fault")
    }

    fn spec(&self, keys: &str) -> String {
        // A device with a cache and without FUA refuses it.
        let has_fua = !["hdd", "nvme", "sata", "vhost_user", "rbd"]
            .iter()
            .any(|driver| self.driver.ends_with(driver));
        let keys = if has_fua { keys } else { &keys.replace("fua=on", "") };
        let is_read_only = keys.contains("read_only=on");
        let may_act = |rule: &&str| !is_read_only || !rule.starts_with("rule=write:");
        let rules: Vec<&str> = self.rules.split('&').filter(may_act).collect();
        let rules = rules.join("&");
        if let Some((_, device)) = self.driver.split_once("model:") {
            // Slow enough that the device reorders requests.
            let constants = match device {
                "hdd" => "seek_ns=20k&bytes_per_s=4g",
                "sata" => "seek_ns=20k&position_ns=20k&flush_ns=10k&bytes_per_s=4g",
                _ => "",
            };
            return format!("{}?size={LEN}&{constants}&{keys}&{rules}", self.driver);
        }
        let fault = if self.is_faulty() { "fault:" } else { "" };
        if let Some(server) = &self.server {
            return format!("{fault}{}&{keys}&{rules}", server.uri());
        }
        if let Some(daemon) = &self.daemon {
            return format!("{fault}{}?{keys}&{rules}", daemon.spec());
        }
        if let Some((spec, _)) = &self.image {
            return format!("{fault}{spec}&{keys}&{rules}");
        }
        let target = match self.is_file() {
            true => self.scratch.path.display().to_string(),
            false => LEN.to_string(),
        };
        format!("{}:{target}?{keys}&{rules}", self.driver)
    }

    /// Returns whether the disk has a back end or driver of the tests, which no spec opens.
    pub(crate) fn is_backend(&self) -> bool {
        self.driver.starts_with("backend") || self.driver.starts_with("driver")
    }

    /// Opens the disk, with direct I/O if the driver supports it.
    pub(crate) fn open(&self, keys: &str) -> Disk {
        if self.driver.starts_with("driver") {
            return drivers::open(&self.driver, LEN, keys);
        }
        if self.is_backend() {
            return backends::open(&self.driver, LEN, keys);
        }
        let direct = if self.is_file() { "&direct=on" } else { "" };
        open(&self.spec(&format!("{keys}{direct}")))
    }

    /// Opens the disk with 4 KiB, from 8 KiB on, that cannot be read.
    fn open_failing(&self, keys: &str) -> Disk {
        if self.driver.starts_with("driver") {
            return self.open(&format!("{keys}{}", drivers::BAD_BLOCK));
        }
        let spec = self.spec(keys);
        // The first rule that matches counts.
        let rule = "?rule=read:medium:range=8k+4k&";
        let spec = spec.trim_start_matches("fault:").replacen('?', rule, 1);
        open(&format!("fault:{spec}"))
    }

    /// Opens the disk with a growing capacity, through the page cache if the driver uses it.
    pub(crate) fn open_growing(&self, keys: &str) -> Disk {
        open(&self.spec(&format!("{keys}&capacity=growing")))
    }

    /// Runs a check of the library on this driver.
    fn check(&self, name: &str) {
        let check = CHECKS.iter().find(|check| check.name == name);
        let subject = testing::Subject::new(|setup| self.open(setup.keys()))
            .nr_hw_queues_max(self.nr_hw_queues(u64::MAX))
            .refuses_nowait(self.is_faulty());
        let subject = match self.is_backend() && !self.driver.starts_with("driver") {
            true => subject,
            false => {
                let open = |setup: &testing::Setup| self.open_failing(setup.keys());
                subject.with_failing_block(8192, BlockStatus::Medium, open)
            }
        };
        check.unwrap_or_else(|| panic!("{name}: no such check")).run(&subject);
    }

    /// Returns `wanted`, or 1 if the device can have only one context.
    pub(crate) fn nr_hw_queues(&self, wanted: u64) -> u64 {
        let is_one = self.driver.ends_with("sata") || self.driver.ends_with("nbd_alone");
        if is_one { 1 } else { wanted }
    }

    /// Checks the bytes that were read, unless the driver moves no data.
    #[track_caller]
    pub(crate) fn assert_read(&self, read: &[u8], expected: &[u8]) {
        assert!(!self.moves_data() || read == expected, "{}: other data", self.driver);
    }
}

/// Returns a server for `nbd`: `nbd_simple` has no structured replies, `nbd_compact` has no
/// extended headers, and `nbd_alone` allows one connection only.
fn server(kind: &str) -> NbdServer {
    let mut export = export(LEN);
    export.can.multi_conn = kind != "_alone";
    NbdServer::new(
        export,
        match kind {
            "_simple" => &[OPT_STRUCTURED_REPLY, OPT_EXTENDED_HEADERS],
            "_compact" => &[OPT_EXTENDED_HEADERS],
            _ => &[],
        },
    )
}

/// Returns bytes that differ from offset to offset, and by `stamp`.
pub(crate) fn pattern(stamp: u64, start: u64, len: u64) -> Buf {
    let mut buf = Buf::new(len as usize);
    for (nth, word) in buf.chunks_mut(8).enumerate() {
        let value = (start + nth as u64 * 8) ^ stamp.rotate_right(8);
        word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
    }
    buf
}

/// Generates a test of each check, and of each property of [`opening`], for each driver.
macro_rules! tests {
    ($($check:ident)+; $($property:ident)+ => $drivers:tt) => {
        /// The checks of which there are tests.
        const TESTED: &[&str] = &[$(stringify!($check)),+];
        $(tests!(@check $check $drivers);)+
        $(tests!(@property $property $drivers);)+
    };
    (@check $check:ident ($($driver:ident)+)) => {
        mod $check {
            $(#[test]
            fn $driver() {
                if let Some(subject) = super::Subject::of(stringify!($driver)) {
                    subject.check(stringify!($check));
                }
            })+
        }
    };
    (@property $property:ident ($($driver:ident)+)) => {
        mod $property {
            $(#[test]
            fn $driver() {
                if let Some(subject) = super::Subject::of(stringify!($driver)) {
                    super::opening::$property(&subject);
                }
            })+
        }
    };
}

tests! {
    written_data_is_read
    several_segments_are_one_range
    durable_writes_and_flushes_succeed
    ranges_are_zeroed
    unaligned_or_out_of_range_io_is_refused
    a_plug_makes_one_request_of_neighbours
    a_large_bio_is_split
    nowait_io_ends_at_once
    blocks_are_registers
    a_random_trace_ends_as_on_a_ram_disk
    an_error_ends_only_its_own_io
    many_requests_in_flight_all_complete
    threads_share_a_context
    dropping_a_queue_completes_its_writes
    dropping_a_disk_completes_its_io
    waiters_continue_after_the_end_of_a_hold
    a_descriptor_is_readable_when_a_reap_is_due
    a_freeze_waits_for_entered_bios
    futures_complete_when_no_other_code_drives_the_disk
    a_child_of_a_fork_uses_no_device;
    a_growing_disk_ends_where_it_ends
    a_future_that_is_dropped_has_written
    a_thread_of_the_disk_makes_progress
    => (null ram file aio psync model_hdd model_nvme model_sata
        backend backend_thread backend_futures
        driver_at_once driver_list driver_pipe driver_wrapped
        nbd nbd_simple nbd_compact nbd_alone fault_nbd late_nbd
        vhost_user fault_vhost_user late_vhost_user
        rbd
        fault_null fault_ram fault_file fault_aio fault_psync fault_model_hdd
        late_ram late_file late_aio late_psync)
}

#[test]
fn each_check_of_the_library_is_tested_on_each_driver() {
    assert!(CHECKS.iter().map(|check| check.name).eq(TESTED.iter().copied()));
}
