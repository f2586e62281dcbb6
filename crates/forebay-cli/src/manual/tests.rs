//! Every command and topic has a page. Every option of `bench` is in its page and in the scripts.

use forebay_fio::options::OPTIONS;

use super::completions::{Shell, script};
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
