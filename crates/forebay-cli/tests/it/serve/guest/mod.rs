//! A Linux guest on served disks, in QEMU without hardware virtualization.
//!
//! - `image`: kernel and tools of the distribution, and the initial file system with a script;
//! - `machine`: the virtual machine, its console and its monitor;
//! - `export`: the server of a disk, which is forebay unless a variable says otherwise;
//! - `nbd`: a disk by QEMU's client of NBD;
//! - `disks`, `file_systems`, `cache`: disks over vhost-user, whose server accesses the guest's
//!   memory; `root`: one of them has the guest's root; `firmware`: without an operating system;
//! - `resize`: a disk that grows;
//! - `stops`, `kills`: a machine that is stopped or killed under load; `restarts`: its server is
//!   restarted; `storms`: resets, and switches of the cache mode, under load.
//!
//! A script runs as `/init`, after `scripts/init.sh`. It reports to the host by lines on the
//! console, and the host answers lines where the script waits. Without the distribution's packages
//! these tests are skipped by name, or fail if `FOREBAY_REQUIRE_TOOLS` is set.

mod cache;
mod disks;
mod export;
mod file_systems;
mod firmware;
mod image;
mod kills;
mod machine;
mod nbd;
mod resize;
mod restarts;
mod root;
mod stops;
mod storms;
