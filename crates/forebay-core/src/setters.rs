//! Structs of settings, with a default and a chained setter for each field.
//!
//! Such a struct is `#[non_exhaustive]`: other crates read its fields and cannot write it as a
//! literal, so a new setting breaks none of them. They begin with the default and set what differs:
//! `Policy::default().queue_depth(64).elide(true)`.

/// Defines a struct of settings from one list of its fields with their defaults. A setter has the
/// name of its field.
macro_rules! with_setters {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $($(#[$doc:meta])* pub $field:ident: $type:ty = $default:expr,)*
        }
    ) => {
        $(#[$attribute])*
        #[non_exhaustive]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $default,)* }
            }
        }

        /// Setters. Each takes the struct and returns it with one field changed.
        impl $name {
            $(
                #[doc = concat!(
                    "Sets [`", stringify!($field), "`](field@Self::", stringify!($field), ").",
                )]
                #[must_use]
                #[inline]
                pub fn $field(mut self, $field: $type) -> $name {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

pub(crate) use with_setters;
