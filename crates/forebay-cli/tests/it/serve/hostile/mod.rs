//! A client that wants to do harm: one test or more for each class of attack that NBD servers have
//! fallen to. After each, another client is served as before, the server has not panicked
//! ([`Server`] looks), and it has as much memory and as many descriptors as it should.
//!
//! - `lengths`: a length that overflows, or precedes an allocation; large but legal requests;
//! - `states`: options in any order; an end after each byte;
//! - `errors`: paths that only errors take, and what they might leak;
//! - `endings`: the server ends while clients come and go;
//! - `stray`: descriptors that nobody asked for;
//! - `floods`: more connections than anybody needs.
//!
//! TLS has tests of its own; that raw means raw stands in `qemu`.

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

/// The most memory that a server may have had, in KiB: what its payloads may take, and as much
/// again. A length that is believed takes gigabytes.
const MEMORY_KIB: u64 = 128 << 10;

/// A server, and a client that behaves, beside those that do not.
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

    /// The one that behaves is served.
    #[track_caller]
    fn is_alive(&mut self, after: &str) {
        let data = self.witness.read(0, 4096);
        assert!(data.is_ok(), "after {after}: {data:?}: {}", self.server.log());
    }

    /// All is as it was.
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

/// Whether options are still in step: a list is answered by a list.
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

/// The data of an option that names an export: the default one, and nothing asked of it.
fn names_default() -> Vec<u8> {
    vec![0; 6]
}

/// The data of an option on contexts: the default export, and one query.
fn queries(query: &[u8]) -> Vec<u8> {
    let mut data = vec![0; 4];
    data.extend(1u32.to_be_bytes());
    data.extend((query.len() as u32).to_be_bytes());
    data.extend(query);
    data
}

/// The framing that a sequence of options leads to.
fn framing_after(options: &[u32]) -> Framing {
    if options.contains(&option::EXTENDED_HEADERS) {
        Framing::Extended
    } else if options.contains(&option::STRUCTURED_REPLY) {
        Framing::Structured
    } else {
        Framing::Simple
    }
}
