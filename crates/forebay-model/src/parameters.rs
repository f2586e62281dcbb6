//! The constants of a machine, by name: so that whoever builds one from text needs no list of them.

/// One constant of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, which ends with its unit.
    pub name: &'static str,
    /// What it is, in a few words.
    pub what: &'static str,
    /// The published value, or what was calibrated on published ones.
    pub default: u64,
    /// The least that makes sense.
    pub min: u64,
    /// The most that makes sense.
    pub max: u64,
}

/// A time, ns, is at most this: 1000 seconds.
pub(crate) const TIME_MAX_NS: u64 = 1_000_000_000_000;

/// A rate, per second, is at least and at most this.
pub(crate) const RATE_MIN: u64 = 1000;
pub(crate) const RATE_MAX: u64 = 1 << 50;

/// Makes the struct of a machine's constants from one list: its fields, their documentation,
/// published values, ranges and names.
macro_rules! params {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $($(#[doc = $what:literal])+ $field:ident: $default:expr, $min:expr, $max:expr;)+
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
                    min: $min,
                    max: $max,
                },)+
            ];

            /// The constants from their values, in the order of [`PARAMETERS`](Self::PARAMETERS).
            ///
            /// # Panics
            /// If there are more or fewer.
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
