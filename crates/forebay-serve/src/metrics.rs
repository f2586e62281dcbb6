//! What the server counts, and how it is told: OpenMetrics over HTTP.

mod counter;
mod disks;
mod families;
mod http;
mod process;
mod source;
mod text;

pub use counter::{Counter, SharedCounter, Times};
pub use http::{Endpoint, EndpointError, METRICS_PORT, MetricsServer, metrics_address};
pub use source::{
    ConnectionCounters, ExportSource, HandshakeFailure, OpenConnection, Refusal, RequestKind,
    ServerCounters, Source, Stage, Traffic, TrafficSum, WorkerCounters,
};
