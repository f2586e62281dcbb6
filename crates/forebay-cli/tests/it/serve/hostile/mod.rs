//! Hostile clients: at least one test for each class of attack that has worked on an NBD server.
//! After each, another client is served as before, the server has not panicked ([`Server`] checks
//! that), and its memory and descriptors are within bounds.
//!
//! - `lengths`: lengths that overflow or precede an allocation; large but legal requests;
//! - `states`: options in any order; a disconnect after each byte;
//! - `errors`: error paths, and what they might leak;
//! - `endings`: the server exits while clients connect and disconnect;
//! - `stray`: unsolicited descriptors;
//! - `floods`: too many connections.
//!
//! TLS has its own tests; `qemu` tests that raw means raw.

mod endings;
mod errors;
mod floods;
mod lengths;
mod states;
mod stray;

use super::client::{Client, Framing, answer, option};
use super::rude::{await_fds, warmed_up};
use super::server::Server;
use tempfile::TempDir;

/// Upper limit of a server's peak memory, in KiB: twice what its payloads may take. A server that
/// trusts a false length uses gigabytes.
const MEMORY_KIB: u64 = 128 << 10;

/// A server, and a well-behaved client beside the hostile ones.
struct Target {
    server: Server,
    witness: Client,
    nr_fds: usize,
}

impl Target {
    #[track_caller]
    fn start(folder: &TempDir, args: &str) -> Target {
        let server = Server::start(folder, args);
        let nr_fds = warmed_up(&server) + 1;
        let witness = Client::connect(server.socket(), "").expect("a connection");
        Target { server, witness, nr_fds }
    }

    fn haggling(&self) -> Client {
        Client::haggling(self.server.socket()).expect("a connection")
    }

    fn connect(&self) -> Client {
        Client::connect(self.server.socket(), "").expect("a connection")
    }

    /// Checks that the well-behaved client is still served.
    #[track_caller]
    fn is_alive(&mut self, after: &str) {
        let data = self.witness.read(0, 4096);
        assert!(data.is_ok(), "after {after}: {data:?}: {}", self.server.log());
    }

    /// Checks that memory and descriptors are as before, and ends the server.
    #[track_caller]
    fn end(mut self) {
        self.is_alive("all");
        await_fds(&self.server, self.nr_fds);
        let most = self.server.memory_kib("VmHWM");
        assert!(most < MEMORY_KIB, "it had {most} KiB");
        drop(self.witness);
        assert!(self.server.terminate().success());
    }
}

/// Returns whether the options are still in step: a list request gets a list.
fn lists(client: &mut Client) -> bool {
    if client.option(option::LIST, &[]).is_err() {
        return false;
    }
    loop {
        match client.answer() {
            Ok(answer) if answer.option != option::LIST => return false,
            Ok(answer) if answer.kind == answer::ACK => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

/// Returns the data of an option that names the default export, without information requests.
fn names_default() -> Vec<u8> {
    vec![0; 6]
}

/// Returns the data of an option on meta contexts: the default export, and one query.
fn queries(query: &[u8]) -> Vec<u8> {
    let mut data = vec![0; 4];
    data.extend(1u32.to_be_bytes());
    data.extend((query.len() as u32).to_be_bytes());
    data.extend(query);
    data
}

/// Returns the framing that a sequence of options negotiates.
fn framing_after(options: &[u32]) -> Framing {
    if options.contains(&option::EXTENDED_HEADERS) {
        Framing::Extended
    } else if options.contains(&option::STRUCTURED_REPLY) {
        Framing::Structured
    } else {
        Framing::Simple
    }
}
