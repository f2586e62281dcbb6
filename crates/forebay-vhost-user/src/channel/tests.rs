//! Tests of the message channel.
