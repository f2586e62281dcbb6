//! Names of exports: NBD URIs, and the older form that QEMU has.
//!
//! A URI is `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`, or the same with `nbds`,
//! which insists on TLS. The export's name is the path without its first slash; it may be empty and
//! have slashes of its own. A socket's path that begins with a zero byte (`%00`) is a name of the
//! abstract space. QEMU's older form is `nbd:HOST:PORT` or `nbd:unix:PATH`, and then perhaps
//! `:exportname=EXPORT`, where nothing is encoded.
//!
//! Source: the NBD URI specification of the NetworkBlockDevice project; the keys of TLS as libnbd
//! names them.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

/// The port that is meant where none is named.
pub const PORT: u16 = 10809;

/// The longest name of an export, bytes; so says the protocol of its strings.
const NAME_MAX: usize = 4096;

/// What is encoded in a path, besides what is not ASCII.
const IN_PATH: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`');

/// What is encoded in a value. A `+` is not a blank here, but others may take it for one.
const IN_VALUE: &AsciiSet = &IN_PATH.add(b'&').add(b'=').add(b'+');

/// Where an export is, and what it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// Whether TLS is insisted on (`nbds`).
    pub tls: bool,
    /// Where the server listens.
    pub address: Address,
    /// The name of the export; may be empty, which is the server's default.
    pub export: String,
    /// What is to be known for TLS.
    pub options: TlsOptions,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// At a port of a host.
    Tcp {
        /// A name, or an address (of IPv6 without its brackets).
        host: String,
        /// The port.
        port: u16,
    },
    /// At a socket of this machine: a path, or if it begins with a zero byte an abstract name.
    Unix(Vec<u8>),
}

/// What a URI says of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// `tls-type`: how the peers know each other.
    pub kind: Option<TlsKind>,
    /// `tls-hostname`: the name that the server's certificate must have, if not that of the host.
    pub hostname: Option<String>,
    /// `tls-verify-peer`: whether the server's certificate is checked.
    pub verify_peer: Option<bool>,
    /// `tls-certificates`: the folder of the certificates, a path.
    pub certificates: Option<Vec<u8>>,
}

/// How the peers of a TLS connection know each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsKind {
    /// Not at all.
    Anonymous,
    /// By certificates.
    X509,
    /// By a key that both have.
    Psk,
}

/// Why a text names no export.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UriError {
    /// It begins as no NBD URI does.
    Scheme(String),
    /// Sockets of virtual machines are not supported.
    Vsock,
    /// A part is not as it must be: what it is, and what was expected.
    Part {
        /// Which part, as it was given.
        part: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A key that no NBD URI has, or not with this value.
    UnknownKey(String),
    /// A key that is there more than once.
    Repeated(&'static str),
    /// A key that this kind of URI needs, or does not have.
    Key {
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UriError::Scheme(text) => write!(
                f,
                "`{text}` is no NBD URI: they begin with nbd://, nbds://, nbd+unix:// or \
                 nbds+unix://"
            ),
            UriError::Vsock => f.write_str(
                "sockets of virtual machines (nbd+vsock) are not supported: use nbd:// or \
                 nbd+unix://",
            ),
            UriError::Part { part, expected } => write!(f, "`{part}`: expected {expected}"),
            UriError::UnknownKey(key) => {
                write!(f, "`{key}` is no key of an NBD URI: there are {}", Uri::KEYS.join(", "))
            }
            UriError::Repeated(key) => write!(f, "`{key}` is there more than once"),
            UriError::Key { key, problem } => write!(f, "`{key}` {problem}"),
        }
    }
}

impl core::error::Error for UriError {}

impl Uri {
    /// All keys that a URI may have.
    pub const KEYS: [&'static str; 5] =
        ["socket", "tls-type", "tls-hostname", "tls-verify-peer", "tls-certificates"];

    /// Parses a URI or QEMU's older form.
    ///
    /// # Errors
    /// What is wrong with it, and what it should be.
    pub fn parse(text: &str) -> Result<Uri, UriError> {
        let (place, query) = match is_legacy(text) {
            true => (text, ""),
            false => text.split_once('?').unwrap_or((text, "")),
        };
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Uri::from_parts(place, pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))))
    }

    /// As [`Uri::parse`], of what is before the `?` and the keys behind it, as they stand there:
    /// for those who have keys of their own beside them.
    ///
    /// # Errors
    /// As [`Uri::parse`].
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
                "no user's name: keys that both peers have (PSK) are not \
                 supported; certificates are",
            ));
        }
        let address = match (scheme.is_unix, given.socket) {
            (true, Some(socket)) if authority.is_empty() => Address::Unix(socket),
            (true, Some(_)) => {
                return Err(part(authority, "no host where there is a socket: nbd+unix:///EXPORT"));
            }
            (true, None) => {
                return Err(UriError::Key { key: "socket", problem: "is missing: ?socket=PATH" });
            }
            (false, None) => tcp(authority)?,
            (false, Some(_)) => {
                let problem = "goes with nbd+unix:// and nbds+unix://";
                return Err(UriError::Key { key: "socket", problem });
            }
        };
        let export = name(decoded_text(path)?)?;
        Ok(Uri { tls: scheme.tls, address, export, options: given.options })
    }

    /// Whether a key belongs to a URI. No key of the layer's is called so: these have a hyphen or
    /// are `socket`.
    pub fn is_key(key: &str) -> bool {
        key == "socket" || key.starts_with("tls-") || key.starts_with("x-")
    }

    /// Whether a text is meant to name an export: its scheme is that of NBD.
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
    /// As it stands in a URI.
    pub fn name(self) -> &'static str {
        match self {
            TlsKind::Anonymous => "anon",
            TlsKind::X509 => "x509",
            TlsKind::Psk => "psk",
        }
    }
}

/// What the keys say.
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

/// What a scheme says.
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

/// Whether it is the older form, which has a scheme and no slashes behind it.
fn is_legacy(text: &str) -> bool {
    text.strip_prefix("nbd:").is_some_and(|rest| !rest.starts_with("//"))
}

fn legacy(text: &str, given: Given) -> Result<Uri, UriError> {
    let rest = text.strip_prefix("nbd:").unwrap_or(text);
    if given.socket.is_some() {
        return Err(UriError::Key { key: "socket", problem: "goes with nbd+unix://" });
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

/// Where a host is; the machine itself where none is named.
fn tcp(authority: &str) -> Result<Address, UriError> {
    let (host, port) = host_and_port(authority)?;
    let host = if host.is_empty() { String::from("localhost") } else { decoded_text(&host)? };
    Ok(Address::Tcp { host: checked(host)?, port: port.unwrap_or(PORT) })
}

/// A host's name or address. Nothing in it means something in a URI.
fn checked(host: String) -> Result<String, UriError> {
    let is_odd = |char: char| char.is_whitespace() || char.is_control() || "/?#@[]%".contains(char);
    let is_address = host.parse::<core::net::Ipv6Addr>().is_ok();
    match host.contains(is_odd) || host.contains(':') && !is_address {
        true => Err(part(&host, "the name or the address of a host")),
        false => Ok(host),
    }
}

fn host_and_port(authority: &str) -> Result<(String, Option<u16>), UriError> {
    let bracketed = authority.strip_prefix('[');
    let (host, port) = match bracketed.map(|inner| inner.split_once(']')) {
        Some(Some((host, ""))) => (host, None),
        Some(Some((host, rest))) => match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None => return Err(part(authority, "a port behind the address: [ADDRESS]:PORT")),
        },
        Some(None) => return Err(part(authority, "a `]` behind the address")),
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if bracketed.is_some() && host.parse::<core::net::Ipv6Addr>().is_err() {
        return Err(part(authority, "an address of IPv6 between [ and ]"));
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

/// Bytes that are written with `%XX`.
fn decoded(text: &str) -> Result<Vec<u8>, UriError> {
    for behind in text.split('%').skip(1) {
        let mut digits = behind.bytes();
        let is_digit = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_hexdigit());
        if !(is_digit(digits.next()) && is_digit(digits.next())) {
            return Err(part(text, "two digits of base 16 behind each %; % itself is %25"));
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
