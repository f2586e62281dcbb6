//! Addresses to listen at, as a user writes them: `unix:PATH` or `tcp:HOST[:PORT]`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port that is registered for NBD.
pub(super) const NBD_PORT: u16 = 10809;

/// Longest path of a socket, bytes: the size of `sun_path` in `sockaddr_un`, minus the final zero.
const MAX_PATH_BYTES: usize = 107;

/// Address to listen at.
///
/// Sockets in Linux's abstract namespace are refused: they have no permissions, so every process in
/// the same network namespace could connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket file. The processes that may write to it may connect; the umask decides.
    Unix(PathBuf),
    /// A TCP port.
    Tcp {
        /// Host name or IP address, without brackets.
        host: String,
        /// Port; 0: the kernel chooses one.
        port: u16,
    },
}

/// Error of parsing an [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot listen at `{text}`: {reason}")]
pub struct AddressError {
    text: String,
    reason: &'static str,
}

impl Address {
    /// Parses an address. `default_port` is for a text without a port, `default_host` for one
    /// without a host; `None`: the text must have a host.
    ///
    /// # Errors
    /// Returns an error if `text` is neither `unix:PATH` nor `tcp:HOST[:PORT]`.
    pub fn parse(
        text: &str,
        default_host: Option<&str>,
        default_port: u16,
    ) -> Result<Address, AddressError> {
        let parsed = if let Some(path) = text.strip_prefix("unix:") {
            unix(path)
        } else if let Some(rest) = text.strip_prefix("tcp:") {
            tcp(rest, default_host, default_port)
        } else {
            Err("an address begins with `unix:` or `tcp:`")
        };
        parsed.map_err(|reason| AddressError { text: text.to_owned(), reason })
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        Address::parse(text, None, NBD_PORT)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

fn unix(path: &str) -> Result<Address, &'static str> {
    if path.is_empty() {
        return Err("the path of the socket is missing: write `unix:/run/forebay.sock`");
    }
    if path.starts_with('@') || path.contains('\0') {
        return Err(
            "abstract sockets are not supported, since every process may connect to them; \
             for a file whose name begins with `@` write `unix:./@...`",
        );
    }
    if path.ends_with('/') {
        return Err("this is a directory: add the name of the socket");
    }
    if path.len() > MAX_PATH_BYTES {
        return Err("the path of a socket has at most 107 bytes: use a shorter or a relative one");
    }
    Ok(Address::Unix(path.into()))
}

fn tcp(rest: &str, default_host: Option<&str>, default: u16) -> Result<Address, &'static str> {
    let (host, port) = match rest.strip_prefix('[') {
        Some(inner) => {
            let (host, behind) = inner.split_once(']').ok_or("a closing `]` is missing")?;
            let port = match behind.strip_prefix(':') {
                Some(port) => Some(port),
                None if behind.is_empty() => None,
                None => return Err("only `:PORT` may follow `]`"),
            };
            (host, port)
        }
        None => match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    if port.is_some_and(|port| port.contains(':')) {
        return Err("an IPv6 address is written in brackets: `tcp:[::1]:10809`");
    }
    if !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("this is a port without a host: write `tcp:127.0.0.1:PORT`");
    }
    let host = match (host, default_host) {
        ("", Some(default)) => default,
        ("", None) => {
            return Err("the host is missing: `tcp:127.0.0.1` is this machine alone, \
                 `tcp:0.0.0.0` and `tcp:[::]` are all networks");
        }
        (host, _) => host,
    };
    let port = match port {
        None => default,
        Some(port) if port.starts_with('+') => return Err("the port is not a number"),
        Some(port) => port.parse().map_err(|_| "the port is not a number from 0 to 65535")?,
    };
    Ok(Address::Tcp { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn addresses_are_read_and_written_back() {
        let table = [
            ("unix:/run/x.sock", Address::Unix("/run/x.sock".into()), "unix:/run/x.sock"),
            ("unix:./x", Address::Unix("./x".into()), "unix:./x"),
            ("unix:x:y", Address::Unix("x:y".into()), "unix:x:y"),
            ("tcp:host", tcp("host", 10809), "tcp:host:10809"),
            ("tcp:127.0.0.1:0", tcp("127.0.0.1", 0), "tcp:127.0.0.1:0"),
            ("tcp:[::1]", tcp("::1", 10809), "tcp:[::1]:10809"),
            ("tcp:[::1]:65535", tcp("::1", 65535), "tcp:[::1]:65535"),
        ];
        for (text, address, written) in table {
            assert_eq!(text.parse::<Address>().as_ref(), Ok(&address), "{text}");
            assert_eq!(address.to_string(), written);
            assert_eq!(written.parse(), Ok(address));
        }
        assert_eq!(Address::parse("tcp::9", Some("127.0.0.1"), 1), Ok(tcp("127.0.0.1", 9)));
    }

    #[test]
    fn a_text_that_is_no_address_is_refused_with_a_reason() {
        let long = format!("unix:/{}", "x".repeat(107));
        let table = [
            ("", "begins with"),
            ("/run/x", "begins with"),
            ("unix:", "path of the socket is missing"),
            ("unix:@x", "abstract"),
            ("unix:a\0b", "abstract"),
            ("unix:/run/", "a directory"),
            (&long, "107 bytes"),
            ("tcp:", "host is missing"),
            ("tcp::10809", "host is missing"),
            ("tcp:10809", "a port without a host"),
            ("tcp:::1", "in brackets"),
            ("tcp:::1:10809", "in brackets"),
            ("tcp:[::1", "closing"),
            ("tcp:[::1]x", "only `:PORT`"),
            ("tcp:h:", "not a number from"),
            ("tcp:h:65536", "not a number from"),
            ("tcp:h:-1", "not a number from"),
            ("tcp:h:+1", "not a number"),
        ];
        for (text, part) in table {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
