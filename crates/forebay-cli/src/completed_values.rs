//! Words that a shell completes as the value of an option, beside a parser with its own errors.
//!
//! clap's own list of possible values also parses, and has its own text for errors. Here the parser
//! stays as it is, and may accept more than the words: numbers, or names of files.

use std::convert::Infallible;
use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};

/// A parser, and the words that a shell completes.
#[derive(Clone, Debug)]
pub(crate) struct WithCompletedValues<P> {
    parser: P,
    words: Vec<&'static str>,
}

/// Adds the words that a shell completes to a parser.
pub(crate) fn completing<P: TypedValueParser>(
    parser: P,
    words: impl IntoIterator<Item = &'static str>,
) -> WithCompletedValues<P> {
    WithCompletedValues { parser, words: words.into_iter().collect() }
}

/// Accepts any text: the program checks it later, in its context.
pub(crate) fn any_text(text: &str) -> Result<String, Infallible> {
    Ok(text.to_owned())
}

impl<P: TypedValueParser> TypedValueParser for WithCompletedValues<P> {
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
