//! Unit tests of `pool`.

use super::*;

type Buf = Box<[u8]>;

fn limits(memory_bytes: Option<usize>, connections: usize, threads: usize) -> Capacity {
    Capacity { memory_bytes, connections, threads }
}

fn allocate(len: usize) -> Buf {
    vec![0; len].into()
}

fn pool(memory_bytes: usize, connections: usize) -> Pool<Buf> {
    let budget = Budget::new(&limits(Some(memory_bytes), connections, 1), 512).unwrap();
    Pool::new(budget, allocate)
}

#[test]
fn memory_for_a_piece_per_client_is_needed_at_each_worker() {
    for (connections, threads, block, needed) in [
        (100, 1, 512, 1 << 20),
        (100, 4, 4096, 4 << 20),
        (1000, 1, 512, 1000 * 8192),
        (1000, 3, 1, 3000 * 8192),
        (100, 2, 1 << 16, 2 * 100 * (128 << 10)),
    ] {
        let of = |memory| Budget::new(&limits(memory, connections, threads), block);
        of(Some(needed)).unwrap();
        let Err(TooLittleMemory { needed: told, .. }) = of(Some(needed - 1)) else {
            panic!("{needed} is too much")
        };
        assert_eq!(told, needed);
        // Without `memory_bytes` there is always enough.
        let raised = of(None).unwrap().raised_bytes(&limits(None, connections, threads));
        assert_eq!(raised, (needed > MEMORY_BYTES).then_some(needed));
    }
    let many = limits(None, 5000, 2);
    let raised = Budget::new(&many, 512).unwrap().raised_bytes(&many);
    assert_eq!(raised, Some(2 * 5000 * 8192));
    Budget::new(&limits(Some(usize::MAX), usize::MAX, usize::MAX), 512).unwrap();
}

/// All other clients are greedy, and the memory is the least that is accepted.
#[test]
fn each_client_gets_memory_beside_any_others() {
    for (nr_clients, block) in [(1, 512), (200, 512), (300, 4096), (50, 1 << 16)] {
        let needed = (2 * PIECE_MIN.max(block) * nr_clients).max(1 << 20);
        let limits = limits(Some(needed), nr_clients, 1);
        let mut pool = Pool::new(Budget::new(&limits, block as u32).unwrap(), allocate);
        let mut clients: Vec<_> = (0..nr_clients).map(|_| Held::default()).collect();
        let (last, others) = clients.split_last_mut().unwrap();
        let mut taken = Vec::new();
        for held in others {
            let all = take_all(&mut pool, held);
            assert!(!all.is_empty() && all.iter().all(|buf| buf.len() >= block));
            taken.push(all);
        }
        let buf = pool.take(block, last).expect("its share");
        assert!(buf.len() >= block, "{} bytes for a block of {block}", buf.len());
    }
}

#[test]
fn a_shortage_is_noted_where_others_have_the_memory() {
    let mut pool = pool(16 << 20, 2);
    let (mut one, mut other) = (Held::default(), Held::default());
    let all = take_all(&mut pool, &mut one);
    assert!(!pool.take_shortage(), "it has all that one client may have");
    all.into_iter().for_each(|buf| pool.give(buf, &mut one));
    let mut pool = super::tests::pool(1 << 20, 100);
    let _one = take_all(&mut pool, &mut one);
    let _other = take_all(&mut pool, &mut other);
    assert!(pool.take_shortage());
    assert!(!pool.take_shortage());
}

#[test]
fn a_piece_is_as_large_as_asked_for_up_to_the_largest() {
    let mut pool = pool(8 << 20, 1);
    let held = &mut Held::default();
    assert_eq!(pool.take(1, held).unwrap().len(), PIECE_MIN);
    assert_eq!(pool.take(4097, held).unwrap().len(), 8192);
    assert_eq!(pool.take(PIECE_MAX, held).unwrap().len(), PIECE_MAX);
    assert_eq!(pool.take(32 << 20, held).unwrap().len(), PIECE_MAX);
}

