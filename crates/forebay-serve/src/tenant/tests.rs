//! Owners of an export and of its clients.

use super::*;
use crate::clients::{ClientAddress, SharedOwner};
use crate::listen::Peer;
use forebay::{Limits, Rate};
use std::net::SocketAddr;

fn tenant(spec: &str) -> (Disk, Arc<Tenant>) {
    let disk = Disk::open(spec).expect("a disk");
    let tenant = Arc::new(Tenant::new(&disk, "a", Priority::default()));
    (disk, tenant)
}

fn iops(per_s: u64, burst: u64) -> Limits {
    let mut limits = Limits::default();
    limits.both.iops = Rate { per_s, burst: Some(burst) };
    limits
}

/// Returns limits of each client, in bytes per second. With 1, minutes pass after an I/O.
fn of_clients(per_s: u64) -> ExportLimits {
    let mut limits = ExportLimits::default();
    limits.client.limits.both.bps = Rate { per_s, burst: Some(0) };
    limits
}

/// Returns the origin of I/O of a client without an owner.
fn origin(tenant: &Tenant) -> Origin {
    tenant.origin_of(&SharedOwner::default())
}

fn connect(tenant: &Arc<Tenant>, id: u64) -> Seat {
    connect_from(tenant, id, Peer::Unix)
}

fn connect_from(tenant: &Arc<Tenant>, id: u64, peer: Peer) -> Seat {
    let address = ClientAddress::from(peer);
    tenant.connect(id, Place { address, peer, submitter: Arc::default() })
}

fn ip(text: &str) -> Peer {
    Peer::Tcp(SocketAddr::new(text.parse().expect("an address"), 5000))
}

/// Returns the names of all owners of a disk without their numbers.
fn names(disk: &Disk) -> Vec<String> {
    let owners = disk.owners();
    let name = |owner: &Owner| owner.name().trim_end_matches(|c: char| c.is_ascii_digit()).into();
    owners.iter().map(name).collect()
}

/// Charges the limits of a client until one refuses. Returns how many I/Os it could start.
fn burst(disk: &Disk, seat: &Seat) -> u64 {
    let mut nr = 0;
    let mut queue = disk.queue();
    loop {
        let io = forebay::Io::read(forebay::Buf::new(512), 0).origin(seat.origin()).nowait();
        queue.submit(io).expect("room");
        let mut done = Vec::new();
        queue.reap(1, 1, &mut done);
        if done[0].result.is_err() {
            return nr;
        }
        nr += 1;
    }
}

#[test]
fn export_is_an_owner_once_it_has_a_limit() {
    let (disk, tenant) = tenant("ram:1M");
    tenant.change_limits(&[]).expect("good limits");
    assert_eq!((origin(&tenant), disk.owners().len()), (Origin::NONE, 0));
    let limits = ExportLimits::from(iops(5, 1));
    tenant.set_limits(&limits).expect("good limits");
    assert_eq!((origin(&tenant).owner(), tenant.limits()), (1, limits));
    assert_eq!(names(&disk), ["export:a"]);
    tenant.lift_limits();
    let owners = disk.owners();
    assert_eq!((owners[0].limits(), owners.len()), (Limits::default(), 1));
}

#[test]
fn clients_without_limits_have_no_owner() {
    let (disk, tenant) = tenant("ram:1M");
    let seat = connect(&tenant, 1);
    assert_eq!((seat.origin(), disk.owners().len()), (Origin::NONE, 0));
    tenant.set_limits(&iops(5, 1).into()).expect("good limits");
    let other = connect(&tenant, 2);
    assert_eq!((seat.origin().owner(), other.origin().owner()), (1, 1));
    assert_eq!(disk.owners().len(), 1);
}

#[test]
fn each_client_is_an_owner_below_its_export_while_clients_have_limits() {
    let (disk, tenant) = tenant("ram:1M?nr_hw_queues=1");
    let early = connect(&tenant, 1);
    tenant.set_limits(&of_clients(1)).expect("good limits");
    let late = connect(&tenant, 2);
    assert_eq!(names(&disk), ["export:a", "client:", "client:"]);
    assert_eq!((early.origin().owner(), late.origin().owner()), (2, 3));
    let owners = disk.owners();
    assert_eq!(owners[1].parent().as_ref(), Some(&owners[0]));
    assert_eq!(owners[1].limits(), of_clients(1).client.limits);
    // Changed while they are connected.
    let changes = [("client_weight".to_owned(), Some("7".to_owned()))];
    tenant.change_limits(&changes).expect("a good weight");
    assert_eq!((owners[1].weight(), owners[2].weight()), (7, 7));
    tenant.change_limits(&[("client_weight".to_owned(), None)]).expect("the default");
    assert_eq!(owners[2].weight(), 100);
    drop((early, late));
    assert_eq!(names(&disk), ["export:a"]);
}

