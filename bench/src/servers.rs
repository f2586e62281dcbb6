//! Parts that all comparisons of servers share.
//!
//! - `options`: the command line, with the defaults of each comparison as data;
//! - `loads`: a load, and the choice of loads by their names;
//! - `server`: the start of a server for a run, and its processor time;
//! - `report`: the figures of a client.

mod loads;
mod options;
mod report;
mod server;

pub(crate) use loads::{Load, Medium, chosen as chosen_loads};
pub(crate) use options::{Comparison, Options, list};
pub(crate) use report::JobReport;
pub(crate) use server::{Paths, Program, Running, Server, chosen};
