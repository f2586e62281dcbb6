//! NBD URIs, and the older form of QEMU.
//!
//! A URI is `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`, or the same with `nbds`,
//! which requires TLS. The name of the export is the path without its first slash; it may be empty,
//! and may contain slashes. A socket path that begins with a zero byte (`%00`) is a name in the
//! abstract namespace. QEMU's older form is `nbd:HOST:PORT` or `nbd:unix:PATH`, optionally followed
//! by `:exportname=EXPORT`, without percent-encoding.
//!
//! Source: the NBD URI specification of the NetworkBlockDevice project; the TLS keys as in libnbd.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

/// Port of a URI without one.
pub const PORT: u16 = 10809;

/// Longest name of an export, bytes, as for all strings of the protocol.
const NAME_MAX: usize = 4096;

/// Characters that are encoded in a path, besides those outside of ASCII.
const IN_PATH: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`');

/// Characters that are encoded in a value. Here `+` is not a space, but other parsers may read one.
const IN_VALUE: &AsciiSet = &IN_PATH.add(b'&').add(b'=').add(b'+');

/// Address and name of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// Whether TLS is required (`nbds`).
    pub tls: bool,
    /// Address of the server.
    pub address: Address,
    /// Name of the export; empty for the default export of the server.
    pub export: String,
    /// TLS options.
    pub options: TlsOptions,
}

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP port of a host.
    Tcp {
        /// Host name or IP address; an IPv6 address has no brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// Unix socket: a path, or an abstract name if it begins with a zero byte.
    Unix(Vec<u8>),
}

/// TLS options of a URI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// `tls-type`: kind of authentication.
    pub kind: Option<TlsKind>,
    /// `tls-hostname`: name in the certificate of the server, if it is not that of the host.
    pub hostname: Option<String>,
    /// `tls-verify-peer`: whether the certificate of the server is verified.
    pub verify_peer: Option<bool>,
    /// `tls-certificates`: path of the directory with the certificates.
    pub certificates: Option<Vec<u8>>,
}

/// Kind of authentication of a TLS connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsKind {
    /// None.
    Anonymous,
    /// X.509 certificates.
    X509,
    /// A pre-shared key.
    Psk,
}

/// Error of parsing a [`Uri`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UriError {
    /// The scheme is not one of NBD.
    Scheme(String),
    /// Sockets of virtual machines (vsock) are not supported.
    Vsock,
    /// A part is malformed.
    Part {
        /// The part.
        part: String,
        /// The expected form.
        expected: &'static str,
    },
    /// A key is unknown.
    UnknownKey(String),
    /// A key is given more than once.
    Repeated(&'static str),
    /// A key is missing, or not allowed in this kind of URI.
    Key {
        /// The key.
        key: &'static str,
        /// The problem.
        problem: &'static str,
    },
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UriError::Scheme(text) => write!(
                f,
                "`{text}` is not an NBD URI: it must begin with nbd://, nbds://, nbd+unix:// or \
                 nbds+unix://"
            ),
            UriError::Vsock => f.write_str(
                "sockets of virtual machines (nbd+vsock) are not supported: use nbd:// or \
                 nbd+unix://",
            ),
            UriError::Part { part, expected } => write!(f, "`{part}`: expected {expected}"),
            UriError::UnknownKey(key) => {
                write!(f, "`{key}` is not a key of an NBD URI: use {}", Uri::KEYS.join(", "))
            }
            UriError::Repeated(key) => write!(f, "`{key}` is given more than once"),
            UriError::Key { key, problem } => write!(f, "`{key}` {problem}"),
        }
    }
}

impl core::error::Error for UriError {}

impl Uri {
    /// All keys of a URI.
    pub const KEYS: [&'static str; 5] =
        ["socket", "tls-type", "tls-hostname", "tls-verify-peer", "tls-certificates"];

    /// Parses a URI, or QEMU's older form.
    ///
    /// # Errors
    /// Returns an error that names the malformed part, and the expected form.
    pub fn parse(text: &str) -> Result<Uri, UriError> {
        let (place, query) = match is_legacy(text) {
            true => (text, ""),
            false => text.split_once('?').unwrap_or((text, "")),
        };
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Uri::from_parts(place, pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))))
    }

    /// Parses the part in front of the `?`, and the keys behind it, still percent-encoded: for
    /// callers that have further keys of their own.
    ///
    /// # Errors
    /// Returns the errors of [`Uri::parse`].
    pub fn from_parts<'a>(
        place: &str,
        keys: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Uri, UriError> {
        let given = Given::take(keys)?;
        if is_legacy(place) {
            return legacy(place, given);
        }
        let (scheme, rest) = scheme_of(place)?;
        if rest.contains('#') {
            return Err(part(rest, "no `#`: write it %23"));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return Err(part(
                authority,
                "no user name: pre-shared keys (PSK) are not supported; certificates are",
            ));
        }
        let address = match (scheme.is_unix, given.socket) {
            (true, Some(socket)) if authority.is_empty() => Address::Unix(socket),
            (true, Some(_)) => {
                return Err(part(authority, "no host beside a socket: nbd+unix:///EXPORT"));
            }
            (true, None) => {
                return Err(UriError::Key { key: "socket", problem: "is missing: ?socket=PATH" });
            }
            (false, None) => tcp(authority)?,
            (false, Some(_)) => {
                let problem = "is only allowed with nbd+unix:// and nbds+unix://";
                return Err(UriError::Key { key: "socket", problem });
            }
        };
        let export = name(decoded_text(path)?)?;
        Ok(Uri { tls: scheme.tls, address, export, options: given.options })
    }

    /// Returns whether a key belongs to a URI. Such keys have a hyphen or are `socket`, which no
    /// key of a device spec is.
    pub fn is_key(key: &str) -> bool {
        key == "socket" || key.starts_with("tls-") || key.starts_with("x-")
    }

    /// Returns whether the scheme of a text is one of NBD.
    pub fn is_meant(text: &str) -> bool {
        let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
        matches!(scheme, "nbd" | "nbds")
            || scheme.starts_with("nbd+")
            || scheme.starts_with("nbds+")
    }
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Uri, UriError> {
        Uri::parse(text)
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "nbds" } else { "nbd" })?;
        match &self.address {
            Address::Unix(_) => f.write_str("+unix://")?,
            Address::Tcp { host, port } => {
                match host.contains(':') {
                    true => write!(f, "://[{host}]")?,
                    false => write!(f, "://{}", percent_encode(host.as_bytes(), IN_VALUE))?,
                }
                if *port != PORT {
                    write!(f, ":{port}")?;
                }
            }
        }
        write!(f, "/{}", percent_encode(self.export.as_bytes(), IN_PATH))?;
        let socket = match &self.address {
            Address::Unix(socket) => Some(&**socket),
            Address::Tcp { .. } => None,
        };
        let options = &self.options;
        let kind = options.kind.map(|kind| kind.name().as_bytes());
        let verify = options.verify_peer.map(|verify| if verify { "true" } else { "false" });
        let pairs = [
            ("socket", socket),
            ("tls-type", kind),
            ("tls-hostname", options.hostname.as_deref().map(str::as_bytes)),
            ("tls-verify-peer", verify.map(str::as_bytes)),
            ("tls-certificates", options.certificates.as_deref()),
        ];
        let mut separator = '?';
        for (key, value) in pairs.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            write!(f, "{separator}{key}={}", percent_encode(value, IN_VALUE))?;
            separator = '&';
        }
        Ok(())
    }
}

