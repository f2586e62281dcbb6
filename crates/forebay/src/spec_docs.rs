//! Checks that `docs/specs.md` names every key and every policy, and no key that does not exist.

use crate::driver;
use crate::driver_names;
use crate::keys::Keys;
use crate::settings::Settings;
use crate::settings::table::SETTINGS;
use crate::spec::Spec;
use forebay_core::{BlockStatus, DefaultValue, Op, Values};
use forebay_model::machines;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../docs/specs.md");

/// Returns the keys that the driver of `spec` takes while it opens, whether or not the open
/// succeeds.
fn keys_of(spec: &str) -> Vec<&'static str> {
    let spec = Spec::parse(spec).expect("a valid spec");
    let mut keys = Keys::of(&spec);
    let settings = Settings::take(&mut keys).expect("default settings");
    let _ = driver::open(&spec, &mut keys, &settings);
    keys.known().to_vec()
}

/// Returns every key of every driver, from the code that takes them.
fn all_keys() -> BTreeSet<&'static str> {
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    file.as_file().set_len(1 << 20).expect("room for it");
    let path = file.path().to_str().expect("a path in UTF-8");
    let mut specs: Vec<String> =
        ["file", "aio", "psync", "fault"].map(|driver| format!("{driver}:{path}")).to_vec();
    specs.extend(["ram:1M", "null:1M", "nbd+unix:///?socket=/nonexistent"].map(String::from));
    specs.push(String::from("vhost-user:/nonexistent"));
    specs.push(String::from("rbd:pool/image?conf=/nonexistent"));
    specs.extend(machines::ALL.iter().map(|preset| format!("model:{}", preset.name)));
    let opened: BTreeSet<&str> =
        specs.iter().map(|spec| Spec::parse(spec).unwrap().driver()).collect();
    assert!(
        driver_names::list().split(", ").all(|name| opened.contains(name)),
        "a driver is missing"
    );
    specs.iter().flat_map(|spec| keys_of(spec)).collect()
}

/// Returns the names in the first cells of the tables with a first column `key`.
fn keys_in_tables() -> BTreeSet<&'static str> {
    let mut keys = BTreeSet::new();
    let mut in_keys = false;
    for line in PAGE.lines() {
        match line.strip_prefix("| ") {
            Some(row) if row.starts_with("key |") => in_keys = true,
            Some(row) if in_keys => keys.extend(row.split('|').next().unwrap().split('`').nth(1)),
            _ => in_keys &= line.starts_with('|'),
        }
    }
    keys
}

fn assert_named(name: &str) {
    assert!(PAGE.contains(&format!("`{name}`")), "docs/specs.md does not name `{name}`");
}

#[test]
fn docs_name_every_key_and_no_other() {
    let (known, documented) = (all_keys(), keys_in_tables());
    let constants = machines::ALL.iter().flat_map(|preset| preset.parameters);
    let constants: BTreeSet<&str> = constants.map(|parameter| parameter.name).collect();
    assert!(known.len() > 40 && documented.len() > 30, "{known:?} {documented:?}");
    for key in &known {
        let found = documented.contains(key) || constants.contains(key);
        assert!(found, "docs/specs.md has no row for the key `{key}`");
    }
    for key in &documented {
        assert!(known.contains(key), "docs/specs.md has a row for `{key}`, which is no key");
    }
}

#[test]
fn docs_name_every_constant_with_its_default() {
    for preset in &machines::ALL {
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{}` |", preset.name)));
        let row = row.unwrap_or_else(|| panic!("docs/specs.md has no row for `{}`", preset.name));
        assert!(row.contains(&format!("; {} |", preset.queue_depth)), "{row}");
        for parameter in preset.parameters {
            let named = format!("`{}` ({})", parameter.name, parameter.default);
            assert!(row.contains(&named), "`{}` lacks {named}", preset.name);
        }
    }
}

#[test]
fn rows_of_settings_have_their_range_and_default() {
    let mut nr = 0;
    for setting in &SETTINGS {
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{}` ", setting.key)));
        let row = row.unwrap_or_else(|| panic!("docs/specs.md has no row for `{}`", setting.key));
        let values = match setting.values {
            // Other settings narrow the ranges of the rest.
            Values::Number { min, max, what } if what.is_empty() || what.contains(" of ") => {
                format!("{min} to {max}; ")
            }
            Values::Switch => "switch; ".to_owned(),
            _ => String::new(),
        };
        assert!(row.contains(&format!("| {values}")), "{row}: the values are {values}");
        let default = setting.default_value();
        // The rows of policies begin with the default, and have a row for each other value.
        let is_policy =
            matches!((setting.values, &default), (Values::Words(_), DefaultValue::Fixed(_)));
        let sign = if is_policy { '|' } else { ';' };
        let is_there = row.replace('`', "").contains(&format!("{sign} {default} |"));
        let is_first = is_policy && row.replace('`', "").contains(&format!("| {default}, "));
        assert!(is_there || is_first, "{row}: the default is {default}");
        nr += 1;
    }
    assert_eq!(nr, SETTINGS.len());
}

#[test]
fn docs_name_every_policy_and_every_part_of_a_rule() {
    for setting in &SETTINGS {
        if let Values::Words(words) = setting.values {
            words.iter().copied().for_each(assert_named);
        }
    }
    Op::ALL.map(Op::name).into_iter().for_each(assert_named);
    BlockStatus::ALL.map(BlockStatus::name).into_iter().for_each(assert_named);
    for name in driver::RULE_NAMES {
        assert!(PAGE.contains(&format!("`{name}")), "docs/specs.md does not name `{name}");
    }
}
