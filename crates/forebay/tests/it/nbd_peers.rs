//! The `nbd` driver with third-party servers: nbdkit and qemu-nbd, each serving one file.

use crate::common::{Numbers, Scratch, open};
use crate::futures::{block_on, use_disk};
use crate::skip::skip;
use forebay::{Disk, ExtentKind};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const LEN: u64 = 8 << 20;

/// A third-party server, and the file that it serves.
struct Peer {
    child: Child,
    socket: PathBuf,
    scratch: Scratch,
    _folder: tempfile::TempDir,
}

impl Peer {
    /// Starts a program on a file of `LEN` zeroes and a socket. Skips the test if the program is
    /// missing.
    fn start(program: &str, arguments: impl Fn(&Path, &Path) -> Vec<String>) -> Option<Peer> {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let (socket, scratch) = (folder.path().join("nbd.sock"), Scratch::new(LEN));
        let mut command = Command::new(program);
        command.args(arguments(&socket, &scratch.path));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let test = std::thread::current().name().unwrap_or_default().to_owned();
                skip(&test, &format!("{program} cannot be run: {error}"));
                return None;
            }
        };
        let mut peer = Peer { child, socket, scratch, _folder: folder };
        while UnixStream::connect(&peer.socket).is_err() {
            let ended = peer.child.try_wait().expect("a child of ours");
            assert!(ended.is_none(), "{program}: {ended:?}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Some(peer)
    }

    fn uri(&self, scheme: &str) -> String {
        format!("{scheme}+unix:///?socket={}", self.socket.display())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn nbdkit(filters: &'static [&'static str]) -> Option<Peer> {
    Peer::start("nbdkit", |socket, file| {
        let mut arguments =
            vec![String::from("-f"), String::from("-U"), socket.display().to_string()];
        arguments.extend(filters.iter().map(|&filter| filter.to_owned()));
        arguments.extend([String::from("file"), file.display().to_string()]);
        arguments
    })
}

fn qemu_nbd(arguments: &'static [&'static str]) -> Option<Peer> {
    Peer::start("qemu-nbd", |socket, file| {
        let fixed = ["-t", "-f", "raw", "-x", "", "-k"].map(str::to_owned);
        let mut all = fixed.to_vec();
        all.push(socket.display().to_string());
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        all.push(file.display().to_string());
        all
    })
}

