//! Why a connection has to be closed.

use core::fmt;

/// Why a connection has to be closed at once, as a line for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client gave up, with ABORT.
    Aborted,
    /// The client set handshake flags that were not offered.
    ClientFlags(u32),
    /// Something else stands where an option must begin.
    OptionMagic,
    /// An option whose data are longer than anybody needs.
    OptionTooLong {
        /// Which option.
        option: u32,
        /// How many bytes of data it announced.
        len: u32,
    },
    /// More options than anybody needs.
    TooManyOptions,
    /// A client without fixed newstyle sent another option than EXPORT_NAME.
    NotFixedNewstyle(u32),
    /// EXPORT_NAME, whose refusal cannot be told, of an export that is not there.
    UnknownExport,
    /// EXPORT_NAME, where nobody is let in any more.
    Full,
    /// EXPORT_NAME without TLS, where that is required.
    TlsRequired,
    /// EXPORT_NAME after extended headers were agreed on.
    ExportNameExtended,
    /// Bytes were fed between STARTTLS and the start of TLS.
    PlaintextAfterStartTls,
    /// Bytes were fed after the end of the handshake.
    HandshakeIsOver,
    /// Something else stands where a request must begin.
    RequestMagic,
    /// A payload that is too large to skip.
    PayloadTooLong(u64),
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Aborted => f.write_str("the client gave up in the handshake"),
            CloseReason::ClientFlags(flags) => {
                write!(f, "the client answered the greeting with unknown flags {flags:#x}")
            }
            CloseReason::OptionMagic => f.write_str("the client does not speak NBD: no option"),
            CloseReason::OptionTooLong { option, len } => {
                write!(f, "option {option} announced {len} bytes of data, which is too much")
            }
            CloseReason::TooManyOptions => f.write_str("the client sent too many options"),
            CloseReason::NotFixedNewstyle(option) => {
                write!(f, "the client sent option {option} without fixed newstyle")
            }
            CloseReason::UnknownExport => f.write_str("the client asked for an unknown export"),
            CloseReason::Full => f.write_str("there are as many connections as there may be"),
            CloseReason::TlsRequired => {
                f.write_str("the client asked for an export without TLS, which is required")
            }
            CloseReason::ExportNameExtended => {
                f.write_str("the client sent EXPORT_NAME after EXTENDED_HEADERS")
            }
            CloseReason::PlaintextAfterStartTls => {
                f.write_str("the client sent plaintext after STARTTLS")
            }
            CloseReason::HandshakeIsOver => f.write_str("the handshake was over already"),
            CloseReason::RequestMagic => f.write_str("the client is out of step: no request"),
            CloseReason::PayloadTooLong(len) => {
                write!(f, "the client announced a payload of {len} bytes, which is too much")
            }
        }
    }
}

impl core::error::Error for CloseReason {}