impl TlsKind {
    /// Returns the value of `tls-type` in a URI.
    pub fn name(self) -> &'static str {
        match self {
            TlsKind::Anonymous => "anon",
            TlsKind::X509 => "x509",
            TlsKind::Psk => "psk",
        }
    }
}

/// Values of the keys.
#[derive(Default)]
struct Given {
    socket: Option<Vec<u8>>,
    options: TlsOptions,
}

impl Given {
    fn take<'a>(keys: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Given, UriError> {
        let mut given = Given::default();
        let options = &mut given.options;
        for (key, value) in keys {
            match key {
                "socket" => {
                    let path = decoded(value)?;
                    if path.is_empty() {
                        return Err(UriError::Key { key: "socket", problem: "is empty" });
                    }
                    put(&mut given.socket, "socket", path)?;
                }
                "tls-type" => put(&mut options.kind, "tls-type", tls_kind(value)?)?,
                "tls-hostname" => put(&mut options.hostname, "tls-hostname", decoded_text(value)?)?,
                "tls-verify-peer" => {
                    put(&mut options.verify_peer, "tls-verify-peer", truth(value)?)?;
                }
                "tls-certificates" => {
                    put(&mut options.certificates, "tls-certificates", decoded(value)?)?;
                }
                _ => return Err(UriError::UnknownKey(key.to_owned())),
            }
        }
        Ok(given)
    }
}

fn put<T>(place: &mut Option<T>, key: &'static str, value: T) -> Result<(), UriError> {
    match place.replace(value) {
        Some(_) => Err(UriError::Repeated(key)),
        None => Ok(()),
    }
}

/// Properties of a scheme.
struct Scheme {
    tls: bool,
    is_unix: bool,
}

fn scheme_of(place: &str) -> Result<(Scheme, &str), UriError> {
    let none = || UriError::Scheme(place.to_owned());
    let (scheme, rest) = place.split_once("://").ok_or_else(none)?;
    let (tls, is_unix) = match scheme {
        "nbd" => (false, false),
        "nbds" => (true, false),
        "nbd+unix" => (false, true),
        "nbds+unix" => (true, true),
        "nbd+vsock" | "nbds+vsock" => return Err(UriError::Vsock),
        _ => return Err(none()),
    };
    Ok((Scheme { tls, is_unix }, rest))
}

