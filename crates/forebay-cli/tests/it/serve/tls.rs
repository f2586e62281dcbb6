//! TLS with libnbd's client, which uses GnuTLS: which clients may connect, and that plaintext
//! before TLS is discarded. (`forebay-serve` has tests of TLS itself.)

use super::client::{Client, answer, option};
use super::ctl;
use super::server::Server;
use super::tools::{is_there, run, try_run};
use crate::common::folder;
use std::io::{Read, Write};
use std::net::TcpListener;
use tempfile::TempDir;

/// Error: TLS is required first.
const TLS_REQD: u32 = answer::ERROR | 5;

/// Creates authorities and what they have signed: `pki` for the server, `client` for a client known
/// to the authority, `plain` for a client that only trusts the authority, `other` for one of
/// another authority.
pub(super) fn certificates(folder: &TempDir) {
    let sh = |text: &str| run(folder, "sh", &["-ec", text]);
    sh("mkdir pki client plain other
        for ca in pki other; do
            certtool --generate-privkey --bits=2048 --outfile $ca-key.pem
            printf 'cn = \"%s\"\nca\ncert_signing_key\nexpiration_days = 10\n' $ca > ca.info
            certtool --generate-self-signed --load-privkey $ca-key.pem --template ca.info \
                --outfile $ca/ca-cert.pem
        done 2> log
        cp pki/ca-cert.pem client/
        cp pki/ca-cert.pem plain/
        for who in server client; do
            dir=client; test $who = client || dir=pki
            certtool --generate-privkey --bits=2048 --outfile $dir/$who-key.pem
            printf 'cn = \"localhost\"\ndns_name = \"localhost\"\n' > $who.info
            printf 'tls_www_server\ntls_www_client\n' >> $who.info
            printf 'signing_key\nexpiration_days = 10\n' >> $who.info
            certtool --generate-certificate --load-ca-certificate pki/ca-cert.pem \
                --load-ca-privkey pki-key.pem --load-privkey $dir/$who-key.pem \
                --template $who.info --outfile $dir/$who-cert.pem
        done 2>> log");
}

/// Returns a port that was free a moment ago.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

#[test]
fn tls_admits_only_permitted_clients() {
    let test = "tls_admits_only_permitted_clients";
    if !is_there("nbdcopy", test) || !is_there("certtool", test) {
        return;
    }
    let folder = folder();
    certificates(&folder);
    std::fs::write(folder.path().join("source"), vec![0x3c; 1 << 20]).expect("a file");
    for (args, plain, stranger) in [
        ("--tls=on", true, true),
        ("--tls=require", false, true),
        ("--tls=require --tls-verify-peer", false, false),
    ] {
        let port = free_port();
        let args = format!("ram:1m {args} --tls-certificates=pki --nbd=tcp:127.0.0.1:{port}");
        let server = Server::start(&folder, &args);
        // Over a local socket libnbd checks no certificate, because there is no host name to match.
        let uri = |client: &str, host: &str| {
            let certificates = folder.path().join(client);
            format!("nbds://{host}:{port}/?tls-certificates={}", certificates.display())
        };
        let sees = |uri: &str| {
            let output = try_run(&folder, "nbdinfo", &["--size", uri]);
            output.status.success() && output.stdout.starts_with(b"1048576")
        };
        assert_eq!(sees(&server.uri("")), plain, "{args}: in the clear");
        assert_eq!(sees(&uri("plain", "localhost")), stranger, "{args}: no certificate");
        assert!(!sees(&uri("other", "localhost")), "{args}: another authority");
        assert!(!sees(&uri("client", "127.0.0.1")), "{args}: another name");
        assert!(sees(&uri("client", "localhost")), "{args}: a certificate");
        let uri = uri("client", "localhost");
        run(&folder, "nbdcopy", &["--connections=4", "source", &uri]);
        run(&folder, "nbdcopy", &["--connections=4", &uri, "back"]);
        let back = std::fs::read(folder.path().join("back")).expect("a copy");
        assert!(back == vec![0x3c; 1 << 20], "{args}");
        assert!(server.terminate().success());
    }
}

/// The new certificate is of another authority, so each client trusts only one of the two.
#[test]
fn reloaded_certificate_is_served_to_the_next_client() {
    let test = "reloaded_certificate_is_served_to_the_next_client";
    if !is_there("nbdinfo", test) || !is_there("certtool", test) {
        return;
    }
    let folder = ctl::folder();
    certificates(&folder);
    let port = free_port();
    let args = format!(
        "ram:1m --tls=require --tls-certificates=pki --nbd=tcp:127.0.0.1:{port} \
         --control=run/control"
    );
    let server = Server::start(&folder, &args);
    let trusts = |authority: &str| {
        let certificates = folder.path().join(authority);
        let uri = format!("nbds://localhost:{port}/?tls-certificates={}", certificates.display());
        try_run(&folder, "nbdinfo", &["--size", &uri]).status.success()
    };
    assert!(trusts("plain") && !trusts("other"));
    // A failed reload changes nothing.
    let certificate = folder.path().join("pki/server-cert.pem");
    let old = std::fs::read(&certificate).expect("a certificate");
    std::fs::write(&certificate, "not a certificate").expect("a file");
    let failed = ctl::error(&folder, "reload-certificates");
    assert!(failed.contains("server-cert.pem"), "{failed}");
    assert!(trusts("plain") && !trusts("other"));
    std::fs::write(&certificate, old).expect("a file");
    run(
        &folder,
        "sh",
        &[
            "-ec",
            "certtool --generate-certificate --load-ca-certificate other/ca-cert.pem \
                  --load-ca-privkey other-key.pem --load-privkey pki/server-key.pem \
                  --template server.info --outfile pki/server-cert.pem 2>> log",
        ],
    );
    assert!(trusts("plain"), "the server serves the certificate that it has loaded");
    let reloaded = ctl::ctl(&folder, "--json reload-certificates");
    let reloaded: serde_json::Value = serde_json::from_str(&reloaded).expect("JSON");
    assert!(reloaded["reloaded"].as_str().is_some_and(|dir| dir.ends_with("pki")), "{reloaded}");
    assert!(!trusts("plain") && trusts("other"));
    assert!(server.terminate().success());
}

#[test]
fn required_tls_reveals_nothing_in_plain_text() {
    let test = "required_tls_reveals_nothing_in_plain_text";
    if !is_there("certtool", test) {
        return;
    }
    let folder = folder();
    certificates(&folder);
    let server = Server::start(&folder, "ram:1m --tls=require --tls-certificates=pki");
    let mut client = Client::haggling(server.socket()).expect("a connection");
    for option in (2..=12).chain([99]) {
        if matches!(option, option::ABORT | option::STARTTLS) {
            continue;
        }
        client.option(option, &[0; 6]).expect("it is sent");
        let answer = client.answer().expect("an answer");
        assert_eq!((answer.option, answer.kind), (option, TLS_REQD));
    }
    client.option(option::EXPORT_NAME, &[]).expect("it is sent");
    assert!(client.is_closed(), "it has no other answer");
    // Plaintext sent directly after STARTTLS is not TLS.
    let mut client = Client::haggling(server.socket()).expect("a connection");
    let mut bytes = Vec::new();
    for (option, len) in [(option::STARTTLS, 0u32), (option::LIST, 0), (option::GO, 6)] {
        bytes.extend(super::client::IHAVEOPT.to_be_bytes());
        bytes.extend(option.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes.extend(vec![0; len as usize]);
    }
    client.stream.write_all(&bytes).expect("it is sent");
    let mut said = Vec::new();
    let _ = client.stream.read_to_end(&mut said);
    let nr_answers = said.windows(4).filter(|word| *word == [0, 3, 0xe8, 0x89]).count();
    assert!(nr_answers <= 1, "{nr_answers} answers in the clear");
    assert!(server.terminate().success());
}
