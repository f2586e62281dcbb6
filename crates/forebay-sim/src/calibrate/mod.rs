//! Calibration: the constants of a device model from measurements of a device.
//!
//! - [`plan`] lists the loads to measure: a [`Probe`] is the options of a fio job;
//! - [`fit()`] computes constants with intervals from the [`Figures`] of repeated loads, and
//!   chooses a [`Family`] of models;
//! - [`measure`] returns the figures of a load on a modelled device, from the simulator.
//!
//! The first two are pure functions of their arguments. A program that calibrates a real device
//! measures the same loads itself.

mod data;
mod estimate;
mod family;
mod fit;
mod probe;
mod solve;
mod sorted;
#[cfg(test)]
mod tests;
mod virtual_time;

pub use estimate::{Estimate, FittedConstant};
pub use family::Family;
pub use fit::{Fit, FitError, fit};
pub use probe::{Access, Figures, Limits, Probe, plan};
pub use virtual_time::{MeasureError, measure};
