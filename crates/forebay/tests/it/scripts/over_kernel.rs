//! Scripts over the kernel's own write-back, on a block device with storage that is full for a
//! while.
// These tests drop the device's page cache with a system call.
#![allow(unsafe_code)]

use crate::common::Numbers;
use crate::scripts::worker::Ended;
use crate::scripts::{self, ENGINES, PAGE, Storage, oracle};
use crate::thin_device::ThinDevice;
use forebay::Disk;
use std::cell::Cell;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Each script takes half a second: it sets up a loop device and fills its storage often.
const NR_SCRIPTS: u64 = 32;

/// A loop device on a file in a tmpfs.
struct Thin {
    device: ThinDevice,
    engine: &'static str,
    direct: bool,
    fua: bool,
    is_full: Cell<bool>,
    was_full: Cell<bool>,
}

impl Thin {
    /// Returns the storage of this seed; skips the test and returns `None` if there is no such
    /// device.
    fn new(test: &str, seed: u64) -> Option<Thin> {
        Some(Thin {
            device: ThinDevice::new(test)?,
            engine: ENGINES[(seed % 3) as usize],
            direct: (seed / 6).is_multiple_of(4),
            fua: (seed / 3).is_multiple_of(2),
            is_full: Cell::new(false),
            was_full: Cell::new(false),
        })
    }

    fn set_full(&self, is_full: bool) {
        match (self.is_full.replace(is_full), is_full) {
            (false, true) => self.device.fill(),
            (true, false) => self.device.free(),
            _ => {}
        }
        self.was_full.set(true);
    }

    /// Writes the page cache back and drops clean pages. This reports an error to no open file.
    fn write_back(&self) {
        /// `BLKFLSBUF` of <linux/fs.h>.
        const BLKFLSBUF: libc::c_ulong = 0x1261;
        let file = File::open(&self.device.node).expect("the device");
        // SAFETY: the descriptor is open; this request has no argument.
        let answer = unsafe { libc::ioctl(file.as_raw_fd(), BLKFLSBUF, 0) };
        assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
    }

    /// Syncs the device like another program, which receives the error.
    fn foreign_sync(&self) {
        let _ = self.device.sync();
    }
}

impl Storage for Thin {
    fn spec(&self, numbers: &mut Numbers) -> String {
        let Thin { device, engine, direct, fua, .. } = self;
        // A quarter of the disks differ, so buffered and direct I/O meet on one device.
        let direct = *direct ^ (numbers.below(4) == 0);
        let name = |is_on: bool| if is_on { "on" } else { "off" };
        let keys = format!("engine={engine}&direct={}&fua={}", name(direct), name(*fua));
        format!("{}?{keys}&nr_hw_queues=4", device.node)
    }

    fn is_shared(&self) -> bool {
        true
    }

    /// Linux's loop driver reports success for a write that its file accepted in part (seen with
    /// 6.18). So no request may cover both a page that fits into the file and one that does not.
    fn page_distance(&self) -> u64 {
        2
    }

    /// Direct I/O receives the device's own error.
    fn fails_writes(&self) -> bool {
        true
    }

    fn stores(&self, _: &Disk, page: u64, value: u64) -> bool {
        self.device.stores(&oracle::content(value), page * PAGE as u64)
    }

    fn disturb(&self, _: &Disk, numbers: &mut Numbers) {
        match numbers.below(8) {
            0 => self.set_full(true),
            1 => self.set_full(false),
            2 => self.write_back(),
            3 => self.foreign_sync(),
            4 | 5 => {
                self.set_full(true);
                self.write_back();
                self.set_full(false);
            }
            _ => {
                self.set_full(true);
                self.foreign_sync();
                self.set_full(false);
            }
        }
    }

    /// Write-backs fail only while the storage is full.
    fn nr_failed(&self, _: &Disk, _: &[Ended]) -> u64 {
        u64::from(self.was_full.replace(self.is_full.get()))
    }

    fn heal(&self) {
        self.set_full(false);
    }
}

#[test]
fn device_keeps_acknowledged_durability_when_write_back_fails() {
    let test = "scripts::over_kernel::device_keeps_acknowledged_durability_when_write_back_fails";
    let run_one = |seed| Some(scripts::run(&Thin::new(test, seed)?, seed));
    let counts = scripts::run_all(test, NR_SCRIPTS, run_one);
    let is_met = counts.second_disks > 0 && counts.early_closes > 0;
    assert!(is_met || counts.scripts < NR_SCRIPTS, "{counts:?}");
}
