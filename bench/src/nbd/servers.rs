//! The servers, with their best settings.
//!
//! Each server has its usual name with those settings, and further names with other settings.
//! `--servers` selects them, so that readers can check the choice.

use crate::servers::{Medium, Program, Server};

macro_rules! nbdkit {
    ($name:literal, $options:literal, $file:literal) => {
        Server {
            name: $name,
            program: Program::Named("nbdkit"),
            words: &[
                (Medium::Cached, concat!("-f -U {socket} ", $options, " file {file} ", $file)),
                (Medium::Null, concat!("-f -U {socket} ", $options, " null size=8G")),
            ],
            config: None,
        }
    };
}

/// `qemu-nbd` opens the file without locks, because no other program uses it.
macro_rules! qemu_nbd {
    ($name:literal, $cached:literal, $direct:literal) => {
        Server {
            name: $name,
            program: Program::Named("qemu-nbd"),
            words: &[
                (
                    Medium::Cached,
                    concat!("-t -e 0 -k {socket} -f raw --cache=writeback ", $cached, " {file}"),
                ),
                (
                    Medium::Direct,
                    concat!("-t -e 0 -k {socket} -f raw --cache=none ", $direct, " {file}"),
                ),
                (
                    Medium::Null,
                    "-t -e 0 -k {socket} --image-opts driver=null-co,size=8G,read-zeroes=off",
                ),
            ],
            config: None,
        }
    };
}

macro_rules! qsd {
    ($name:literal, $cached:literal, $direct:literal) => {
        Server {
            name: $name,
            program: Program::Named("qemu-storage-daemon"),
            words: &[
                (
                    Medium::Cached,
                    qsd!("driver=file,filename={file},cache.direct=off,aio=", $cached),
                ),
                (Medium::Direct, qsd!("driver=file,filename={file},cache.direct=on,aio=", $direct)),
                (Medium::Null, qsd!("driver=null-co,size=8589934592,read-zeroes=off", "")),
            ],
            config: None,
        }
    };
    ($node:literal, $aio:literal) => {
        concat!(
            "--blockdev ",
            $node,
            $aio,
            ",node-name=disk --nbd-server addr.type=unix,addr.path={socket},max-connections=0 \
             --export type=nbd,id=export,node-name=disk,name=,writable=on"
        )
    };
}

macro_rules! forebay {
    ($name:literal, $driver:literal, $options:literal) => {
        Server {
            name: $name,
            program: Program::Ours,
            words: &[
                (
                    Medium::Cached,
                    concat!("serve ", $driver, "{file} --nbd unix:{socket}", $options),
                ),
                (
                    Medium::Direct,
                    concat!("serve ", $driver, "{file}?direct=on --nbd unix:{socket}", $options),
                ),
                (Medium::Null, concat!("serve null:8G --nbd unix:{socket}", $options)),
            ],
            config: None,
        }
    };
}

/// All servers, ours first.
pub(crate) static ALL: &[Server] = &[
    forebay!("forebay", "", ""),
    forebay!("forebay-aio", "aio:", ""),
    forebay!("forebay-psync", "psync:", ""),
    forebay!("forebay-sleeps", "", " --poll=off"),
    nbdkit!("nbdkit", "-t 4", ""),
    nbdkit!("nbdkit-1", "-t 1", ""),
    nbdkit!("nbdkit-2", "-t 2", ""),
    nbdkit!("nbdkit-16", "-t 16", ""),
    nbdkit!("nbdkit-sequential", "-t 4", "fadvise=sequential"),
    nbdkit!("nbdkit-random", "-t 4", "fadvise=random"),
    Server {
        name: "nbdkit-memory",
        program: Program::Named("nbdkit"),
        words: &[(Medium::Null, "-f -U {socket} memory size=1G")],
        config: None,
    },
    qemu_nbd!("qemu-nbd", "--aio=io_uring", "--aio=native"),
    qemu_nbd!("qemu-nbd-threads", "--aio=threads", "--aio=threads"),
    qemu_nbd!("qemu-nbd-io_uring", "--aio=io_uring", "--aio=io_uring"),
    qsd!("qsd", "io_uring", "native"),
    qsd!("qsd-threads", "threads", "threads"),
    qsd!("qsd-io_uring", "io_uring", "io_uring"),
];
