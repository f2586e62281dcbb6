//! The `rbd` driver with a real cluster of one node.
//!
//! - this file: images as disks, and refusals;
//! - [`failures`]: the OSD is killed, stopped or full; the image is resized, removed or fenced.

mod failures;

use crate::ceph::{self, Used};
use crate::common::{feature, open};
use crate::forked::in_child;
use crate::skip::{skip, skip_always};
use forebay::{BlockStatus, Disk, Extent, ExtentKind, FeatureState, IoError, OpenError};
use std::sync::RwLockReadGuard;

/// Returns the cluster. Reports a skipped test if there can be none.
pub(crate) fn cluster() -> Option<Used<RwLockReadGuard<'static, ()>>> {
    has_feature().then(ceph::cluster)?.map_err(|why| skip(&name(), &why)).ok()
}

fn has_feature() -> bool {
    if !cfg!(feature = "rbd") {
        skip_always(&name(), "this build lacks the feature `rbd`");
    }
    cfg!(feature = "rbd")
}

fn name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

/// Returns bytes that differ from block to block.
fn data(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 3 + at / 4096) as u8).collect()
}

fn is_present(disk: &Disk, name: &str) -> bool {
    matches!(feature(disk.info(), name), FeatureState::Present(_))
}

#[test]
fn properties_are_those_of_the_image() {
    let Some(cluster) = cluster() else { return };
    let image = cluster.create((16 << 20) + 700, "layering,exclusive-lock");
    let disk = open(&cluster.spec(&image));
    assert_eq!(disk.capacity_bytes(), Some((16 << 20) + 512));
    let (limits, info) = (disk.limits(), disk.info());
    assert_eq!((limits.logical_block_size, limits.io_opt), (512, 4 << 20));
    assert_eq!((limits.discard_granularity, limits.max_segments), (64 << 10, 256));
    assert_eq!(info.facts.out_of_reach_bytes, 188);
    assert!(info.notice.as_deref().is_some_and(|text| text.contains("the last 188 bytes")));
    assert!(limits.volatile_cache && limits.fua && !limits.read_only);
    for name in ["librbd", "flush", "fua", "discard", "write_zeroes", "block_status", "timeout"] {
        assert!(is_present(&disk, name), "{name}");
    }
    let FeatureState::Present(timeout) = feature(info, "timeout") else { panic!("there is one") };
    assert!(timeout.starts_with("rados_osd_op_timeout=30: "), "{timeout}");
    let disk = open(&format!("{}&io_timeout_ms=1500", cluster.spec(&image)));
    let FeatureState::Present(timeout) = feature(disk.info(), "timeout") else { panic!("again") };
    assert!(timeout.starts_with("rados_osd_op_timeout=2: "), "{timeout}");
    for policy in ["writeback", "writethrough"] {
        cluster.set(&image, "rbd_cache_policy", policy);
        let disk = open(&cluster.spec(&image));
        assert!(disk.limits().volatile_cache && !disk.limits().fua, "{policy}");
        let FeatureState::Missing(why) = feature(disk.info(), "fua") else { panic!("{policy}") };
        assert!(why.contains(&format!("rbd_cache_policy={policy}")), "{why}");
    }
    cluster.set(&image, "rbd_cache_policy", "writearound");
    // The option of the image counts, not only that of the configuration.
    cluster.set(&image, "rbd_cache", "false");
    let disk = open(&cluster.spec(&image));
    assert!(!disk.limits().volatile_cache && !is_present(&disk, "flush"));
    disk.write_at(&[1; 4096], 0).expect("a write");
    disk.flush().expect("a flush");
    assert_eq!(disk.stats().queue.flushes_issued, 0, "a write is durable when it ends");
    // An override may have any form that Ceph accepts.
    for text in ["True", "2", "01"] {
        cluster.set_as_is(&image, "rbd_cache", text);
        let disk = open(&cluster.spec(&image));
        assert!(disk.limits().volatile_cache && is_present(&disk, "flush"), "{text}");
    }
    cluster.set_as_is(&image, "rbd_cache", "False");
    cluster.set_as_is(&image, "rbd_skip_partial_discard", "FALSE");
    let disk = open(&cluster.spec(&image));
    assert!(!disk.limits().volatile_cache && disk.info().facts.discards_to_zeroes);
    cluster.set_as_is(&image, "rbd_skip_partial_discard", "TRUE");
    let disk = open(&cluster.spec(&image));
    assert!(!disk.info().facts.discards_to_zeroes);
    assert_eq!(disk.limits().discard_granularity, 64 << 10);
}

#[test]
fn written_data_is_in_the_image_after_a_flush() {
    let Some(cluster) = cluster() else { return };
    let image = cluster.create(16 << 20, "layering");
    let disk = open(&cluster.spec(&image));
    let data = data(5 << 20);
    assert_eq!(disk.write_at(&data, 512), Ok(5 << 20));
    disk.flush().expect("a flush");
    assert_eq!(disk.stats().queue.flushes_issued, 1, "a flush reaches the cluster");
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("exported");
    cluster.rbd(&["export", "--no-progress", &format!("rbd/{image}"), &path.display().to_string()]);
    let file = std::fs::read(&path).expect("the file");
    assert!(file[512..][..5 << 20] == data && file[..512].iter().all(|byte| *byte == 0));
    let mut read = vec![0; 5 << 20];
    assert_eq!(disk.read_at(&mut read, 512), Ok(5 << 20));
    assert!(read == data);
}

