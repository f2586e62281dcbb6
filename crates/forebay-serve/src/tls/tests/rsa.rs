//! RSA keys of all sizes that tools generate: which ones a server may have, and which ones clients.
//!
//! Each file in `keys/` has a key and a self-signed certificate, valid until 2100. They are fixed,
//! since a key of 8192 bits takes a minute to make, and they protect nothing.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::tls::server_config;

use super::certificates::{Authority, write};
use super::gnutls::{is_there, session};
use super::start_echo;

const WORK: [u32; 3] = [2048, 3072, 4096];
const ALL: [u32; 7] = [2048, 2432, 2560, 3072, 4096, 5120, 8192];

fn pem(bits: u32) -> String {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/tls/tests/keys/rsa-{bits}.pem"));
    std::fs::read_to_string(file).unwrap()
}

/// Returns a server's directory with this key.
fn folder(bits: u32) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "server-cert.pem", &pem(bits));
    write(folder.path(), "server-key.pem", &pem(bits));
    folder
}

#[test]
fn a_server_has_a_key_of_2048_3072_or_4096_bits() {
    for bits in WORK {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let config = server_config(folder(bits).path(), false).unwrap();
            let (here, there) = UnixStream::pair().unwrap();
            let server = start_echo(there.into(), config);
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(pem(bits).as_bytes()).unwrap()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            let name = ServerName::try_from("localhost").unwrap();
            let client = ClientConnection::new(Arc::new(config), name).unwrap();
            let mut client = StreamOwned::new(client, here);
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
            client.conn.send_close_notify();
            client.flush().unwrap();
            drop(client);
            server.join().unwrap().1.unwrap();
        }
    }
}

#[test]
fn a_server_key_of_another_size_is_refused_with_the_sizes_that_work() {
    for bits in ALL.into_iter().filter(|bits| !WORK.contains(bits)) {
        let folder = folder(bits);
        let error = server_config(folder.path(), false).unwrap_err().to_string();
        let file = folder.path().join("server-key.pem");
        let begin = format!("cannot set up TLS: {}: cannot use this key (", file.display());
        assert!(error.starts_with(&begin), "{bits}: {error}");
        let list = "the server needs RSA of 2048, 3072 or 4096 bits, ECDSA on P-256 or P-384, or \
                    Ed25519";
        assert!(error.contains(list), "{bits}: {error}");
    }
}

/// The server only verifies the keys of clients; it does not sign with them.
#[test]
fn a_client_may_have_a_key_of_any_size_from_2048_to_8192_bits() {
    if !is_there("a_client_may_have_a_key_of_any_size_from_2048_to_8192_bits") {
        return;
    }
    let authority = Authority::new("ours");
    for bits in ALL {
        let server = authority.folder();
        write(server.path(), "ca-cert.pem", &pem(bits));
        let client = tempfile::tempdir().unwrap();
        write(client.path(), "ca-cert.pem", &authority.certificate.pem());
        write(client.path(), "own.pem", &pem(bits));
        for version in ["NORMAL:-VERS-ALL:+VERS-TLS1.2", "NORMAL:-VERS-ALL:+VERS-TLS1.3"] {
            let own = ["--x509certfile", "own.pem", "--x509keyfile", "own.pem"];
            let options = [&own[..], &["--priority", version]].concat();
            let folders = (server.path(), client.path());
            let (ok, printed, (_, end)) = session(folders, true, &options);
            assert!(ok, "{bits}: {end:?}: {printed}");
        }
    }
}