#[test]
fn a_client_that_connects_again_gets_no_new_burst() {
    let (disk, tenant) = tenant("ram:1M");
    tenant.set_limits(&of_clients(1)).expect("good limits");
    let mut seat = connect(&tenant, 0);
    assert_eq!(burst(&disk, &seat), 1);
    for id in 1..=1000 {
        drop(seat);
        seat = connect(&tenant, id);
        assert_eq!(disk.owners().len(), 2, "after {id} clients");
    }
    let (listed, nr) = tenant.clients(9);
    let stats = listed[0].stats.expect("an owner");
    assert_eq!((listed[0].id, stats.ios, nr), (1000, 0, 1), "its own I/O only");
    assert!(tenant.stats().ios >= 1);
    // A second one beside it has an owner of its own.
    let beside = connect(&tenant, 1001);
    assert_ne!(beside.origin(), seat.origin());
}

#[test]
fn clients_from_other_addresses_pay_no_debts_of_each_other() {
    let (disk, tenant) = tenant("ram:1M");
    tenant.set_limits(&of_clients(1)).expect("good limits");
    for peer in [Peer::Unix, ip("10.0.0.1"), ip("10.0.0.2"), ip("fd00::1"), ip("fd00:1::1")] {
        let seat = connect_from(&tenant, 1, peer);
        assert_eq!(burst(&disk, &seat), 1, "{peer}");
    }
    assert_eq!(disk.owners().len(), 6);
    for peer in [ip("::ffff:10.0.0.1"), ip("fd00::2")] {
        assert_eq!(burst(&disk, &connect_from(&tenant, 2, peer)), 0, "{peer}");
    }
    tenant.set_limits(&ExportLimits::default()).expect("no limits");
    assert_eq!(names(&disk), ["export:a"], "owners without limits owe nothing");
}

#[test]
fn owner_is_kept_until_the_last_io_of_its_client_has_ended() {
    let (disk, tenant) = tenant("ram:1M");
    tenant.set_limits(&of_clients(100_000_000)).expect("good limits");
    let mut gone = connect(&tenant, 1);
    let owner = gone.origin();
    gone.leave();
    assert_eq!(tenant.clients(9).1, 0);
    assert_eq!(disk.owners().len(), 2, "its I/O may be in flight");
    // I/O of two connections in flight.
    let next = connect(&tenant, 2);
    assert_eq!(next.origin(), owner);
    drop(next);
    assert_eq!(disk.owners().len(), 2);
    drop(gone);
    assert_eq!(disk.owners().len(), 1);
}

#[test]
fn one_client_may_have_limits_of_its_own() {
    let (disk, tenant) = tenant("ram:1M?nr_hw_queues=1");
    let seats = [1, 2].map(|id| connect(&tenant, id));
    let changes = |text: &str| {
        let pair = |part: &str| part.split_once('=').map(|(k, v)| (k.into(), Some(v.into())));
        text.split(',').filter_map(pair).collect::<Vec<_>>()
    };
    let error = tenant.change_client(3, &changes("iops=5")).expect_err("no such client");
    assert_eq!(error, "client 3 is not connected to this export; connected: 1, 2");
    let error = tenant.change_client(1, &changes("client_iops=5")).expect_err("a prefix");
    assert!(error.starts_with("client_iops=5: expected one of the limits iops, bps, "), "{error}");
    assert_eq!(disk.owners().len(), 0, "nothing is changed");
    tenant.change_client(1, &changes("iops=5,weight=500,latency_target_us=7")).expect("good");
    let owner = |nth: usize| disk.owners()[nth].clone();
    assert_eq!((owner(1).limits().both.iops.per_s, owner(1).weight()), (5, 500));
    // The other one is its peer.
    assert_eq!((owner(2).limits(), owner(2).weight()), (Limits::default(), 100));
    tenant.change_limits(&changes("client_iops=9")).expect("good");
    assert_eq!(owner(1).limits().both.iops.per_s, 5, "it keeps its own");
    assert_eq!(owner(2).limits().both.iops.per_s, 9);
    let (listed, _) = tenant.clients(1);
    assert_eq!(listed[0].own.map(|own| own.weight()), Some(500));
    tenant.lift_limits();
    assert!(disk.owners().iter().all(|owner| owner.limits() == Limits::default()));
    drop(seats);
    let _late = connect(&tenant, 4);
    assert_eq!(names(&disk), ["export:a"], "no owner is added while the server ends");
}

#[test]
fn weights_of_clients_are_refused_on_a_disk_with_several_contexts() {
    let (disk, tenant) = tenant("ram:1M?nr_hw_queues=2");
    let change = [("client_weight".to_owned(), Some("7".to_owned()))];
    let error = tenant.change_limits(&change).expect_err("no weights").to_string();
    assert!(error.contains("open it with nr_hw_queues=1"), "{error}");
    assert_eq!((tenant.limits(), origin(&tenant)), (ExportLimits::default(), Origin::NONE));
    assert!(disk.owners().is_empty(), "nothing is changed");
    // Limits need no weight.
    tenant.set_limits(&of_clients(1)).expect("good limits");
    let seat = connect(&tenant, 1);
    assert_eq!(burst(&disk, &seat), 1);
}
