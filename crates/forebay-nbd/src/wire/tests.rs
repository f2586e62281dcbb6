//! Tests of the encoding: written messages can be parsed, and malformed bytes are rejected.

use std::string::String;
use std::vec::Vec;

use proptest::prelude::*;

use super::numbers::*;
use super::*;
use crate::export::Abilities;

/// Returns the bytes that `emit` writes.
fn written(emit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    emit(&mut out);
    out
}

fn string() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..40)
}

/// Returns the header and the data of a whole option.
fn option_data(bytes: &[u8]) -> (u32, &[u8]) {
    let header = OptionHeader::parse(bytes).unwrap();
    let data = &bytes[OptionHeader::LEN..];
    assert_eq!(data.len(), header.len as usize);
    (header.option, data)
}

/// Returns the header and the data of a whole reply to an option.
fn reply_data(bytes: &[u8]) -> (u32, u32, &[u8]) {
    let header = OptionReplyHeader::parse(bytes).unwrap();
    let data = &bytes[OptionReplyHeader::LEN..];
    assert_eq!(data.len(), header.len as usize);
    (header.option, header.kind, data)
}

proptest! {
    #[test]
    fn a_request_is_read_as_it_was_written(
        flags: u16, command: u16, cookie: u64, offset: u64, len: u64,
    ) {
        let wide = RequestHeader { flags, command, cookie, offset, len };
        let bytes = written(|out| wide.emit_extended(out));
        prop_assert_eq!(bytes.len(), RequestHeader::EXTENDED_LEN);
        prop_assert_eq!(RequestHeader::parse_extended(&bytes), Some(wide));
        prop_assert_eq!(RequestHeader::parse_compact(&bytes), None);
        let narrow = RequestHeader { len: len >> 32, ..wide };
        let bytes = written(|out| narrow.emit_compact(out));
        prop_assert_eq!(bytes.len(), RequestHeader::COMPACT_LEN);
        prop_assert_eq!(RequestHeader::parse_compact(&bytes), Some(narrow));
        prop_assert_eq!(RequestHeader::parse_extended(&bytes), None);
    }

    #[test]
    fn a_reply_is_read_as_it_was_written(
        error: u32, flags: u16, kind: u16, cookie: u64, offset: u64, len: u64,
    ) {
        let simple = SimpleReply { error, cookie };
        let bytes = written(|out| simple.emit(out));
        prop_assert_eq!(SimpleReply::parse(&bytes), Some(simple));
        prop_assert_eq!(reply_magic(&bytes), Some(SIMPLE_REPLY_MAGIC));
        let chunk = ChunkHeader { flags, kind, cookie, offset, len };
        let bytes = written(|out| chunk.emit(Framing::Extended, out));
        prop_assert_eq!(ChunkHeader::parse_extended(&bytes), Some(chunk));
        prop_assert_eq!(reply_magic(&bytes), Some(EXTENDED_REPLY_MAGIC));
        let chunk = ChunkHeader { offset: 0, len: len >> 32, ..chunk };
        let bytes = written(|out| chunk.emit(Framing::Structured, out));
        prop_assert_eq!(ChunkHeader::parse_structured(&bytes), Some(chunk));
        prop_assert_eq!(reply_magic(&bytes), Some(STRUCTURED_REPLY_MAGIC));
    }

    #[test]
    fn payloads_are_read_as_they_were_written(
        error: u32, message in string(), offset: Option<u64>, at: u64, len in 1..u32::MAX,
    ) {
        let hole = Hole { offset: at, len };
        prop_assert_eq!(Hole::parse(&written(|out| hole.emit(out))), Some(hole));
        let kind = if offset.is_some() { REPLY_ERROR_OFFSET } else { REPLY_ERROR };
        let chunk = ErrorChunk { error, message: &message, offset };
        let bytes = written(|out| chunk.emit(out));
        prop_assert_eq!(bytes.len() as u64, chunk.payload_len());
        prop_assert_eq!(ErrorChunk::parse(kind, &bytes), Some(chunk));
    }

    #[test]
    fn extents_are_read_as_they_were_written(
        context: u32, extents in prop::collection::vec((1..u32::MAX, any::<u32>()), 1..9),
    ) {
        for framing in [Framing::Structured, Framing::Extended] {
            let nr = extents.len() as u32;
            let (kind, len) = StatusChunk::shape(framing, nr);
            let bytes = written(|out| {
                StatusChunk::emit_start(framing, context, nr, out);
                for &(len, flags) in &extents {
                    StatusChunk::emit_extent(framing, u64::from(len), flags, out);
                }
            });
            prop_assert_eq!(bytes.len() as u64, len);
            let chunk = StatusChunk::parse(kind, &bytes).unwrap();
            prop_assert_eq!(chunk.context, context);
            let narrow = chunk.extents.map(|(len, flags)| (len as u32, flags as u32));
            let read: Vec<_> = narrow.collect();
            prop_assert_eq!(&read, &extents);
            for end in 0..bytes.len() {
                let part = StatusChunk::parse(kind, &bytes[..end]);
                prop_assert!(part.is_none() || kind == REPLY_BLOCK_STATUS && end % 8 == 4);
            }
        }
    }

    #[test]
    fn an_option_is_read_as_it_was_written(
        option: u32, name in string(), infos in prop::collection::vec(any::<u16>(), 0..9),
        queries in prop::collection::vec(string(), 0..5),
    ) {
        let bytes = written(|out| OptionHeader::emit_with(option, &name, out));
        prop_assert_eq!(option_data(&bytes), (option, &name[..]));
        let bytes = written(|out| ExportRequest::emit(option, &name, &infos, out));
        let data = option_data(&bytes).1;
        let request = ExportRequest::parse(data).unwrap();
        prop_assert_eq!(request.name, &name);
        prop_assert_eq!(request.infos().collect::<Vec<_>>(), infos);
        for end in 0..data.len() {
            prop_assert!(ExportRequest::parse(&data[..end]).is_none());
        }
        let slices: Vec<_> = queries.iter().map(|query| &query[..]).collect();
        let bytes = written(|out| ContextRequest::emit(option, &name, &slices, out));
        let data = option_data(&bytes).1;
        let request = ContextRequest::parse(data).unwrap();
        prop_assert_eq!(request.name, &name);
        prop_assert_eq!(request.queries().collect::<Vec<_>>(), slices);
        for end in 0..data.len() {
            prop_assert!(ContextRequest::parse(&data[..end]).is_none());
        }
    }

    #[test]
    fn a_reply_to_an_option_is_read_as_it_was_written(
        option: u32, kind: u32, name in string(), description in string(), id: u32,
        size_bytes: u64, flags: u16, sizes: [u32; 3], other in 4..u16::MAX,
    ) {
        let bytes = written(|out| OptionReplyHeader::emit_with(option, kind, &name, out));
        prop_assert_eq!(reply_data(&bytes), (option, kind, &name[..]));
        let entry = ServerEntry { name: &name, description: &description };
        let bytes = written(|out| entry.emit(option, out));
        prop_assert_eq!(reply_data(&bytes).1, REP_SERVER);
        prop_assert_eq!(ServerEntry::parse(reply_data(&bytes).2), Some(entry));
        let context = MetaContext { id, name: &name };
        let bytes = written(|out| context.emit(option, out));
        prop_assert_eq!(reply_data(&bytes).1, REP_META_CONTEXT);
        prop_assert_eq!(MetaContext::parse(reply_data(&bytes).2), Some(context));
        let [min, preferred, max] = sizes;
        for info in [
            Info::Export { size_bytes, flags },
            Info::Name(&name),
            Info::Description(&description),
            Info::BlockSize(BlockSizes { min, preferred, max }),
            Info::Other { kind: other, data: &name },
        ] {
            let bytes = written(|out| info.emit(option, out));
            prop_assert_eq!(reply_data(&bytes).1, REP_INFO);
            prop_assert_eq!(Info::parse(reply_data(&bytes).2), Some(info));
        }
    }

    #[test]
    fn abilities_survive_their_flags(bits: u16) {
        let can = Abilities::of_flags(bits);
        for framing in [Framing::Simple, Framing::Structured] {
            let told = Abilities::of_flags(can.flags(framing));
            let zeroes = can.write_zeroes && !can.read_only;
            prop_assert_eq!(told, Abilities {
                trim: can.trim && !can.read_only,
                write_zeroes: zeroes,
                fast_zero: can.fast_zero && zeroes,
                ..can
            });
            let has_df = can.flags(framing) & FLAG_SEND_DF != 0;
            prop_assert_eq!(has_df, framing != Framing::Simple);
        }
    }

    #[test]
    fn noise_is_no_message_and_no_panic(
        noise in prop::collection::vec(any::<u8>(), 0..60), kind: u16,
    ) {
        prop_assert_eq!(OptionHeader::parse(&noise), None);
        prop_assert_eq!(OptionReplyHeader::parse(&noise), None);
        prop_assert_eq!(ChunkHeader::parse_extended(&noise), None);
        let _ = ExportRequest::parse(&noise).map(|request| request.infos().count());
        let _ = ContextRequest::parse(&noise).map(|request| request.queries().count());
        let _ = (Info::parse(&noise), ServerEntry::parse(&noise), MetaContext::parse(&noise));
        let _ = (Hole::parse(&noise), ErrorChunk::parse(kind, &noise));
        for kind in [kind, REPLY_BLOCK_STATUS, REPLY_BLOCK_STATUS_EXT] {
            if let Some(chunk) = StatusChunk::parse(kind, &noise) {
                prop_assert!(chunk.extents.count() > 0);
            }
        }
    }
}

