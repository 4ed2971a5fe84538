//! A signature over a template: what is signed, with which keys, and when.

use ring::signature::{ED25519, UnparsedPublicKey};

use super::settings::{IdPlace, SignedCheck, TimestampPlace, Unit};
use crate::base::clock::Timestamp;
use crate::model::scheme::check::{
    MAX_SIGNATURES, Verified, any_match, public_signatures, time_digits,
};
use crate::model::scheme::incoming::Incoming;
use crate::model::scheme::refused::{Refused, malformed, needed};
use crate::model::scheme::template::Piece;
use crate::model::signature::{SecretError, mac};

impl SignedCheck {
    pub(super) fn verify_hmac(
        &self,
        secrets: &[&[u8]],
        incoming: &Incoming<'_>,
        event_id: &IdPlace,
    ) -> Result<Verified, Refused> {
        let offered = self.offered(incoming)?;
        let (parts, signed_at) = self.parts(incoming, event_id)?;
        let hash = self.hash.unwrap_or_default();
        let secret = any_match(secrets, &offered, |secret| {
            let key = self.secret_encoding.key(secret).ok().filter(|key| !key.is_empty())?;
            Some(mac(hash, &key, &parts))
        })?;
        Ok(Verified { secret, signed_at })
    }

    pub(super) fn verify_ed25519(
        &self,
        secrets: &[&[u8]],
        incoming: &Incoming<'_>,
        event_id: &IdPlace,
    ) -> Result<Verified, Refused> {
        let offered = self.offered(incoming)?;
        let (parts, signed_at) = self.parts(incoming, event_id)?;
        let signed = parts.concat();
        let mut refused = Refused::NoSecret;
        for (secret, text) in secrets.iter().enumerate() {
            let Ok(key) = self.secret_encoding.key(text) else { continue };
            refused = Refused::Mismatch;
            let key = UnparsedPublicKey::new(&ED25519, key.as_slice());
            let mut looked_at = offered.iter().take(public_signatures(secrets.len()));
            if looked_at.any(|signature| key.verify(&signed, signature).is_ok()) {
                return Ok(Verified { secret, signed_at });
            }
        }
        Err(refused)
    }

    /// An ed25519 public key has 32 bytes. Source: RFC 8032.
    pub(super) fn public_key(&self, text: &str) -> Result<(), SecretError> {
        let key = self.secret_encoding.key(text.as_bytes())?;
        let wanted = "an ed25519 public key of 32 bytes in `secret_encoding`";
        (key.len() == 32).then_some(()).ok_or(SecretError::Encoding { encoding: wanted })
    }

    /// What is signed, piece by piece, and the time in it.
    pub(super) fn parts<'a>(
        &'a self,
        incoming: &Incoming<'a>,
        event_id: &IdPlace,
    ) -> Result<(Vec<&'a [u8]>, Option<Timestamp>), Refused> {
        let (time, signed_at) = match &self.timestamp {
            Some(place) => place.read(incoming).map(|(text, at)| (text, Some(at)))?,
            None => ("", None),
        };
        let mut parts: Vec<&[u8]> = Vec::with_capacity(self.signed.pieces().len());
        for piece in self.signed.pieces() {
            let text = match (piece, event_id) {
                (Piece::Literal(text), _) => text,
                (Piece::Id, IdPlace::Header(name)) | (Piece::Header(name), _) => {
                    needed(incoming.headers, name)?
                }
                // The settings were refused if the id was to come from elsewhere.
                (Piece::Id, IdPlace::Pointer(_) | IdPlace::BodyHash) => "",
                (Piece::Time, _) => time,
                (Piece::Method, _) => incoming.method,
                (Piece::Path, _) => incoming.path,
                (Piece::Url, _) => incoming.url,
                (Piece::Body, _) => {
                    parts.push(incoming.body);
                    continue;
                }
            };
            parts.push(text.as_bytes());
        }
        Ok((parts, signed_at))
    }

    /// The signatures that the request carries, decoded.
    fn offered(&self, incoming: &Incoming<'_>) -> Result<Vec<Vec<u8>>, Refused> {
        needed(incoming.headers, &self.header)?;
        let mut offered = Vec::new();
        for value in incoming.headers.values(&self.header) {
            let mut rest = Some(value);
            while let Some(text) = rest {
                let split = self.separator.and_then(|letter| text.split_once(letter));
                let entry = split.map_or(text, |(entry, _)| entry).trim();
                rest = split.map(|(_, after)| after).filter(|_| offered.len() < MAX_SIGNATURES);
                let encoded = entry.strip_prefix(self.prefix.as_str());
                offered.extend(encoded.and_then(|encoded| self.encoding.decode(encoded)));
            }
        }
        if offered.is_empty() {
            return Err(malformed(
                &self.header,
                "no signature in it has the prefix and encoding set",
            ));
        }
        Ok(offered)
    }
}

impl TimestampPlace {
    pub(super) fn read<'a>(
        &self,
        incoming: &Incoming<'a>,
    ) -> Result<(&'a str, Timestamp), Refused> {
        let text = needed(incoming.headers, &self.header)?;
        let count =
            time_digits(text).ok_or_else(|| malformed(&self.header, "it is not a whole number"))?;
        let at = match self.unit {
            Unit::S => Timestamp::from_secs(count),
            Unit::Ms => Timestamp::from_ms(count),
        };
        Ok((text, at))
    }
}
