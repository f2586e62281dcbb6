//! Valid and invalid URIs, and their error messages.

use super::*;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;

fn tcp(host: &str, port: u16, export: &str) -> Uri {
    let address = Address::Tcp { host: host.to_owned(), port };
    Uri { tls: false, address, export: export.to_owned(), options: TlsOptions::default() }
}

fn unix(path: &[u8], export: &str) -> Uri {
    Uri { address: Address::Unix(path.to_vec()), ..tcp("", 0, export) }
}

/// Checks that a text has this meaning, and that its display text has the same.
#[track_caller]
fn check(text: &str, uri: &Uri, shown: &str) {
    assert_eq!(Uri::parse(text).as_ref(), Ok(uri), "{text}");
    assert_eq!(uri.to_string(), shown);
    assert_eq!(Uri::parse(shown).as_ref(), Ok(uri), "{shown}");
}

#[test]
fn uris_name_a_server_and_an_export() {
    check("nbd://host", &tcp("host", PORT, ""), "nbd://host/");
    check("nbd://host/", &tcp("host", PORT, ""), "nbd://host/");
    check("nbd://host:10810/a/b", &tcp("host", 10810, "a/b"), "nbd://host:10810/a/b");
    check("nbd://host//a", &tcp("host", PORT, "/a"), "nbd://host//a");
    check("nbd:///a", &tcp("localhost", PORT, "a"), "nbd://localhost/a");
    check("nbd://[::1]/", &tcp("::1", PORT, ""), "nbd://[::1]/");
    check("nbd://[::1]:99/x", &tcp("::1", 99, "x"), "nbd://[::1]:99/x");
    check("nbd://host:/x", &tcp("host", PORT, "x"), "nbd://host/x");
    check("nbd+unix:///?socket=/a/b", &unix(b"/a/b", ""), "nbd+unix:///?socket=/a/b");
    check("nbd+unix://?socket=nbd.sock", &unix(b"nbd.sock", ""), "nbd+unix:///?socket=nbd.sock");
    let abstract_name = unix(b"\0name", "x");
    check("nbd+unix:///x?socket=%00name", &abstract_name, "nbd+unix:///x?socket=%00name");
    let odd = unix("/a b&c=d+é".as_bytes(), "e f?g#h%");
    let shown = "nbd+unix:///e%20f%3Fg%23h%25?socket=/a%20b%26c%3Dd%2B%C3%A9";
    check(shown, &odd, shown);
    check("nbd+unix:///?socket=%ff", &unix(b"\xff", ""), "nbd+unix:///?socket=%FF");
}

#[test]
fn tls_has_its_keys() {
    let text = "nbds://host/x?tls-type=x509&tls-hostname=a.b&tls-verify-peer=false\
                &tls-certificates=/etc/pki";
    let options = TlsOptions {
        kind: Some(TlsKind::X509),
        hostname: Some("a.b".to_owned()),
        verify_peer: Some(false),
        certificates: Some(b"/etc/pki".to_vec()),
    };
    check(text, &Uri { tls: true, options, ..tcp("host", PORT, "x") }, text);
    let plain = Uri { tls: true, ..unix(b"/s", "") };
    check("nbds+unix:///?socket=/s", &plain, "nbds+unix:///?socket=/s");
}

#[test]
fn the_older_form_is_understood() {
    check("nbd:unix:/a b:c", &unix(b"/a b:c", ""), "nbd+unix:///?socket=/a%20b:c");
    check("nbd:unix:/a:exportname=x:y?z", &unix(b"/a", "x:y?z"), "nbd+unix:///x:y%3Fz?socket=/a");
    check("nbd:host:99", &tcp("host", 99, ""), "nbd://host:99/");
    check("nbd:[::1]:99:exportname=x", &tcp("::1", 99, "x"), "nbd://[::1]:99/x");
}

