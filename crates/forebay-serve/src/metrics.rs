//! What the server counts, and how it is told: OpenMetrics over HTTP.

mod counter;
mod disks;
mod families;
mod http;
mod process;
mod source;
mod text;

pub(crate) use http::Endpoint;
pub use http::{EndpointError, metrics_address};
#[cfg(test)]
pub(crate) use source::Traffic;
pub(crate) use source::{
    ExportSource, HandshakeFailure, OpenConnection, Refusal, RequestKind, Source, Stage,
    TrafficSum, WorkerCounters,
};
