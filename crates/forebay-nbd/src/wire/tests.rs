//! Tests of the wire: what is written is read again, and what is malformed is not.

use alloc::string::String;

use super::*;

#[test]
fn a_message_is_clipped_between_characters() {
    assert_eq!(clip("short"), "short");
    let long: String = core::iter::repeat_n('ä', 3000).collect();
    assert_eq!(clip(&long).len(), 4096);
    assert_eq!(clip(&alloc::format!("x{long}")).len(), 4095);
}

#[test]
fn every_error_has_a_number_of_its_own() {
    for error in NbdError::ALL {
        assert_eq!(NbdError::from_number(error.number()), error);
    }
    assert_eq!(NbdError::from_number(7), NbdError::Inval);
}