#[test]
fn ranges_are_discarded_zeroed_and_described() {
    let Some(cluster) = cluster() else { return };
    let image = cluster.create(32 << 20, "layering");
    let disk = open(&cluster.spec(&image));
    let mut list = Vec::new();
    let extents = |disk: &Disk, list: &mut Vec<Extent>| {
        disk.block_status(0, 32 << 20, 100, list).expect("librbd reports extents");
        let kinds = list.iter().map(|one| (one.len >> 10, one.kind));
        kinds.collect::<Vec<_>>()
    };
    assert_eq!(extents(&disk, &mut list), [(32 << 10, ExtentKind::Hole)]);
    disk.write_at(&vec![7; 1 << 20], 5 << 20).expect("a write");
    disk.flush().expect("a flush");
    let (data, hole) = (ExtentKind::Data, ExtentKind::Hole);
    // An object is stored up to its last byte.
    assert_eq!(extents(&disk, &mut list), [(4 << 10, hole), (2 << 10, data), (26 << 10, hole)]);
    disk.write_zeroes(5 << 20, 256 << 10).expect("zeroes");
    disk.discard((5 << 20) + (512 << 10), 512 << 10).expect("a discard");
    disk.flush().expect("a flush");
    let mut read = vec![1; 1 << 20];
    disk.read_at(&mut read, 5 << 20).expect("a read");
    assert!(read[..256 << 10].iter().all(|byte| *byte == 0), "a zeroed range");
    assert!(read[256 << 10..512 << 10].iter().all(|byte| *byte == 7), "data");
    assert!(read[512 << 10..].iter().all(|byte| *byte == 0), "this discard is of whole units");
    disk.discard(4 << 20, 4 << 20).expect("a discard of a whole object");
    disk.flush().expect("a flush");
    assert_eq!(extents(&disk, &mut list), [(32 << 10, hole)]);
}

#[test]
fn snapshots_and_read_only_disks_are_not_written() {
    let Some(cluster) = cluster() else { return };
    let image = cluster.create(16 << 20, "layering");
    let disk = open(&cluster.spec(&image));
    disk.write_at(&[1; 4096], 0).expect("a write");
    disk.flush().expect("a flush");
    cluster.rbd(&["snap", "create", "--no-progress", &format!("rbd/{image}@monday")]);
    disk.write_at(&[2; 4096], 0).expect("a write");
    disk.flush().expect("a flush");
    let snapshot = open(&cluster.spec(&format!("{image}@monday")));
    let mut read = [0; 4096];
    assert_eq!(snapshot.read_at(&mut read, 0), Ok(4096));
    assert_eq!(read, [1; 4096]);
    assert_eq!(snapshot.reread_size().expect("no error"), None, "it keeps its size");
    assert!(snapshot.limits().read_only && !is_present(&snapshot, "discard"));
    assert!(matches!(snapshot.write_at(&read, 0), Err(IoError::Refused(_))));
    let disk = open(&format!("{}&read_only=on", cluster.spec(&image)));
    assert_eq!(disk.read_at(&mut read, 0), Ok(4096));
    assert_eq!(read, [2; 4096]);
    assert!(matches!(disk.write_at(&read, 0), Err(IoError::Refused(_))));
}

