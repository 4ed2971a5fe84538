//! What basic authentication takes: the scheme's that people put together, and Chargebee's.

use crate::model::signature::SecretError;

/// People choose these; below 8 characters they are guessed over the network.
const PASSWORD_BYTES_MIN: usize = 8;

/// Whether basic authentication can carry that user name.
pub(in crate::model::scheme) fn is_user(user: &str) -> bool {
    (1..=255).contains(&user.chars().count())
        && !user.contains(':')
        && !user.chars().any(char::is_control)
}

/// Looks at a password when it is entered.
pub(in crate::model::scheme) fn check_password(text: &str) -> Result<(), SecretError> {
    if text.len() < PASSWORD_BYTES_MIN {
        return Err(SecretError::Short { bytes: text.len(), min: PASSWORD_BYTES_MIN });
    }
    Ok(())
}
