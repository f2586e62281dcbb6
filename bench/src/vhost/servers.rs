//! The servers, with their best settings.

use crate::servers::{Medium, Program, Server};

/// The name of our server's metrics socket in its folder.
pub(super) const METRICS: &str = "m";

macro_rules! forebay {
    ($name:literal, $options:literal) => {
        Server {
            name: $name,
            program: Program::Ours,
            words: &[
                (Medium::Null, concat!("serve null:8G", forebay!(), $options)),
                (Medium::Direct, concat!("serve {file}?direct=on", forebay!(), $options)),
                (Medium::Model, concat!("serve model:nvme?data=off", forebay!(), $options)),
            ],
            config: None,
        }
    };
    () => {
        " --vhost-user-blk unix:{folder}/s --num-queues 4 --metrics unix:{folder}/m"
    };
}

/// qemu-storage-daemon with the main loop or with a thread of its own, which polls for up to 32 us.
macro_rules! qsd {
    ($name:literal, $object:literal, $thread:literal, $aio:literal) => {
        Server {
            name: $name,
            program: Program::Named("qemu-storage-daemon"),
            words: &[
                (
                    Medium::Null,
                    concat!(
                        $object,
                        "--blockdev driver=null-co,size=8589934592,read-zeroes=off,node-name=disk",
                        qsd!(),
                        $thread
                    ),
                ),
                (
                    Medium::Direct,
                    concat!(
                        $object,
                        "--blockdev driver=file,filename={file},node-name=disk,cache.direct=on",
                        ",aio=",
                        $aio,
                        qsd!(),
                        $thread
                    ),
                ),
            ],
            config: None,
        }
    };
    () => {
        " --export type=vhost-user-blk,id=e,node-name=disk,writable=on,num-queues=4,\
         addr.type=unix,addr.path={folder}/s"
    };
}

/// All servers, ours first.
pub(crate) static ALL: &[Server] = &[
    forebay!("forebay", " --poll adaptive"),
    forebay!("forebay-sleeps", " --poll off"),
    qsd!("qsd", "--object iothread,id=t ", ",iothread=t", "io_uring"),
    qsd!("qsd-native", "--object iothread,id=t ", ",iothread=t", "native"),
    qsd!("qsd-main", "", "", "io_uring"),
    // It polls all the time. Its socket is called after the controller.
    Server {
        name: "spdk",
        program: Program::Named("spdk_tgt"),
        words: &[(Medium::Null, SPDK), (Medium::Direct, SPDK)],
        config: Some(spdk_config),
    },
];

const SPDK: &str = "-m 0x1 --no-huge -s 512 -S {folder} -c {folder}/config";

/// Returns the configuration of SPDK: a disk, and a controller for it.
fn spdk_config(medium: Medium) -> &'static str {
    match medium {
        Medium::Direct => {
            r#"{"subsystems":[{"subsystem":"bdev","config":[{"method":"bdev_uring_create",
            "params":{"name":"disk","filename":"{file}","block_size":512}}]},{"subsystem":
            "vhost_blk","config":[{"method":"vhost_create_blk_controller","params":
            {"ctrlr":"s","dev_name":"disk"}}]}]}"#
        }
        _ => {
            r#"{"subsystems":[{"subsystem":"bdev","config":[{"method":"bdev_null_create",
            "params":{"name":"disk","num_blocks":16777216,"block_size":512}}]},{"subsystem":
            "vhost_blk","config":[{"method":"vhost_create_blk_controller","params":
            {"ctrlr":"s","dev_name":"disk"}}]}]}"#
        }
    }
}
