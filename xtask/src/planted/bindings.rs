//! Bugs in the library for C: keys of requests, and uses of handles.

use super::{Bug, Edit, Test};

const SLAB: &str = "crates/forebay-capi/src/slab.rs";
const HANDLE: &str = "crates/forebay-capi/src/handle.rs";

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "slab-generations-ignored",
        what: "a key of a request that has ended names the next request at its place",
        edits: &[Edit {
            file: SLAB,
            from: "let next = key.generation() + 1;",
            to: "let next = key.generation();",
        }],
        test: Test::unit(
            "forebay-capi",
            "slab::tests::a_key_names_one_value_and_never_another_one",
        ),
        says: "",
    },
    Bug {
        name: "uses-in-c-not-counted",
        what: "a close drops the value of a handle although other calls use it",
        edits: &[Edit {
            file: HANDLE,
            from: "                if nr_uses == 0 {",
            to: "                if true {",
        }],
        test: Test::unit(
            "forebay-capi",
            "handle::tests::the_last_use_of_a_closed_handle_drops_its_value",
        ),
        says: "",
    },
];
