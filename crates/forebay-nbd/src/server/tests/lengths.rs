//! Every length field of the handshake, with every boundary value.
//!
//! For any value, a connection stores no more than it has received, and no more than its
//! limit.

use std::vec::Vec;

use super::client::{Client, End, option, words};
use crate::server::handshake::{OPTION_MAX, SKIPPED_MAX};
use crate::server::{CloseReason, TlsPolicy};
use crate::wire::numbers::*;
use crate::wire::{OptionHeader, Sink};

/// Returns 0, 1, values around a limit, and values that overflow.
fn borders(max: u32) -> [u32; 7] {
    [0, 1, max - 1, max, max + 1, 1 << 31, u32::MAX]
}

fn header(option: u32, len: u32) -> Vec<u8> {
    let mut out = Vec::new();
    OptionHeader { option, len }.emit(&mut out);
    out
}

#[test]
fn an_announced_length_takes_no_memory() {
    for option in 0..=12 {
        for len in borders(OPTION_MAX).into_iter().chain(borders(SKIPPED_MAX)).chain(borders(4096))
        {
            let mut client = Client::new(TlsPolicy::On);
            client.ask(&header(OPT_STRUCTURED_REPLY, 0));
            let (out, end) = client.send(&header(option, len));
            assert!(client.handshake.held_capacity() < 64);
            assert!(out.len() < 400, "{} bytes", out.len());
            let too_long = if option == OPT_EXPORT_NAME { 4096 } else { SKIPPED_MAX };
            if len > too_long {
                let reason = CloseReason::OptionTooLong { option, len };
                assert_eq!((out, end), (Vec::new(), End::Close(reason)));
            } else if len > 0 {
                assert_eq!((out, end), (Vec::new(), End::More));
            }
        }
    }
}

#[test]
fn data_that_come_slowly_take_no_more_than_the_limit() {
    for option in 2..=12 {
        for len in [OPTION_MAX - 1, OPTION_MAX, OPTION_MAX + 1] {
            let mut client = Client::new(TlsPolicy::On);
            client.ask(&header(OPT_STRUCTURED_REPLY, 0));
            client.ask(&header(option, len));
            for piece in std::vec![0xff; len as usize - 1].chunks(100) {
                assert_eq!(client.send(piece), (Vec::new(), End::More));
                assert!(client.handshake.held_capacity() <= OPTION_MAX as usize);
            }
            let (out, _) = client.send(&[0xff]);
            assert_eq!(words(&out).len(), 1);
            assert_eq!(client.handshake.held_capacity(), 0);
        }
    }
}

#[test]
fn required_tls_stores_nothing_before_it() {
    let mut client = Client::new(TlsPolicy::Require);
    for opt in 2..=12 {
        client.ask(&header(opt, 1000));
        assert_eq!(client.send(&[0; 999]), (Vec::new(), End::More));
        assert_eq!(client.handshake.held_capacity(), 0);
        if opt == OPT_ABORT {
            client = Client::new(TlsPolicy::Require);
        } else {
            assert_eq!(client.ask(&[0]).len(), 1);
        }
    }
}

#[test]
fn names_and_numbers_that_lie_are_malformed() {
    // Returns the data of an option: this length of the name, and then `rest`.
    let name_len = |len: u32, rest: &[u8]| {
        let mut data = Vec::new();
        data.put_u32(len);
        data.put(rest);
        data
    };
    for len in borders(4096) {
        for given in [0, 1, 4, 4095, 4096, 4097] {
            let rest = std::vec![0; given];
            for opt in [OPT_INFO, OPT_GO, OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT] {
                let mut client = Client::new(TlsPolicy::Off);
                client.ask(&option(OPT_STRUCTURED_REPLY, b""));
                let told = client.ask(&option(opt, &name_len(len, &rest)));
                let behind = if opt <= OPT_GO { 2 } else { 4 };
                // All bytes after the name are zero: no infos, no queries, nothing else.
                let fits = len as usize + behind == given;
                let is_named = len > 0;
                let expected = match (fits, is_named) {
                    (true, true) if len > 4096 => "error 9",
                    (true, true) => "error 6",
                    (true, false) => "ack",
                    (false, _) => "error 3",
                };
                assert_eq!(told.last().unwrap(), expected, "{opt} {len} {given}");
            }
        }
    }
}

#[test]
fn numbers_of_infos_and_queries_that_lie_are_malformed() {
    let ask = |option_of_it: u32, data: &[u8]| {
        let mut client = Client::new(TlsPolicy::Off);
        client.ask(&option(OPT_STRUCTURED_REPLY, b""));
        client.ask(&option(option_of_it, data)).pop().unwrap()
    };
    for nr in [0_u16, 1, 99, 100, 101, 1 << 15, u16::MAX] {
        let data = [b"\0\0\0\x01a", &nr.to_be_bytes()[..], &[0; 200]].concat();
        let expected = if nr == 100 { "ack" } else { "error 3" };
        assert_eq!(ask(OPT_INFO, &data), expected);
    }
    for nr in borders(100) {
        // A hundred empty queries.
        let data = [b"\0\0\0\x01a", &nr.to_be_bytes()[..], &[0; 400]].concat();
        let expected = if nr == 100 { "ack" } else { "error 3" };
        for opt in [OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT] {
            assert_eq!(ask(opt, &data), expected);
        }
    }
    for len in borders(4096) {
        let data = [b"\0\0\0\x01a\0\0\0\x01", &len.to_be_bytes()[..], &[b':'; 4096]].concat();
        let expected = if len == 4096 { "ack" } else { "error 3" };
        for opt in [OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT] {
            assert_eq!(ask(opt, &data), expected);
        }
    }
}
