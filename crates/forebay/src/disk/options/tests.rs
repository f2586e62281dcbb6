//! Unit tests of `options`: its methods and the table of settings.

use super::*;
use crate::settings::table::SETTINGS;
use forebay_core::Values;
use std::collections::BTreeSet;

#[test]
fn each_setting_has_a_method_and_each_method_a_setting() {
    let keys: BTreeSet<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
    let methods: BTreeSet<&str> = WITH_METHODS.iter().copied().collect();
    let only = |one: &BTreeSet<&'static str>, other: &BTreeSet<&'static str>| -> Vec<&str> {
        one.difference(other).copied().collect()
    };
    assert_eq!(only(&keys, &methods), ["run_queue", "wake"], "only `set` takes them");
    assert_eq!(only(&methods, &keys), ["direct"], "a key of files");
}

#[test]
fn values_of_methods_are_words_of_the_table() {
    let check = |options: DiskOptions| {
        let (key, value) = &options.keys[0];
        Setting::named(key).expect("in the table").check(value).expect("one of its values");
    };
    PlugPolicy::ALL.into_iter().for_each(|value| check(Disk::options().plug(value)));
    MergePolicy::ALL.into_iter().for_each(|value| check(Disk::options().nomerges(value)));
    KickPolicy::ALL.into_iter().for_each(|value| check(Disk::options().kick(value)));
    TagNeed::ALL.into_iter().for_each(|value| check(Disk::options().tag_need(value)));
    FlushPolicy::ALL.into_iter().for_each(|value| check(Disk::options().flush(value)));
    ImageLock::ALL.into_iter().for_each(|value| check(Disk::options().lock(value)));
    [true, false].into_iter().for_each(|value| check(Disk::options().elide(value)));
    check(Disk::options().nr_bios(1));
    check(Disk::options().takeover_wait_ms(3_600_000));
    check(Disk::options().tag_set("a"));
}

#[test]
fn set_takes_the_values_of_the_table_and_no_others() {
    for setting in &SETTINGS {
        let set = |value: &str| Disk::options().set(setting.key, value);
        match setting.values {
            Values::Words(words) => words.iter().for_each(|word| drop(set(word).expect(word))),
            Values::Switch => drop(set("on").expect("a switch")),
            Values::Number { min, max, .. } => {
                drop(set(&min.to_string()).expect("the smallest"));
                drop(set(&max.to_string()).expect("the largest"));
                set(&(max + 1).to_string()).expect_err("above the largest");
            }
            _ => drop(set("a name").expect("a name")),
        }
        let error = set("").expect_err("it is empty").to_string();
        assert!(error.starts_with(&format!("{}=: expected ", setting.key)), "{error}");
    }
}
