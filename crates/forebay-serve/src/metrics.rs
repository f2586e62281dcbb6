//! Counters of the server, and their export: OpenMetrics over HTTP.

mod counter;
mod http;
mod insight;
mod kinds;
mod owners;
mod process;
mod registry;
mod rings;
mod text;
mod traffic;

pub(crate) use forebay_insight::label::labels;
pub use forebay_insight::label::last_part;
pub(crate) use http::Endpoint;
pub use http::{EndpointError, metrics_address};
pub(crate) use kinds::{ConnectionRefusal, HandshakeFailure};
pub(crate) use registry::{CountedExport, Counters, OpenConnection, StageTimes, WorkerCounters};
pub(crate) use rings::RingCounters;
#[cfg(test)]
pub(crate) use traffic::Traffic;
pub(crate) use traffic::TrafficSum;
