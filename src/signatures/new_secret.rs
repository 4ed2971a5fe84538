//! New secrets, each in the format of its scheme.

use data_encoding::{BASE64, HEXLOWER};
use zeroize::Zeroizing;

use crate::base::id::Draw;
use crate::signatures::Scheme;
use crate::signatures::generic::Check;
use crate::signatures::signing::{SecretEncoding, SigningSecret};

/// Random bytes of a secret.
const BYTES: usize = 32;

/// A new secret that a scheme can sign with.
///
/// ```
/// use oncebox::base::id::SystemDraw;
/// use oncebox::signatures::{Scheme, new_secret::new_secret};
///
/// let scheme = Scheme::of("stripe").unwrap();
/// assert!(new_secret(&scheme, &SystemDraw::new()).starts_with("whsec_"));
/// ```
pub fn new_secret(scheme: &Scheme, draw: &dyn Draw) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new([0_u8; BYTES]);
    draw.fill(bytes.as_mut_slice());
    let text = match scheme {
        Scheme::Standard => return SigningSecret::generate(draw).to_text(),
        Scheme::HmacHeader(scheme) if scheme.lists_values() => {
            format!("whsec_{}", HEXLOWER.encode(bytes.as_slice()))
        }
        Scheme::Generic(generic) => match &generic.settings().check {
            Check::Hmac(check) if check.secret_encoding == SecretEncoding::Base64 => {
                BASE64.encode(bytes.as_slice())
            }
            _ => HEXLOWER.encode(bytes.as_slice()),
        },
        _ => HEXLOWER.encode(bytes.as_slice()),
    };
    Zeroizing::new(text)
}
