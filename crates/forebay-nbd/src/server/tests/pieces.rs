//! Bytes in pieces: the result does not depend on where a stream is cut.

use std::vec::Vec;

use proptest::prelude::*;

use super::client::{Client, End, FLAGS, contexts, go, option, words};
use crate::server::{Next, TlsPolicy};
use crate::wire::numbers::*;

/// Returns a whole handshake with all kinds of options, up to a request, which is not consumed.
fn stream(behind: &[u8]) -> Vec<u8> {
    [
        &FLAGS[..],
        &option(OPT_LIST, b""),
        &option(OPT_LIST, b"data"),
        &option(99, &[1; 300]),
        &option(OPT_GO, &[0; 17000]),
        &option(OPT_STARTTLS, b""),
        &option(OPT_STRUCTURED_REPLY, b""),
        &contexts(OPT_LIST_META_CONTEXT, "a", &["base:", "qemu:"]),
        &contexts(OPT_SET_META_CONTEXT, "b", &[BASE_ALLOCATION]),
        &go(OPT_INFO, "a", &[INFO_NAME, INFO_DESCRIPTION, 9]),
        &go(OPT_GO, "nowhere", &[]),
        &go(OPT_GO, "b", &[INFO_BLOCK_SIZE]),
        behind,
    ]
    .concat()
}

/// Feeds the pieces one after another. Returns the replies, the result, and the bytes consumed.
fn feed(pieces: &[&[u8]]) -> (Vec<u8>, End, usize) {
    let mut client = Client::greeted(TlsPolicy::Off);
    let (mut out, mut taken) = (Vec::new(), 0);
    for piece in pieces {
        let fed = client.handshake.feed(&client.exports, piece, &mut out);
        taken += fed.consumed;
        match fed.next {
            Next::More => assert_eq!(fed.consumed, piece.len()),
            Next::Transmission(transmission) => {
                return (out, End::Transmission(transmission), taken);
            }
            other => panic!("{other:?}"),
        }
    }
    (out, End::More, taken)
}

#[test]
fn a_stream_cut_anywhere_gives_the_same() {
    let all = stream(b"a request");
    let whole = feed(&[&all]);
    assert!(matches!(whole.1, End::Transmission(_)));
    assert_eq!(whole.2, all.len() - 9);
    // All cuts within the skipped data are equivalent.
    let start_of_skipped = 4 + 16 + 20 + 316 + 20;
    let is_told_apart = |at: usize| at < start_of_skipped || at > start_of_skipped + 16_900;
    for cut in (0..all.len()).filter(|&at| is_told_apart(at)) {
        let (first, second) = all.split_at(cut);
        assert_eq!(feed(&[first, second]), whole, "cut at {cut}");
    }
}

#[test]
fn a_stream_that_comes_byte_by_byte_gives_the_same() {
    let all = stream(b"a request");
    let bytes: Vec<_> = all.chunks(1).collect();
    assert_eq!(feed(&bytes), feed(&[&all]));
}

#[test]
fn a_stream_that_ends_anywhere_leaves_a_handshake_that_waits() {
    let all = stream(b"");
    let (out, ..) = feed(&[&all]);
    let nr_words = words(&out).len();
    for end in (0..all.len()).filter(|at| at % 97 == 0 || *at > all.len() - 300) {
        let (so_far, how, taken) = feed(&[&all[..end]]);
        assert_eq!((how, taken), (End::More, end));
        assert!(out.starts_with(&so_far) && words(&so_far).len() < nr_words);
    }
}

proptest! {
    #[test]
    fn a_stream_in_any_pieces_gives_the_same(
        cuts in prop::collection::vec(0_usize..18_000, 0..40),
    ) {
        let all = stream(b"?");
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % all.len()).collect();
        cuts.sort_unstable();
        let mut start = 0;
        let mut pieces = Vec::new();
        for cut in cuts.into_iter().chain([all.len()]) {
            pieces.push(&all[start..cut]);
            start = cut;
        }
        prop_assert_eq!(feed(&pieces), feed(&[&all]));
    }

    /// Any bytes cause no panic, take bounded memory, and give the same result in pieces.
    #[test]
    fn noise_gives_the_same_in_pieces(
        noise in prop::collection::vec(any::<u8>(), 0..300),
        pick in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut all = stream(b"");
        let at = pick.index(all.len());
        all.splice(at..(at + noise.len()).min(all.len()), noise);
        let run = |pieces: &[&[u8]]| {
            let mut client = Client::greeted(TlsPolicy::On);
            let mut out = Vec::new();
            let mut ends = Vec::new();
            for piece in pieces {
                let fed = client.handshake.feed(&client.exports, piece, &mut out);
                assert!(fed.consumed <= piece.len());
                ends.push(std::format!("{:?}", fed.next));
                if !matches!(fed.next, Next::More) {
                    break;
                }
            }
            (out, ends.pop())
        };
        let (first, second) = all.split_at(cut.index(all.len()));
        prop_assert_eq!(run(&[first, second]), run(&[&all]));
    }
}
