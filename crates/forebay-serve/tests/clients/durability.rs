//! Writes that are lost, as clients of the server see them.

use crate::client::{Client, FLUSH, WRITE, request};
use crate::server::Running;
use crate::thin_device::ThinDevice;
use forebay_serve::{Limits, ServeError};
use std::io::Write;

const FUA: u16 = 1;
const EIO: u32 = 5;
const PAGE: [u8; 4096] = [0xA5; 4096];

/// Writes a page, and returns the error of the reply.
fn write(client: &mut Client, flags: u16, offset: u64) -> u32 {
    let mut bytes = request(WRITE, flags, 1, offset, PAGE.len() as u32);
    bytes.extend(PAGE);
    client.socket.write_all(&bytes).unwrap();
    client.reply(|_| 0).error
}

#[test]
fn flush_fails_for_all_clients_after_a_fua_write_that_got_the_error_of_an_earlier_write() {
    for fua in ["on", "off"] {
        let Some(device) = ThinDevice::new("flush_fails_for_all_clients_...") else { return };
        let folder = tempfile::tempdir().unwrap();
        let spec = format!("{}?fua={fua}", device.node);
        let mut server = Running::start(folder.path(), &[spec], Limits::default());
        let mut client = Client::new(&server.socket, "0", false);
        let mut other = Client::new(&server.socket, "0", false);
        assert_eq!(write(&mut client, 0, 0), 0);
        device.fail_write_back();
        assert_eq!(write(&mut client, FUA, 1 << 20), EIO);
        assert!(!device.stores(&PAGE, 0), "the first write is lost");
        for client in [&mut client, &mut other] {
            assert_eq!(client.ask(FLUSH, 0, 0), EIO, "fua={fua}");
        }
        let error = server.stop().expect_err("data is lost");
        assert!(matches!(error, ServeError::LastFlush { .. }), "{error}");
    }
}
