//! Words that a shell completes as the value of an option, beside a parser with its own errors.
//!
//! clap's own list of possible values also parses, and has its own text for errors. Here the parser
//! stays as it is, and may accept more than the words: numbers, or names of files.

use std::convert::Infallible;
use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};

/// A parser with words.
#[derive(Clone, Debug)]
pub(crate) struct Words<P> {
    parser: P,
    words: Vec<&'static str>,
}

/// Returns a parser of values, of which a shell completes these words.
pub(crate) fn completed<P: TypedValueParser>(
    parser: P,
    words: impl IntoIterator<Item = &'static str>,
) -> Words<P> {
    Words { parser, words: words.into_iter().collect() }
}

/// Parses nothing: the program checks the text later, in its context.
pub(crate) fn any_text(text: &str) -> Result<String, Infallible> {
    Ok(text.to_owned())
}

impl<P: TypedValueParser> TypedValueParser for Words<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<P::Value, Error> {
        self.parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().map(PossibleValue::new)))
    }
}