#[test]
fn namespaces_and_clients_are_those_of_the_spec() {
    let Some(cluster) = cluster() else { return };
    cluster.rbd(&["namespace", "create", "rbd/tenant"]);
    cluster.rbd(&["create", "rbd/tenant/disk", "--size", "16M"]);
    let key = tempfile::NamedTempFile::new().expect("a scratch file");
    let caps = ["mon", "profile rbd", "osd", "profile rbd pool=rbd namespace=tenant"];
    let text = cluster.ceph(&[&["auth", "get-or-create", "client.tenant"][..], &caps].concat());
    std::fs::write(key.path(), text).expect("room for a key");
    let conf = cluster.conf();
    let spec = |target: &str, id: &str| {
        let (conf, key) = (conf.display(), key.path().display());
        format!("rbd:{target}?conf={conf}&id={id}&keyring={key}")
    };
    let disk = open(&spec("rbd/tenant/disk", "tenant"));
    disk.write_at(&[3; 4096], 0).expect("a write");
    let refused = |spec: &str, expected: &str| {
        let error = Disk::open(spec).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(&spec("rbd/disk", "tenant"), "the client has no permission");
    refused(&spec("rbd/tenant/disk", "other"), "the cluster refuses the key of client.other");
    refused(&spec("nowhere/disk", "tenant"), "the cluster has no pool nowhere");
    refused(&spec("rbd/tenant/d", "tenant"), "rbd/tenant has no image d");
    refused(&spec("rbd/tenant/disk@s", "tenant"), "no image disk with a snapshot s");
    let OpenError::Rbd { errno, .. } =
        Disk::open(&spec("rbd/tenant/d", "tenant")).expect_err("no image")
    else {
        panic!("an error of the driver");
    };
    assert_eq!(errno, 2);
}

#[test]
fn image_that_grows_is_a_disk_that_grows() {
    let Some(cluster) = cluster() else { return };
    let image = cluster.create(16 << 20, "layering,exclusive-lock");
    let disk = open(&cluster.spec(&image));
    let reader = open(&format!("{}&read_only=on", cluster.spec(&image)));
    for disk in [&disk, &reader] {
        assert_eq!(disk.reread_size().expect("a size"), Some(16 << 20));
    }
    assert!(matches!(disk.write_at(&[1; 512], 16 << 20), Err(IoError::Refused(_))));
    cluster.rbd(&["resize", "--no-progress", &format!("rbd/{image}"), "--size", "24M"]);
    assert_eq!(disk.reread_size().expect("a size"), Some(24 << 20));
    disk.grow(24 << 20).expect("it has grown");
    disk.write_at(&[1; 512], (24 << 20) - 512).expect("a write behind the old end");
    disk.flush().expect("a flush");
    let mut block = [0; 512];
    for _ in 0..2 {
        assert_eq!(reader.reread_size().expect("a size"), Some(24 << 20));
    }
    reader.grow(24 << 20).expect("it has grown");
    reader.read_exact_at(&mut block, (24 << 20) - 512).expect("a read behind the old end");
    assert_eq!(block, [1; 512]);
    let mut list = Vec::new();
    reader.block_status(20 << 20, 4 << 20, 100, &mut list).expect("extents");
    assert_eq!(list[..], [Extent { len: 4 << 20, kind: ExtentKind::Data }]);
    // Another image with the name of this one has other data.
    let name = format!("rbd/{image}");
    cluster.rbd(&["rename", &name, &format!("{name}-old")]);
    cluster.rbd(&["create", &name, "--size", "32M"]);
    let error = reader.reread_size().expect_err("another image").to_string();
    assert!(error.contains("is the name of another image now"), "{error}");
    reader.read_exact_at(&mut block, (24 << 20) - 512).expect("the disk keeps its image");
    assert_eq!(block, [1; 512]);
    let image = format!("{image}-old");
    // A smaller size is not announced, and the range behind the new end fails.
    let smaller = ["resize", "--no-progress", "--allow-shrink"];
    cluster.rbd(&[&smaller[..], &[&format!("rbd/{image}"), "--size", "8M"]].concat());
    assert_eq!(disk.reread_size().expect("a size"), Some(8 << 20));
    let written = disk.write_at(&[1; 512], 20 << 20);
    assert_eq!(written, Err(IoError::Ended(BlockStatus::Invalid)));
    disk.write_at(&[1; 512], 0).expect("the rest works");
}

#[test]
fn child_of_a_fork_leaves_the_image_to_its_parent() {
    let Some(cluster) = cluster() else { return };
    let image = cluster.create(16 << 20, "layering");
    let spec = cluster.spec(&image);
    let mut disk = Some(open(&spec));
    let ok = in_child(|| {
        let disk = disk.take().expect("the child's copy");
        let is_refused = disk.read_at(&mut [0; 512], 0).is_err();
        drop(disk);
        let error = Disk::open(&spec).expect_err("no threads").to_string();
        is_refused && error.contains("a forked child of one that uses librbd")
    });
    assert!(ok, "the child drops its copy, and can open no image");
    let disk = disk.expect("the parent's");
    assert_eq!(disk.read_at(&mut [0; 512], 0), Ok(512));
    assert_eq!(disk.failure(), None);
}

/// Refusals without a cluster.
#[test]
#[cfg(feature = "rbd")]
fn wrong_specs_and_configurations_are_refused() {
    let refused = |spec: &str, expected: &str| {
        let error = Disk::open(spec).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused("rbd:vm", "rbd:vm: expected pool[/namespace]/image[@snapshot]");
    refused("rbd:rbd/vm?id=", "id=: expected the name of a client, such as admin");
    refused("rbd:rbd/vm@s?exclusive=on", "a read-only disk does not take the lock");
    // Before the cluster, and even its configuration, is needed.
    refused("rbd:rbd/vm?conf=/nowhere&keyrin=/k", "did you mean `keyring`?");
    refused("fault:rbd:rbd/vm?conf=/nowhere&rules=x", "did you mean `rule`?");
    refused("rbd:rbd/vm?conf=/nowhere", "the configuration /nowhere cannot be read: No such file");
}

#[test]
#[cfg(not(feature = "rbd"))]
fn build_without_the_feature_names_it() {
    let error = Disk::open("rbd:rbd/vm").expect_err("no driver").to_string();
    assert_eq!(
        error,
        "rbd:rbd/vm: no such driver in this build: build forebay with its feature `rbd`"
    );
}
