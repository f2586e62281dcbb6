//! Verification of certificates on both sides.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::tls::server_config;
use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use super::certificates::{Authority, CLIENT, For, Leaf, SERVER, write};
use super::{Echoed, start_echo};

pub(super) type Client = StreamOwned<ClientConnection, UnixStream>;

pub(super) fn client(
    socket: UnixStream,
    trusted: &Authority,
    own: Option<&Leaf>,
    version: &'static SupportedProtocolVersion,
) -> Client {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.certificate.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    let config = match own.map(Leaf::der) {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket)
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

/// Sends a greeting and its echo. Returns the results at the client and at the server.
fn greet(
    folder: &std::path::Path,
    verify_peer: bool,
    trusted: &Authority,
    own: Option<&Leaf>,
    version: &'static SupportedProtocolVersion,
) -> (std::io::Result<()>, Echoed) {
    let config = server_config(folder, verify_peer).unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    let server = start_echo(there.into(), config);
    let mut client = client(here, trusted, own, version);
    let mut greet = || {
        let mut answer = [0; 5];
        client.write_all(b"hello")?;
        client.read_exact(&mut answer)?;
        assert_eq!(&answer, b"hello");
        client.conn.send_close_notify();
        client.flush()
    };
    let result = greet();
    drop(client);
    (result, server.join().unwrap())
}

#[test]
fn a_client_that_trusts_the_authority_is_served_by_both_versions() {
    let authority = Authority::new("ours");
    let folder = authority.folder();
    for version in VERSIONS {
        let (client, (echoed, end)) = greet(folder.path(), false, &authority, None, version);
        client.unwrap();
        end.unwrap();
        assert_eq!(echoed, 5);
    }
}

#[test]
fn client_of_another_authority_leaves_and_the_reason_is_logged() {
    let folder = Authority::new("ours").folder();
    for version in VERSIONS {
        let theirs = Authority::new("theirs");
        let (client, (echoed, end)) = greet(folder.path(), false, &theirs, None, version);
        client.unwrap_err();
        let end = end.unwrap_err();
        assert!(end.to_string().contains("UnknownCA"), "{end}");
        assert_eq!(echoed, 0);
    }
}

#[test]
fn a_server_whose_certificate_has_expired_is_left() {
    let authority = Authority::new("ours");
    let folder = authority.folder();
    authority.write_leaf(folder.path(), "server", For { last_year: 2001, ..SERVER });
    for version in VERSIONS {
        let (client, (_, end)) = greet(folder.path(), false, &authority, None, version);
        assert!(client.unwrap_err().to_string().contains("expired"));
        end.unwrap_err();
    }
}

#[test]
fn with_verification_only_clients_with_a_valid_certificate_are_served() {
    let authority = Authority::new("ours");
    let folder = authority.folder();
    let known = authority.issue(CLIENT);
    let unknown = Authority::new("theirs").issue(CLIENT);
    let expired = authority.issue(For { last_year: 2001, ..CLIENT });
    let wrong_use = authority.issue(SERVER);
    for version in VERSIONS {
        let greet = |own| greet(folder.path(), true, &authority, own, version);
        let (client, (echoed, end)) = greet(Some(&known));
        client.unwrap();
        end.unwrap();
        assert_eq!(echoed, 5);
        for own in [None, Some(&unknown), Some(&expired), Some(&wrong_use)] {
            let (client, (echoed, end)) = greet(own);
            client.unwrap_err();
            assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::InvalidData);
            assert_eq!(echoed, 0, "no plaintext was taken for data");
        }
    }
}

#[test]
fn a_client_whose_certificate_was_revoked_is_refused_and_others_are_not() {
    let authority = Authority::new("ours");
    let folder = authority.folder();
    write(folder.path(), "ca-crl.pem", &authority.revoke(7));
    let revoked = authority.issue(For { serial: 7, ..CLIENT });
    let other = authority.issue(For { serial: 8, ..CLIENT });
    let version = &rustls::version::TLS13;
    let (client, (_, end)) = greet(folder.path(), true, &authority, Some(&revoked), version);
    client.unwrap_err();
    assert!(end.unwrap_err().to_string().contains("Revoked"));
    let (client, (_, end)) = greet(folder.path(), true, &authority, Some(&other), version);
    client.unwrap();
    end.unwrap();
}
