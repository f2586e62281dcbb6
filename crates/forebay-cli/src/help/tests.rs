//! Unit tests of `help`.

use forebay::{DefaultValue, LIMIT_KEYS, Values};
use forebay_fio::options::{Kind, OPTIONS};

use super::*;

fn topic(name: &str) -> &'static str {
    TOPICS.iter().find(|(known, _)| *known == name).expect(name).1
}

#[test]
fn marks_are_removed_and_code_is_indented() {
    let markdown = "# A `b`\n\n- `c`: d\n  e\n\n```text\nf `g`\n```\n";
    assert_eq!(plain(markdown), "A b\n\n- c: d\n  e\n\n  f `g`\n");
    for (name, text) in TOPICS {
        let text = plain(text);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{name}");
        assert!(!text.contains("```") && !text.contains("**"), "{name}");
    }
}

#[test]
fn every_policy_is_explained() {
    let text = topic("policies");
    for Setting { key, values, .. } in SETTINGS.iter().filter(|it| it.knob().is_some()) {
        let Values::Words(words) = values else { continue };
        for word in *words {
            let is_named =
                text.contains(&format!("`{word}`")) || text.contains(&format!("`{key}={word}`"));
            assert!(is_named, "{key}={word}");
        }
    }
    for option in OPTIONS.iter().filter(|it| matches!(it.kind, Kind::Policy { .. })) {
        assert!(text.contains(&format!("- `{}` *: ", option.name)), "{}", option.name);
    }
    assert!(text.contains("starves most threads"), "wake=stash has its warning");
}

/// The dialect does not depend on the block layer, so it repeats values and descriptions.
#[test]
fn options_of_the_dialect_are_those_of_the_table() {
    let mut keys = Vec::new();
    for option in OPTIONS {
        let Kind::Policy { accepts } = &option.kind else { continue };
        let setting = Setting::named(option.name).expect(option.name);
        assert_eq!(*accepts, setting.values.expected(), "{}", option.name);
        assert!(option.help.starts_with(setting.help), "{}: {}", option.name, setting.help);
        assert_eq!(option.default, setting.default_value().to_string(), "{}", option.name);
        keys.push(option.name);
    }
    let others = SETTINGS.iter().map(|setting| setting.key).filter(|key| !keys.contains(key));
    let others: Vec<_> = others.collect();
    assert_eq!(others, ["nr_bios", "lock", "takeover_wait_ms", "read_only", "fua", "service"]);
}

#[test]
fn limits_of_the_dialect_are_those_of_owners() {
    let of_owners = OPTIONS.iter().filter(|it| matches!(it.kind, Kind::Owner { .. }));
    let limits: Vec<_> = of_owners.filter(|it| it.name != "weight").collect();
    assert_eq!(limits.len(), LIMIT_KEYS.len());
    for (option, limit) in limits.into_iter().zip(&LIMIT_KEYS) {
        let Kind::Owner { accepts } = &option.kind else { unreachable!("chosen above") };
        assert_eq!(option.name.strip_prefix("throttle_"), Some(limit.key));
        assert_eq!(*accepts, limit.values.expected(), "{}", option.name);
        assert_eq!(option.default, limit.default_value(), "{}", option.name);
    }
}

/// Returns the lines of a topic that explain a key.
fn entry(topic: &str, key: &str) -> Option<String> {
    let start = topic.find(&format!("- `{key}`"))?;
    let entry = &topic[start..];
    let end = entry[1..].find("\n- `").or_else(|| entry[1..].find("\n\n"));
    Some(entry[..end.map_or(entry.len(), |end| end + 1)].replace("\n  ", " "))
}

#[test]
fn every_setting_is_explained_with_its_range_and_default() {
    for setting in &SETTINGS {
        let entry = ["policies", "specs"].iter().find_map(|it| entry(topic(it), setting.key));
        let entry = entry.unwrap_or_else(|| panic!("no topic explains {}", setting.key));
        let values = match setting.values {
            // Other settings narrow the ranges of the rest.
            Values::Number { min, max, what } if what.is_empty() || what.contains(" of ") => {
                format!("{min} to {max}")
            }
            Values::Switch => "on or off".to_owned(),
            _ => String::new(),
        };
        assert!(entry.contains(&values), "{entry}: the values are {values}");
        let entry = entry.replace('`', "");
        let (default, is_there) = match setting.default_value() {
            // Some entries describe the default among the other words.
            DefaultValue::Fixed(default) if matches!(setting.values, Values::Words(_)) => {
                let is_there = entry.contains(&format!("{default} [default]"));
                (default, is_there)
            }
            DefaultValue::Fixed(default) => {
                let is_there = entry.contains(&format!("[{default}"));
                (default, is_there)
            }
            DefaultValue::Depends(what) => (what.to_owned(), entry.contains(&format!("[{what}]"))),
        };
        assert!(is_there, "{entry}: the default is {default}");
    }
}

#[test]
fn specs_end_with_the_keys_of_every_disk() {
    let Ok(Page::Topic(text)) = page(&["specs".to_owned()], &[]) else { panic!("a topic") };
    let (_, keys) = text.split_once("\nKeys of every disk\n").expect("a heading");
    assert!(keys.contains("\n  fua [default: as the device]\n"), "{keys}");
    assert!(keys.contains("\n      values: on, shared or off\n"), "{keys}");
    assert!(keys.lines().all(|line| line.len() <= 100), "{keys}");
}

#[test]
fn every_driver_is_named() {
    let text = topic("specs");
    let own = ["file:", "aio:", "psync:", "ram:", "null:", "model:"];
    for driver in own.into_iter().chain(["nbd://", "vhost-user:", "rbd:", "fault:"]) {
        assert!(text.contains(driver), "{driver}");
    }
}

/// The labels come from the source that prints the block.
#[test]
fn every_label_of_the_layer_block_is_explained() {
    let source = include_str!("../bench/layer.rs");
    let labels = source.split("line(\"").skip(1).chain(source.split("line(\n").skip(1));
    let mut nr = 0;
    for label in
        labels.filter_map(|rest| rest.trim_start().trim_start_matches('"').split('"').next())
    {
        nr += 1;
        assert!(topic("report").contains(&format!("`{label}`")), "{label}");
    }
    assert!(nr >= 9, "{nr} labels were found");
    for stage in ["plug", "tag", "queue", "driver"] {
        assert!(topic("report").contains(&format!("`{stage}`")), "{stage}");
    }
}
