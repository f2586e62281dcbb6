//! Every command and topic has a page. Every option of `bench` is in its page and in the scripts.

use forebay_fio::options::OPTIONS;
use forebay_sim::DeviceSpec;

use super::completions::{Shell, each_arg, program, script, words};
use super::*;
use crate::bench;

#[test]
fn every_command_and_topic_has_a_page() {
    let names: Vec<_> = pages().expect("pages").into_iter().map(|page| page.name).collect();
    for name in ["", "-bench", "-serve", "-lab", "-lab-tags", "-specs", "-policies", "-report"] {
        assert!(names.contains(&format!("forebay{name}")), "{name}: {names:?}");
    }
    let page = |words: &[&str]| named(&words.iter().map(|it| it.to_string()).collect::<Vec<_>>());
    assert_eq!(page(&[]).expect("a page").name, "forebay");
    assert_eq!(page(&["lab", "tags"]).expect("a page").name, "forebay-lab-tags");
    let error = page(&["spec"]).expect_err("no page").to_string();
    assert_eq!(error, "man spec: unknown page; did you mean 'specs'?");
    let error = page(&["nope"]).expect_err("no page").to_string();
    assert!(error.contains(", ctl reload-certificates, "), "{error}");
}

#[test]
fn every_option_of_bench_is_in_its_page_and_completed() {
    let page = named(&["bench".to_owned()]).expect("a page").text;
    let scripts = [Shell::Bash, Shell::Fish, Shell::Zsh].map(script);
    let others = bench::compare_options().chain(bench::picture_options());
    let others = others.map(|option| option.name.trim_start_matches('-'));
    for name in OPTIONS.iter().map(|option| option.name).chain(others) {
        let escaped = name.replace('-', "\\-");
        assert!(page.contains(&format!("\n\\fB\\-\\-{escaped}\\fR")), "{name}");
        for script in &scripts {
            assert!(script.contains(name), "{name}");
        }
    }
    assert!(page.contains("Values: fair, batch, stash or single."), "{page}");
    assert!(scripts.iter().all(|script| script.contains("randwrite")));
    assert!(scripts[0].contains("COMP_CWORD-2"), "the mark is in the script of bash");
}

/// Names of values that stand for free text: numbers, paths, names, and pairs of keys and values.
const FREE: [&str; 26] = [
    "ADDRESS",
    "BYTES",
    "COMMAND",
    "COUNT",
    "DIR",
    "EXPORT",
    "FILE",
    "FILE.svg",
    "FILE|DIR",
    "JOB.fio|SCENARIO.toml",
    "KEY=A,B,C",
    "KEY=VALUE",
    "KEY=VALUE,...",
    "N",
    "NAME",
    "NUMBER",
    "OPS:EFFECT[:WHEN...]",
    "PATH",
    "PERCENT",
    "S",
    "SECONDS",
    "SOCKET",
    "SPEC",
    "SPECS",
    "TEXT",
    "job.fio",
];

/// The options of bench have tables of their own, with their words.
#[test]
fn every_argument_takes_free_text_or_completes_its_words() {
    let mut found = Vec::new();
    each_arg(&program(), &[], &mut |names, arg| {
        let is_of_bench = names.first().is_some_and(|name| name == "bench");
        if is_of_bench || !arg.get_action().takes_values() {
            return;
        }
        let name = arg.get_value_names().map_or(arg.get_id().as_str(), |names| &names[0]);
        let command = names.join(" ");
        match words(arg).is_empty() {
            true => assert!(FREE.contains(&name), "{command} {}: no words", arg.get_id()),
            false => found.push(format!("{command} {}", arg.get_id())),
        }
    });
    let expected = [
        "serve priority",
        "serve tls",
        "serve poll",
        "serve log_level",
        "serve log_format",
        "ctl add priority",
        "ctl log-level level",
        "ctl trace switch",
        "sim device",
        "sim wake",
        "calibrate family",
        "lab tags device",
        "help words",
        "man words",
        "completions shell",
    ];
    for name in expected {
        assert!(found.iter().any(|it| it == name), "{name}: {found:?}");
    }
}

#[test]
fn scripts_have_the_words_of_options_and_files_beside_those_of_devices() {
    let [bash, fish, zsh] = [Shell::Bash, Shell::Fish, Shell::Zsh].map(script);
    let devices = DeviceSpec::names().collect::<Vec<_>>().join(" ");
    assert!(bash.contains(&format!("compgen -f -W \"{devices}\"")));
    assert!(zsh.contains(&format!(":{{compadd -- {devices}; _files}}'")));
    // A colon would end the name of the value.
    assert!(zsh.contains("]:NAME[\\:KEY=VALUE,...]|FILE:{compadd"));
    assert!(zsh.contains(":FORMAT:(text json journald)'"));
    let levels = "error\\t''\nwarning\\t''\ninfo\\t''";
    let of_ctl = "__fish_forebay_using_subcommand ctl; and __fish_seen_subcommand_from log-level";
    assert!(fish.contains(&format!("complete -c forebay -n \"{of_ctl}\" -f -a \"{levels}\"")));
    assert!([bash, fish, zsh].iter().all(|script| !script.contains("limits of a running server")));
}
