//! Tests of the server half: a client that is written out, against what the document says.

mod basics;
mod client;
