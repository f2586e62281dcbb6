//! Reloads: new connections get the new certificates, or the previous ones if those are broken.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use crate::config::TlsOptions;
use crate::tls::Tls;

use super::certificates::{Authority, SERVER, write};
use super::peers::client;
use super::start_echo;

fn open(folder: &Path) -> Tls {
    let certificates = folder.to_owned();
    Tls::open(TlsOptions { is_required: true, certificates, verify_peer: true }).unwrap()
}

/// Whether a new connection is accepted by a client that trusts only `authority`.
fn is_trusted(tls: &Tls, authority: &Authority) -> bool {
    let (here, there) = UnixStream::pair().unwrap();
    let server = start_echo(there.into(), tls.config());
    let own = authority.issue(super::certificates::CLIENT);
    let mut client = client(here, authority, Some(&own), &rustls::version::TLS13);
    let is_served = client.write_all(b"x").is_ok() && client.read_exact(&mut [0]).is_ok();
    drop(client);
    let _ = server.join().unwrap();
    is_served
}

#[test]
fn a_reload_replaces_all_files_or_nothing() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let folder = old.folder();
    let tls = open(folder.path());
    assert!(is_trusted(&tls, &old) && !is_trusted(&tls, &new));
    new.write_leaf(folder.path(), "server", SERVER);
    write(folder.path(), "ca-cert.pem", &new.certificate.pem());
    assert!(is_trusted(&tls, &old), "nothing is read before the reload");
    tls.reload().unwrap();
    assert!(!is_trusted(&tls, &old) && is_trusted(&tls, &new));

    let before = tls.config();
    for name in ["server-cert.pem", "server-key.pem", "ca-cert.pem"] {
        let path = folder.path().join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        write(folder.path(), name, "");
        let error = tls.reload().unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        assert!(Arc::ptr_eq(&before, &tls.config()), "the previous configuration stays");
        write(folder.path(), name, &text);
    }
    tls.reload().unwrap();
    assert!(is_trusted(&tls, &new));
}

#[test]
fn a_reload_reads_the_directory_and_those_of_links_in_it() {
    let folder = Authority::new("ours").folder();
    let elsewhere = tempfile::tempdir().unwrap();
    let link = folder.path().join("server-key.pem");
    let target = elsewhere.path().join("1.pem");
    std::fs::copy(&link, &target).unwrap();
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let tls = open(folder.path());
    let mut expected = [folder.path(), elsewhere.path()].map(|path| path.canonicalize().unwrap());
    expected.sort();
    assert_eq!(tls.directories(), expected);
}