#[test]
fn malformed_uris_are_refused_with_the_expected_form() {
    let cases = [
        ("disk.img", "`disk.img` is not an NBD URI: it must begin with nbd://"),
        ("http://host/", "`http://host/` is not an NBD URI"),
        ("nbd+ssh://host/", "`nbd+ssh://host/` is not an NBD URI"),
        ("nbd+vsock://1/", "sockets of virtual machines (nbd+vsock) are not supported"),
        ("nbds+vsock://1/", "sockets of virtual machines (nbd+vsock) are not supported"),
        ("nbd+unix:///x", "`socket` is missing: ?socket=PATH"),
        ("nbd+unix:///x?socket=", "`socket` is empty"),
        ("nbd+unix://host/x?socket=/a", "`host`: expected no host beside a socket"),
        ("nbd://host/x?socket=/a", "`socket` is only allowed with nbd+unix:// and nbds+unix://"),
        ("nbd+unix:///x?socket=/a&socket=/b", "`socket` is given more than once"),
        ("nbd://host/x?y=z", "`y` is not a key of an NBD URI: use socket, tls-type"),
        ("nbd://host/x?x-y=z", "`x-y` is not a key of an NBD URI"),
        ("nbd://host/x?tls-username=z", "`tls-username` is not a key of an NBD URI"),
        ("nbd://host/x?tls-type=z", "`z`: expected anon, x509 or psk for tls-type"),
        ("nbd://host/x?tls-verify-peer", "``: expected true or false for tls-verify-peer"),
        ("nbd://host:x/", "`host:x`: expected a port of 1 to 65535"),
        ("nbd://host:0/", "`host:0`: expected a port of 1 to 65535"),
        ("nbd://host:+1/", "`host:+1`: expected a port of 1 to 65535"),
        ("nbd://::1/", "`::1`: expected a port of 1 to 65535; [ ] around an IPv6 address"),
        ("nbd://[::1/", "`[::1`: expected a `]` after the address"),
        ("nbd://[::1]9/", "`[::1]9`: expected a port after the address: [ADDRESS]:PORT"),
        ("nbd://[x]/", "`[x]`: expected an IPv6 address between [ and ]"),
        ("nbd://me@host/", "`me@host`: expected no user name"),
        ("nbd://host/a#b", "`host/a#b`: expected no `#`: write it %23"),
        ("nbd://host/%", "`%`: expected two hexadecimal digits after each %"),
        ("nbd://host/%2", "`%2`: expected two hexadecimal digits after each %"),
        ("nbd://host/%zz", "`%zz`: expected two hexadecimal digits after each %"),
        ("nbd://host/%ff", "`%ff`: expected UTF-8"),
        ("nbd://host/a%00", "`the name of the export`: expected no zero byte"),
        ("nbd:host", "`host`: expected nbd:HOST:PORT, nbd:unix:PATH, or a URI"),
        ("nbd::9", "`:9`: expected nbd:HOST:PORT"),
        ("nbd:/host:9", "`/host`: expected a host name or an IP address"),
        ("nbd://a%2Fb/", "`a/b`: expected a host name or an IP address"),
        ("nbd://a%3A9/", "`a:9`: expected a host name or an IP address"),
        ("nbd:unix:", "`unix:`: expected a path"),
    ];
    for (text, said) in cases {
        let error = Uri::parse(text).expect_err(text).to_string();
        assert!(error.starts_with(said), "{text}: {error}");
    }
    let long = format!("nbd://host/{}", "x".repeat(4097));
    assert!(Uri::parse(&long).is_err(), "the protocol has no such names");
    assert!(Uri::parse(long.split_at(long.len() - 1).0).is_ok());
}

#[test]
fn keys_of_other_programs_are_distinguished() {
    for key in ["socket", "tls-type", "tls-unheard-of", "x-y"] {
        assert!(Uri::is_key(key), "{key}");
    }
    for key in ["queue_depth", "plug", "fua"] {
        assert!(!Uri::is_key(key), "{key}");
    }
    for text in ["nbd:x", "nbd://", "nbds://", "nbd+unix://", "nbds+unix:", "nbd+vsock://"] {
        assert!(Uri::is_meant(text), "{text}");
    }
    for text in ["nbd", "nbdx:", "ram:1M", "/nbd:x", ""] {
        assert!(!Uri::is_meant(text), "{text}");
    }
}

#[test]
fn no_text_panics_and_accepted_text_is_shown_again() {
    let pieces = [
        "nbd",
        "s",
        "+unix",
        ":",
        "//",
        "/",
        "?",
        "socket=",
        "%",
        "00",
        "[",
        "]",
        "::1",
        "@",
        "#",
        "&",
        "tls-type=psk",
        "exportname=",
        "é",
        "9",
        "unix:",
    ];
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize
    };
    let mut nr_good = 0;
    for _ in 0..100_000 {
        let mut text = vec!["nbd", "nbd://", "nbd+unix:///?socket=", ""][next() % 4].to_owned();
        for _ in 0..next() % 8 {
            text.push_str(pieces[next() % pieces.len()]);
        }
        if let Ok(uri) = Uri::parse(&text) {
            nr_good += 1;
            assert_eq!(Uri::parse(&uri.to_string()), Ok(uri), "{text}");
        }
    }
    assert!(nr_good > 1000, "{nr_good}");
}