#[test]
fn payloads_that_the_document_forbids_are_refused() {
    let hole = |len: u32| written(|out| Hole { offset: 1, len }.emit(out));
    assert!(Hole::parse(&hole(1)).is_some());
    assert!(Hole::parse(&hole(0)).is_none());
    assert!(Hole::parse(&[&hole(1)[..], b"x"].concat()).is_none());
    let status = |len, nr_told: u32| {
        written(|out| {
            StatusChunk::emit_start(Framing::Extended, 1, nr_told, out);
            StatusChunk::emit_extent(Framing::Extended, len, 3, out);
        })
    };
    let parse = |bytes: &[u8]| StatusChunk::parse(REPLY_BLOCK_STATUS_EXT, bytes).is_some();
    assert!(parse(&status(1, 1)) && parse(&status(1, 0)));
    assert!(!parse(&status(1, 2)) && !parse(&status(0, 1)));
    assert!(!parse(&status(1, 1)[..8]), "without an extent");
    assert!(ErrorChunk::parse(REPLY_ERROR, b"\0\0\0\x05\0\x01").is_none(), "without its message");
    assert!(Info::parse(b"\0\0\0\0\0\0\0\0\0\0\0\0\0").is_none(), "a byte too many");
}

#[test]
fn a_message_is_clipped_between_characters() {
    assert_eq!(clip("short"), "short");
    let long: String = core::iter::repeat_n('ä', 3000).collect();
    assert_eq!(clip(&long).len(), 4096);
    assert_eq!(clip(&std::format!("x{long}")).len(), 4095);
}

#[test]
fn every_error_has_a_number_of_its_own() {
    for error in NbdError::ALL {
        assert_eq!(NbdError::from_number(error.number()), error);
    }
    assert_eq!(NbdError::from_number(7), NbdError::Inval);
}

#[test]
fn the_largest_header_fits_in_place() {
    let mut head = Head::EMPTY;
    let header = ChunkHeader { flags: 1, kind: REPLY_OFFSET_DATA, cookie: 2, offset: 3, len: 9 };
    header.emit(Framing::Extended, &mut head);
    head.put_u64(4);
    assert_eq!(head.as_slice().len(), 40);
    assert_eq!(ChunkHeader::parse_extended(head.as_slice()), Some(header));
}
