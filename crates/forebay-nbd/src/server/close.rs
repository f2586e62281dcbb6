//! Reasons to close a connection.

use core::fmt;

/// Reason why the server closes a connection. The display text is for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client sent ABORT.
    Aborted,
    /// The client set unknown handshake flags.
    ClientFlags(u32),
    /// An option does not begin with its magic number.
    OptionMagic,
    /// The data of an option are too long.
    OptionTooLong {
        /// The option.
        option: u32,
        /// Announced length, bytes.
        len: u32,
    },
    /// The client sent too many options.
    TooManyOptions,
    /// A client without fixed newstyle sent an option other than EXPORT_NAME.
    NotFixedNewstyle(u32),
    /// EXPORT_NAME with an unknown name. The option has no error reply.
    UnknownExport,
    /// EXPORT_NAME while the limit of connections is reached.
    Full,
    /// EXPORT_NAME without TLS, which is required.
    TlsRequired,
    /// EXPORT_NAME after EXTENDED_HEADERS.
    ExportNameExtended,
    /// Bytes were fed between STARTTLS and the start of TLS.
    PlaintextAfterStartTls,
    /// Bytes were fed after the end of the handshake.
    HandshakeIsOver,
    /// A request does not begin with its magic number.
    RequestMagic,
    /// A payload is too long to be skipped.
    PayloadTooLong(u64),
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Aborted => f.write_str("the client aborted the handshake"),
            CloseReason::ClientFlags(flags) => {
                write!(f, "the client set unknown handshake flags {flags:#x}")
            }
            CloseReason::OptionMagic => {
                f.write_str("the client sent no NBD option (wrong magic number)")
            }
            CloseReason::OptionTooLong { option, len } => {
                write!(f, "option {option} has {len} bytes of data, which is too long")
            }
            CloseReason::TooManyOptions => f.write_str("the client sent too many options"),
            CloseReason::NotFixedNewstyle(option) => {
                write!(f, "the client sent option {option} without fixed newstyle")
            }
            CloseReason::UnknownExport => f.write_str("the client asked for an unknown export"),
            CloseReason::Full => f.write_str("the limit of connections is reached"),
            CloseReason::TlsRequired => {
                f.write_str("the client did not use TLS, which is required")
            }
            CloseReason::ExportNameExtended => {
                f.write_str("the client sent EXPORT_NAME after EXTENDED_HEADERS")
            }
            CloseReason::PlaintextAfterStartTls => {
                f.write_str("the client sent plaintext after STARTTLS")
            }
            CloseReason::HandshakeIsOver => {
                f.write_str("bytes were received after the end of the handshake")
            }
            CloseReason::RequestMagic => {
                f.write_str("the client sent no NBD request (wrong magic number)")
            }
            CloseReason::PayloadTooLong(len) => {
                write!(f, "the client announced a payload of {len} bytes, which is too long")
            }
        }
    }
}

impl core::error::Error for CloseReason {}