/// Takes all that a client can get.
fn take_all(pool: &mut Pool<Buf>, held: &mut Held) -> Vec<Buf> {
    std::iter::from_fn(|| pool.take(PIECE_MAX, held)).collect()
}

#[test]
fn greedy_clients_leave_every_client_a_share() {
    let (budget, nr_clients) = (4 << 20, 50);
    let mut pool = pool(budget, nr_clients);
    let mut clients: Vec<_> = (0..nr_clients).map(|_| (Held::default(), Vec::new())).collect();
    for (held, bufs) in &mut clients {
        bufs.extend(take_all(&mut pool, held));
        assert!(pool.lent_bytes <= budget);
    }
    let least = clients.iter().map(|(held, _)| held.0).min().unwrap();
    assert!(least >= 32 << 10, "the last client got {least} bytes");
    let most = clients.iter().map(|(held, _)| held.0).max().unwrap();
    assert!((1 << 20..=HELD_MAX).contains(&most), "the first client got {most} bytes");
}

/// Clients that connect, take all that they can get, and leave with their I/O in flight.
#[test]
fn gone_clients_with_io_in_flight_leave_the_others_their_shares() {
    let (budget, nr_clients) = (8 << 20, 8);
    let mut pool = pool(budget, nr_clients);
    let nr_open = Arc::default();
    let (_staying, _) = Seat::take(&nr_open);
    let mut staying = Held::default();
    let mut in_flight = Vec::new();
    loop {
        let (seat, nr_before) = Seat::take(&nr_open);
        if nr_before >= nr_clients {
            break; // the server refuses it
        }
        let mut held = Held::default();
        in_flight.extend(take_all(&mut pool, &mut held));
        pool.leave(&mut held, Some(seat));
        let bufs = take_all(&mut pool, &mut staying);
        assert!(staying.0 >= pool.share_bytes, "{} bytes", staying.0);
        assert!(pool.lent_bytes <= budget);
        bufs.into_iter().for_each(|buf| pool.give(buf, &mut staying));
    }
    assert_eq!(nr_open.load(Ordering::Relaxed), nr_clients);
    let nr_bytes: usize = in_flight.iter().map(|buf| buf.len()).sum();
    assert!(nr_bytes > budget / 2, "refused although {nr_bytes} bytes are in flight");
    // Half of the budget has room for what is in flight then.
    let mut left = nr_bytes;
    for buf in in_flight {
        left -= buf.len();
        pool.give_gone(buf);
        let nr_kept = nr_open.load(Ordering::Relaxed) - 1;
        let beside = left.saturating_sub(budget / 2);
        assert_eq!(nr_kept, beside.div_ceil(pool.share_bytes), "{left} bytes in flight");
    }
    assert!(pool.is_whole());
}

#[test]
fn the_budget_is_never_exceeded_and_everything_comes_back() {
    let mut pool = pool(1 << 20, 2);
    for len in [4096, 65536, 1, 262_144, 9000] {
        let mut helds = [Held::default(), Held::default()];
        let mut lent: Vec<Vec<Buf>> = Vec::new();
        for held in &mut helds {
            lent.push(std::iter::from_fn(|| pool.take(len, held)).collect());
            assert!(pool.lent_bytes + pool.kept_bytes <= 1 << 20);
        }
        assert!(pool.lent_bytes > 1 << 19);
        let mut lent = lent.into_iter();
        lent.next().unwrap().into_iter().for_each(|buf| pool.give(buf, &mut helds[0]));
        pool.leave(&mut helds[1], None); // the client is gone, and its I/O is still in flight
        lent.next().unwrap().into_iter().for_each(|buf| pool.give_gone(buf));
        assert_eq!((pool.lent_bytes, pool.beyond_bytes), (0, 0));
    }
    pool.trim();
    assert!(!pool.keeps_any());
}
