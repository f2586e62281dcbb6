//! Models of pushes against waits, kicks and reaps: no interleaving leaves a waiter asleep beside a
//! completion or a kick, and none loses or repeats a completion.

use super::CompletionList;
use crate::driver::Waiter;
use crate::sys::primitive::{Arc, check, lock, thread};

/// A list, and the number of completions that the model expects in total.
type List = Arc<CompletionList<usize>>;

fn list() -> List {
    Arc::new(CompletionList::new(4))
}

/// Starts a thread that pushes these numbers.
fn pusher(list: &List, numbers: &'static [usize]) -> thread::JoinHandle<()> {
    let list = Arc::clone(list);
    thread::spawn(move || numbers.iter().for_each(|number| list.push(*number)))
}

/// Reaps, and adds the completions to `all`.
fn reap(list: &List, all: &mut Vec<usize>) {
    let mut done = Vec::new();
    list.reap(&mut done);
    all.append(&mut done);
}

/// Waits beside the driver until `nr` completions were reaped.
fn wait_for_each(list: &List, nr: usize) -> Vec<usize> {
    let mut all = Vec::new();
    while all.len() < nr {
        list.wait(None);
        reap(list, &mut all);
    }
    all.sort_unstable();
    all
}

#[test]
fn waiter_gets_each_push_of_two_threads_once() {
    check(|| {
        let list = list();
        let pushers = [pusher(&list, &[1]), pusher(&list, &[2])];
        assert_eq!(wait_for_each(&list, 2), [1, 2]);
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
    });
}

#[test]
fn owner_waits_for_several_pushes_with_one_wait() {
    check(|| {
        let list = list();
        let pushers = [pusher(&list, &[1]), pusher(&list, &[2])];
        list.wait_for(2, None);
        let mut all = Vec::new();
        reap(&list, &mut all);
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
    });
}

#[test]
fn kick_ends_the_wait_of_a_thread_without_completions() {
    check(|| {
        let list = list();
        let kicker = {
            let list = Arc::clone(&list);
            thread::spawn(move || list.kick())
        };
        list.wait(None);
        kicker.join().unwrap();
        // One kick ends one wait.
        assert!(!lock(&list.state).is_kicked);
    });
}

#[test]
fn completion_that_another_thread_reaps_does_not_keep_the_waiter_asleep() {
    check(|| {
        let list = list();
        let pusher = pusher(&list, &[1]);
        let user = {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                let mut all = Vec::new();
                reap(&list, &mut all);
                // The layer kicks the waiter when its completions are reaped by another thread.
                list.kick();
                all
            })
        };
        list.wait(None);
        pusher.join().unwrap();
        let mut all = user.join().unwrap();
        reap(&list, &mut all);
        assert_eq!(all, [1]);
    });
}

#[test]
fn descriptor_is_readable_while_completions_are_in_the_list() {
    check(|| {
        let list = list();
        let pusher = pusher(&list, &[1]);
        assert!(list.poll_fd().is_ok_and(|fd| fd.is_some()));
        let mut all = Vec::new();
        reap(&list, &mut all);
        pusher.join().unwrap();
        let state = lock(&list.state);
        // A loop that sleeps now reaps no more, so what is left must be announced.
        assert_eq!(state.is_signalled, !state.done.is_empty());
        assert_eq!(all.len() + state.done.len(), 1);
    });
}