/// Runs various I/O on a disk from several threads, and compares the disk and its file with plain
/// memory.
fn exercise(disk: &Disk, file: &Path) {
    assert_eq!(disk.capacity_bytes(), Some(LEN));
    let part = LEN / 4;
    let models: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let thread = |nth: u64| {
            let mut numbers = Numbers(nth + 1);
            let mut model = vec![0u8; part as usize];
            for round in 0..300u64 {
                let at = numbers.below(part / 512) * 512;
                let len = (1 + numbers.below(256)) * 512;
                let len = len.min(part - at);
                let (from, range) = (nth * part + at, at as usize..(at + len) as usize);
                match numbers.below(6) {
                    0 | 1 => {
                        model[range.clone()].fill((round % 255) as u8 + 1);
                        disk.write_at(&model[range], from).expect("a write");
                    }
                    2 => {
                        model[range].fill(0);
                        disk.write_zeroes(from, len).expect("zeroes");
                    }
                    3 => disk.flush().expect("a flush"),
                    _ => {
                        let mut buf = vec![0xEE; len as usize];
                        disk.read_at(&mut buf, from).expect("a read");
                        assert!(buf == model[range], "{from} {len}");
                    }
                }
            }
            model
        };
        let threads: Vec<_> = (0..4).map(|nth| scope.spawn(move || thread(nth))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    disk.flush().expect("a flush");
    let (model, mut extents) = (models.concat(), Vec::new());
    assert!(std::fs::read(file).expect("the file") == model, "other bytes in the file");
    disk.block_status(0, LEN, 100_000, &mut extents).expect("block status");
    let mut at = 0;
    for extent in extents {
        let bytes = &model[at as usize..(at + extent.len) as usize];
        let is_true = extent.kind == ExtentKind::Data || bytes.iter().all(|&byte| byte == 0);
        assert!(is_true, "{extent:?} at {at}");
        at += extent.len;
    }
    assert_eq!(at, LEN);
}

#[test]
fn nbdkit_serves_a_file() {
    for filters in [&[][..], &["--filter=noextents"], &["--filter=multi-conn", "--no-sr"]] {
        let Some(peer) = nbdkit(filters) else { return };
        let disk = open(&peer.uri("nbd"));
        exercise(&disk, &peer.scratch.path);
        drop(disk);
        exercise_again(&peer);
    }
}

#[test]
fn futures_end_on_a_file_of_nbdkits() {
    let Some(peer) = nbdkit(&[]) else { return };
    let uri = peer.uri("nbd");
    let disk = open(&uri);
    std::thread::scope(|scope| {
        for nth in 0..4u64 {
            let (disk, uri) = (&disk, &uri);
            scope.spawn(move || block_on(use_disk(disk, nth << 16, 50, true), uri));
        }
    });
}

/// Repeats the exercise on a disk with one context; the models of the first run are gone, so it
/// zeroes the disk first.
fn exercise_again(peer: &Peer) {
    let disk = open(&format!("{}&nr_hw_queues=1&service=on", peer.uri("nbd")));
    disk.write_zeroes(0, LEN).expect("zeroes");
    exercise(&disk, &peer.scratch.path);
}

#[test]
fn qemu_nbd_serves_a_file() {
    for arguments in [&["-e", "8"][..], &["-e", "1"], &["-e", "8", "--cache=none", "--aio=native"]]
    {
        let Some(peer) = qemu_nbd(arguments) else { return };
        // The server may still count the start-up probe as a client for a moment.
        let disk = open(&peer.uri("nbd"));
        exercise(&disk, &peer.scratch.path);
    }
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    /// Returns a folder of certificates: an authority's, and a server's and a client's signed by
    /// it.
    fn certificates() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let put = |name: &str, text: String| {
            std::fs::write(folder.path().join(name), text).expect("a scratch file");
        };
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        put("ca-cert.pem", params.self_signed(&key).expect("a certificate").pem());
        let authority = Issuer::new(params, key);
        for who in ["server", "client"] {
            let params = CertificateParams::new([String::from("localhost")]).expect("a name");
            let key = KeyPair::generate().expect("a key");
            let certificate = params.signed_by(&key, &authority).expect("a certificate");
            put(&format!("{who}-cert.pem"), certificate.pem());
            put(&format!("{who}-key.pem"), key.serialize_pem());
        }
        folder
    }

    fn server(folder: &tempfile::TempDir, more: &[&str]) -> Option<Peer> {
        Peer::start("nbdkit", |socket, file| {
            let mut arguments = vec![
                String::from("-f"),
                String::from("-U"),
                socket.display().to_string(),
                String::from("--tls=require"),
                format!("--tls-certificates={}", folder.path().display()),
            ];
            arguments.extend(more.iter().map(|&one| one.to_owned()));
            arguments.extend([String::from("file"), file.display().to_string()]);
            arguments
        })
    }

    #[test]
    fn under_tls_the_bytes_are_the_same() {
        let folder = certificates();
        let Some(peer) = server(&folder, &["--tls-verify-peer"]) else { return };
        let spec = format!("{}&tls-certificates={}", peer.uri("nbds"), folder.path().display());
        let disk = open(&spec);
        exercise(&disk, &peer.scratch.path);
        // Requests longer than a TLS session buffers, in both directions.
        let mut queue = disk.queue();
        let mut done = Vec::new();
        for nth in 0..8 {
            let mut buf = forebay::Buf::new(1 << 20);
            buf.fill(nth as u8 + 1);
            crate::common::submit(&mut queue, forebay::Io::write(buf, nth << 20));
        }
        queue.reap(8, 8, &mut done);
        for nth in 0..8 {
            let read = forebay::Io::read(forebay::Buf::new(1 << 20), nth << 20);
            crate::common::submit(&mut queue, read.user_data(nth));
        }
        done.clear();
        queue.reap(8, 8, &mut done);
        for one in done {
            assert_eq!(one.result, Ok(1 << 20));
            let buf = one.buf.expect("a buffer");
            assert!(buf.iter().all(|&byte| byte == one.user_data as u8 + 1));
        }
    }

    #[test]
    fn unknown_peer_is_refused_and_nothing_is_sent_in_plain_text() {
        let (folder, others) = (certificates(), certificates());
        let Some(peer) = server(&folder, &[]) else { return };
        let (uri, folder) = (peer.uri("nbds"), folder.path().display());
        let cases = [
            (
                format!("{uri}&tls-certificates={}", others.path().display()),
                "invalid peer certificate",
            ),
            (
                format!("{uri}&tls-certificates={folder}&tls-hostname=other.org"),
                "not valid for name",
            ),
            (format!("{uri}&tls-certificates=/nowhere"), "/nowhere/ca-cert.pem: No such file"),
            (
                format!("{uri}&tls-certificates={folder}&tls-type=psk"),
                "tls-type=psk is not supported",
            ),
            (peer.uri("nbd"), "it requires TLS: use nbds:// instead of nbd://"),
        ];
        for (spec, said) in cases {
            let error = Disk::open(&spec).expect_err(&spec).to_string();
            assert!(error.contains(said), "{spec}: {error}");
        }
        open(&format!("{uri}&tls-certificates={folder}"));
        open(&format!("{uri}&tls-verify-peer=false"));
    }
}
