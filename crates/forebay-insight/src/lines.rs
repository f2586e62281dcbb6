//! Lines of JSON from the clients of a socket that is for one user.

use crate::own_socket::refused_user;
use serde_json::{Value, json};
use std::os::fd::BorrowedFd;

/// Longest line of a client, bytes.
pub const MAX_LINE_BYTES: usize = 16 << 10;

/// The state of a client.
#[derive(Debug)]
pub struct Lines {
    /// Bytes received and not answered.
    received: Vec<u8>,
    /// The user of a client that is refused.
    refused: Option<u32>,
}

/// The next line of a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// The line is incomplete.
    Partial,
    /// A line, without its end.
    Whole(Vec<u8>),
    /// The last reply to a client that is refused, or has sent too long a line.
    Refused(Vec<u8>),
}

impl Lines {
    /// Returns the state of a new client. Clients of other users are refused.
    pub fn of(socket: BorrowedFd<'_>) -> Lines {
        Lines { received: Vec::new(), refused: refused_user(socket) }
    }

    /// Returns whether the client is refused.
    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Takes bytes of the client, and returns its next line. `what` names the object that other
    /// users may not reach.
    pub fn receive(&mut self, bytes: &[u8], what: &str) -> Line {
        if let Some(uid) = self.refused {
            let error = format!("user {uid} may not access {what}: only its own user and root may");
            return Line::Refused(reply(&json!({ "error": error })));
        }
        self.received.extend_from_slice(bytes);
        match self.received.iter().position(|byte| *byte == b'\n') {
            Some(len) if len <= MAX_LINE_BYTES => {
                let rest = self.received.split_off(len + 1);
                let mut line = std::mem::replace(&mut self.received, rest);
                line.truncate(len);
                Line::Whole(line)
            }
            None if self.received.len() <= MAX_LINE_BYTES => Line::Partial,
            _ => {
                let error = format!("a request is longer than {MAX_LINE_BYTES} bytes");
                Line::Refused(reply(&json!({ "error": error })))
            }
        }
    }
}

/// Returns a reply as a line.
pub fn reply(reply: &Value) -> Vec<u8> {
    let mut text = reply.to_string();
    text.push('\n');
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(refused: Option<u32>) -> Lines {
        Lines { received: Vec::new(), refused }
    }

    #[test]
    fn lines_are_returned_one_by_one_without_their_ends() {
        let mut lines = of(None);
        assert_eq!(lines.receive(b"ab", "it"), Line::Partial);
        assert_eq!(lines.receive(b"c\n\nd\ne", "it"), Line::Whole(b"abc".to_vec()));
        assert_eq!(lines.receive(b"", "it"), Line::Whole(Vec::new()));
        assert_eq!(lines.receive(b"", "it"), Line::Whole(b"d".to_vec()));
        assert_eq!(lines.receive(b"", "it"), Line::Partial);
        assert_eq!(lines.receive(b"f\n", "it"), Line::Whole(b"ef".to_vec()));
    }

    #[test]
    fn other_users_and_long_lines_get_a_last_reply() {
        let Line::Refused(reply) = of(Some(7)).receive(b"{}\n", "this server") else {
            panic!("refused")
        };
        let expected = "{\"error\":\"user 7 may not access this server: only its own user and \
                        root may\"}\n";
        assert_eq!(String::from_utf8(reply).unwrap(), expected);
        for end in ["", "\n"] {
            let long = "x".repeat(MAX_LINE_BYTES + 1) + end;
            assert!(matches!(of(None).receive(long.as_bytes(), "it"), Line::Refused(_)));
        }
    }
}
