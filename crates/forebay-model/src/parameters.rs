//! Constants of a machine by name, so that code that builds a machine from text needs no list of
//! them.

/// A constant of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name, which ends with the unit.
    pub name: &'static str,
    /// A short description.
    pub what: &'static str,
    /// The published value, or one calibrated on published figures.
    pub default: u64,
    /// The smallest allowed value.
    pub min: u64,
    /// The largest allowed value.
    pub max: u64,
    /// The allowed range in words, for error messages.
    pub expected: &'static str,
}

/// The allowed values of a constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) expected: &'static str,
}

/// A time.
pub(crate) const TIME_NS: Span = Span {
    min: 0,
    max: 1_000_000_000_000,
    expected: "a number of nanoseconds, up to 1 000 000 000 000",
};

/// A rate.
pub(crate) const PER_S: Span =
    Span { min: 1000, max: 1 << 50, expected: "a number per second, from 1000 to 1024t" };

/// A size.
pub(crate) const BYTES: Span =
    Span { min: 0, max: 1 << 50, expected: "a number of bytes, up to 1024t" };

/// A count.
pub(crate) const NUMBER: Span = Span { min: 1, max: 65_536, expected: "a number from 1 to 65536" };

/// Defines the struct of a machine's constants from one list: fields, documentation, published
/// values, ranges and names.
macro_rules! params {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $($(#[doc = $what:literal])+ $field:ident: $default:expr, $span:expr;)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $what])+ pub $field: u64,)+
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $default,)+ }
            }
        }

        impl $name {
            /// The names and ranges of all fields, in order.
            pub const PARAMETERS: &'static [$crate::Parameter] = &[
                $($crate::Parameter {
                    name: stringify!($field),
                    what: concat!($($what),+).trim_ascii(),
                    default: $default,
                    min: $span.min,
                    max: $span.max,
                    expected: $span.expected,
                },)+
            ];

            /// Creates the constants from values in the order of [`PARAMETERS`](Self::PARAMETERS).
            ///
            /// # Panics
            /// Panics if the number of values is wrong.
            pub fn from_values(values: &[u64]) -> $name {
                let [$($field),+] = *values else {
                    panic!("{} values for {} constants", values.len(), Self::PARAMETERS.len());
                };
                $name { $($field),+ }
            }
        }
    };
}

pub(crate) use params;
