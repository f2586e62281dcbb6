//! The `rbd` driver: an image of a Ceph cluster, through librbd.
//!
//! - [`mod@open`]: keys, limits and features; [`target`]: the parts of a target;
//! - [`api`]: the functions of librbd, loaded at run time; [`cluster`]: a connection to a cluster;
//!   [`image`]: an open image; [`handles`]: its handles; [`option`]: its options; [`cache`]: its
//!   write cache; [`lock`]: its exclusive lock; [`pool`]: its pool; [`gone`]: why it is gone;
//! - [`status`]: librbd's errors as statuses; [`extents`]: the data and holes of an image;
//! - [`driver`], [`queue`]: the driver and its queues, of the public contract
//!   ([`Driver`](super::Driver)).
//!
//! librbd does the I/O in threads of its own. Its callback only adds a completion to the list of
//! the queue ([`CompletionList`](super::kit::CompletionList)); the thread that reaps converts it.
//! All queues share the image, and a flush on any of them covers all writes.
//!
//! Source: Ceph's `rbd/librbd.h`; QEMU's `block/rbd.c`, for the use of its calls.
//!
//! A command that the cluster has not answered within `rados_osd_op_timeout` ends with
//! [`Timeout`](forebay_core::BlockStatus::Timeout). Such a write may have been performed, or may
//! still be: its range has the old data, the new, or a mixture. The layer does not retry it. It
//! does not overtake a later write of the same client to the same range: RADOS performs the
//! operations of a client on an object in their order, and drops those of a session that has ended.
//!
//! Each disk has a connection of its own. A child of a fork has none of librbd's threads. So it
//! closes nothing of its parent, and can open no image before it executes a program.
//!
//! All of this is the cargo feature `rbd`. The program enables it.

#[cfg(feature = "rbd")]
mod api;
#[cfg(feature = "rbd")]
mod cache;
#[cfg(feature = "rbd")]
mod cluster;
#[cfg(feature = "rbd")]
mod driver;
#[cfg(feature = "rbd")]
mod extents;
#[cfg(feature = "rbd")]
mod gone;
#[cfg(feature = "rbd")]
mod handles;
#[cfg(feature = "rbd")]
mod image;
#[cfg(feature = "rbd")]
mod lock;
#[cfg(feature = "rbd")]
mod open;
#[cfg(feature = "rbd")]
mod option;
#[cfg(feature = "rbd")]
mod pool;
#[cfg(feature = "rbd")]
mod queue;
#[cfg(feature = "rbd")]
mod status;
mod target;

use crate::error::SpecError;
use crate::keys::Keys;
#[cfg(feature = "rbd")]
pub(super) use open::open;
use std::ffi::CString;

/// The keys of the driver.
#[derive(Debug)]
struct Access {
    /// The configuration file. Without it, the default ones of Ceph.
    conf: Option<CString>,
    /// The name of the client, without `client.`.
    id: Option<CString>,
    /// The file with the key of the client.
    keyring: Option<CString>,
}

impl Access {
    fn take(keys: &mut Keys) -> Result<Access, SpecError> {
        let text = |value: &str| CString::new(value).ok().filter(|text| !text.is_empty());
        Ok(Access {
            conf: keys.take("conf", "the path of a configuration file of Ceph", text)?,
            id: keys.take("id", "the name of a client, such as admin", text)?,
            keyring: keys.take("keyring", "the path of a file with the client's key", text)?,
        })
    }
}

/// Refuses the driver, in a build without it.
#[cfg(not(feature = "rbd"))]
pub(super) fn open(
    spec: &crate::spec::Spec,
    keys: &mut Keys,
    _: &crate::settings::Settings,
) -> Result<super::Opened, crate::error::OpenError> {
    let Access { conf, id, keyring } = Access::take(keys)?;
    drop((conf, id, keyring));
    let _ = target::Target::parse(spec.target())?;
    let why = String::from("no such driver in this build: build forebay with its feature `rbd`");
    let image = spec.target().to_owned();
    Err(crate::error::OpenError::Rbd { image, why, errno: libc::ENOSYS })
}
