//! Tests of handshakes with a scripted server: each wrong answer is refused with the reason.

use super::config::LEN;
use super::connect::greet;
use super::geometry::Geometry;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

const GET_FEATURES: u32 = 1;
const SET_VRING_NUM: u32 = 8;
const GET_PROTOCOL_FEATURES: u32 = 15;
const GET_QUEUE_NUM: u32 = 17;
const GET_CONFIG: u32 = 24;

/// VERSION_1, PROTOCOL_FEATURES, MQ, SEG_MAX and BLK_SIZE.
const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 12 | 1 << 6 | 1 << 2;

/// MQ, REPLY_ACK and CONFIG.
const PROTOCOL: u64 = 1 | 1 << 3 | 1 << 9;

/// The answers of a server.
#[derive(Clone, Debug)]
struct Answers {
    features: u64,
    protocol: u64,
    nr_queues: u64,
    /// The offset and length that the answer to GET_CONFIG has, and the bytes that follow.
    config_header: [u32; 2],
    config: Vec<u8>,
    /// A message that the server refuses.
    refused: u32,
}

impl Answers {
    fn good() -> Answers {
        let mut config = vec![0; LEN];
        config[..8].copy_from_slice(&2048u64.to_le_bytes());
        // seg_max, blk_size and num_queues.
        (config[12], config[21], config[34]) = (16, 2, 4);
        Answers {
            features: FEATURES,
            protocol: PROTOCOL,
            nr_queues: 4,
            config_header: [0, LEN as u32],
            config,
            refused: 0,
        }
    }

    /// Answers the messages of a client until it hangs up.
    fn serve(&self, mut client: UnixStream) {
        let mut header = [0; 12];
        while client.read_exact(&mut header).is_ok() {
            let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
            let (request, flags, size) = (word(0), word(4), word(8));
            let mut body = vec![0; size as usize];
            client.read_exact(&mut body).expect("the body");
            let payload = match request {
                GET_FEATURES => self.features.to_le_bytes().to_vec(),
                GET_PROTOCOL_FEATURES => self.protocol.to_le_bytes().to_vec(),
                GET_QUEUE_NUM => self.nr_queues.to_le_bytes().to_vec(),
                GET_CONFIG => {
                    let head = [self.config_header[0], self.config_header[1], 0];
                    let head = head.into_iter().flat_map(u32::to_le_bytes);
                    head.chain(self.config.iter().copied()).collect()
                }
                _ if flags & 8 != 0 => u64::from(request == self.refused).to_le_bytes().to_vec(),
                _ => continue,
            };
            // Version 1, and a reply.
            let head = [request, 5, payload.len() as u32];
            let reply: Vec<u8> =
                head.into_iter().flat_map(u32::to_le_bytes).chain(payload).collect();
            if client.write_all(&reply).is_err() {
                return;
            }
        }
    }
}

/// Returns the error of a handshake and of the set-up of two queues, or the number of queues.
fn open(answers: &Answers) -> Result<usize, String> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).expect("a socket");
    thread::scope(|scope| {
        scope.spawn(|| answers.serve(listener.accept().expect("a client").0));
        let greeted = greet(path.to_str().expect("UTF-8"), Duration::from_secs(20));
        let greeted = greeted.map_err(|refusal| refusal.to_string())?;
        let geometry = Geometry::new(&greeted.config, false, 8, None)?;
        greeted.set_up(geometry, 2).map(|connected| connected.queues.len())
    })
}

#[test]
fn good_server_is_accepted_with_and_without_acknowledgements() {
    assert_eq!(open(&Answers::good()), Ok(2));
    let silent = Answers { protocol: PROTOCOL & !8, refused: SET_VRING_NUM, ..Answers::good() };
    assert_eq!(open(&silent), Ok(2), "it cannot refuse a message");
}

#[test]
fn wrong_answers_are_refused_with_the_reason() {
    let good = Answers::good;
    let mut block = good();
    (block.config[20], block.config[21]) = (1, 2);
    let mut large = good();
    large.config[7] = 1;
    let cases = [
        ("does not offer VERSION_1", Answers { features: FEATURES & !(1 << 32), ..good() }),
        ("protocol feature CONFIG", Answers { features: FEATURES & !(1 << 30), ..good() }),
        ("protocol feature CONFIG", Answers { protocol: 1, ..good() }),
        ("the server has no queues", Answers { nr_queues: 0, ..good() }),
        ("GET_QUEUE_NUM failed", Answers { nr_queues: u64::MAX, ..good() }),
        ("GET_CONFIG failed", Answers { config_header: [4, LEN as u32], ..good() }),
        ("GET_CONFIG failed", Answers { config_header: [0, 8], ..good() }),
        ("GET_CONFIG failed", Answers { config_header: [0, 0], ..good() }),
        ("GET_CONFIG failed", Answers { config: vec![0; LEN + 1], ..good() }),
        ("blk_size is 513", block),
        ("capacity is 72057594037929984", large),
        ("SET_MEM_TABLE failed", Answers { refused: 5, ..good() }),
        (
            "has 32 descriptors: try a smaller queue_size",
            Answers { refused: SET_VRING_NUM, ..good() },
        ),
    ];
    for (expected, answers) in cases {
        let error = open(&answers).expect_err(expected);
        assert!(error.contains(expected), "{expected}: {error}");
    }
}
