//! Calibration: the constants of a device model from measurements of a device.
//!
//! - [`probe`]: the loads to measure, as options of fio, and their figures;
//! - [`family`]: the families of models, and the speed that each predicts for a load;
//! - [`solve`]: nonlinear least squares;
//! - [`sorted`]: a constant of `hdd` that latencies determine;
//! - [`fit`]: constants and intervals from figures, and the choice of a family;
//! - [`virtual_time`]: the figures of a load on a modelled device, from the simulator.
//!
//! Everything but [`virtual_time`] is a pure function of its arguments. A program that calibrates a
//! real device measures the same loads itself.

mod family;
mod fit;
mod probe;
mod solve;
mod sorted;
#[cfg(test)]
mod tests;
mod virtual_time;

pub use family::Family;
pub use fit::{Estimate, Fit, FitError, FittedConstant, fit};
pub use probe::{Access, Figures, Limits, Probe, plan};
pub use virtual_time::{MeasureError, measure};
