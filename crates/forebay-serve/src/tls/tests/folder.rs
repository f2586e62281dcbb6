//! Incomplete directories: each error names the file.

use crate::tls::server_config;

use super::certificates::{Authority, write};

#[test]
fn missing_or_invalid_file_is_named() {
    let authority = Authority::new("ours");
    let no_text = "";
    let no_pem = "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let bad_key = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n";
    let other_key = authority.issue(super::certificates::SERVER).key.serialize_pem();
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let table = [
        ("server-cert.pem", None, "No such file"),
        ("server-cert.pem", Some(no_text), "no certificate in this file"),
        ("server-cert.pem", Some(no_pem), "not a PEM file"),
        ("server-key.pem", None, "No such file"),
        ("server-key.pem", Some(encrypted), "no unencrypted private key in this file"),
        ("server-key.pem", Some(bad_key), "openssl pkcs8"),
        ("server-cert.pem", Some(broken), "cannot use this certificate"),
        ("ca-cert.pem", None, "No such file"),
        ("ca-cert.pem", Some(broken), "cannot use this certificate"),
        ("ca-crl.pem", Some(no_text), "no revocation list"),
    ];
    for (name, text, reason) in table {
        let folder = authority.folder();
        match text {
            Some(text) => write(folder.path(), name, text),
            None => std::fs::remove_file(folder.path().join(name)).unwrap(),
        }
        let error = server_config(folder.path(), true).unwrap_err().to_string();
        let file = folder.path().join(name);
        assert!(error.starts_with(&format!("cannot set up TLS: {}: ", file.display())), "{error}");
        assert!(error.contains(reason), "{error}");
    }
    let folder = authority.folder();
    write(folder.path(), "server-key.pem", &other_key);
    let error = server_config(folder.path(), false).unwrap_err().to_string();
    assert!(error.contains("does not match the key in server-key.pem"), "{error}");
}

#[test]
fn without_verification_nothing_is_asked_of_the_authority() {
    let folder = Authority::new("ours").folder();
    std::fs::remove_file(folder.path().join("ca-cert.pem")).unwrap();
    server_config(folder.path(), false).unwrap();
}
