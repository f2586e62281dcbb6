//! Fuzzes the command-line parser: each line of the input is one argument.

#![no_main]

use forebay_fio::cmdline;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let text = String::from_utf8_lossy(text);
    if let Err(error) = cmdline::parse(text.lines().map(Into::into)) {
        // The message may repeat an argument, but nothing else of that size.
        assert!(error.to_string().len() <= 2 * text.len() + 4096);
    }
});