/// Returns whether the text has QEMU's older form: a scheme without slashes after it.
fn is_legacy(text: &str) -> bool {
    text.strip_prefix("nbd:").is_some_and(|rest| !rest.starts_with("//"))
}

fn legacy(text: &str, given: Given) -> Result<Uri, UriError> {
    let rest = text.strip_prefix("nbd:").unwrap_or(text);
    if given.socket.is_some() {
        return Err(UriError::Key { key: "socket", problem: "is only allowed with nbd+unix://" });
    }
    let (place, export) = rest.split_once(":exportname=").unwrap_or((rest, ""));
    let address = match place.strip_prefix("unix:") {
        Some("") => return Err(part(rest, "a path: nbd:unix:PATH:exportname=NAME")),
        Some(path) => Address::Unix(path.as_bytes().to_vec()),
        None => match host_and_port(place)? {
            (host, Some(port)) if !host.is_empty() => Address::Tcp { host: checked(host)?, port },
            _ => return Err(part(rest, "nbd:HOST:PORT, nbd:unix:PATH, or a URI: nbd://HOST/NAME")),
        },
    };
    let export = name(export.to_owned())?;
    Ok(Uri { tls: false, address, export, options: given.options })
}

/// Parses a host and a port; an empty host is this machine.
fn tcp(authority: &str) -> Result<Address, UriError> {
    let (host, port) = host_and_port(authority)?;
    let host = if host.is_empty() { String::from("localhost") } else { decoded_text(&host)? };
    Ok(Address::Tcp { host: checked(host)?, port: port.unwrap_or(PORT) })
}

/// Checks the name or the address of a host: it must have no character with a meaning in a URI.
fn checked(host: String) -> Result<String, UriError> {
    let is_odd = |char: char| char.is_whitespace() || char.is_control() || "/?#@[]%".contains(char);
    let is_address = host.parse::<core::net::Ipv6Addr>().is_ok();
    match host.contains(is_odd) || host.contains(':') && !is_address {
        true => Err(part(&host, "a host name or an IP address")),
        false => Ok(host),
    }
}

fn host_and_port(authority: &str) -> Result<(String, Option<u16>), UriError> {
    let bracketed = authority.strip_prefix('[');
    let (host, port) = match bracketed.map(|inner| inner.split_once(']')) {
        Some(Some((host, ""))) => (host, None),
        Some(Some((host, rest))) => match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None => return Err(part(authority, "a port after the address: [ADDRESS]:PORT")),
        },
        Some(None) => return Err(part(authority, "a `]` after the address")),
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if bracketed.is_some() && host.parse::<core::net::Ipv6Addr>().is_err() {
        return Err(part(authority, "an IPv6 address between [ and ]"));
    }
    let port = match port {
        None | Some("") => None,
        Some(digits) => match digits.parse() {
            Ok(port) if port > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(port),
            _ => return Err(part(authority, "a port of 1 to 65535; [ ] around an IPv6 address")),
        },
    };
    Ok((host.to_owned(), port))
}

fn name(export: String) -> Result<String, UriError> {
    if export.len() > NAME_MAX {
        return Err(part("the name of the export", "at most 4096 bytes"));
    }
    match export.contains('\0') {
        true => Err(part("the name of the export", "no zero byte")),
        false => Ok(export),
    }
}

fn tls_kind(value: &str) -> Result<TlsKind, UriError> {
    let all = [TlsKind::Anonymous, TlsKind::X509, TlsKind::Psk];
    let found = all.into_iter().find(|kind| kind.name() == value);
    found.ok_or_else(|| part(value, "anon, x509 or psk for tls-type"))
}

fn truth(value: &str) -> Result<bool, UriError> {
    match value {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(part(value, "true or false for tls-verify-peer")),
    }
}

/// Decodes `%XX`.
fn decoded(text: &str) -> Result<Vec<u8>, UriError> {
    for behind in text.split('%').skip(1) {
        let mut digits = behind.bytes();
        let is_digit = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_hexdigit());
        if !(is_digit(digits.next()) && is_digit(digits.next())) {
            return Err(part(text, "two hexadecimal digits after each %; % itself is %25"));
        }
    }
    Ok(percent_decode_str(text).collect())
}

fn decoded_text(text: &str) -> Result<String, UriError> {
    String::from_utf8(decoded(text)?).map_err(|_| part(text, "UTF-8"))
}

fn part(part: &str, expected: &'static str) -> UriError {
    UriError::Part { part: part.to_owned(), expected }
}

#[cfg(test)]
mod tests;
