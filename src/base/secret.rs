//! Secrets: bytes that do not print themselves, and the master key that seals secrets in the database file.
//!
//! Not here: where the master key is on the machine (settings), which credential is in force (model),
//! and the text forms of signing secrets ([`crate::signatures::signing`]).

use std::fmt;

use data_encoding::{BASE64, HEXLOWER};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{Context, SHA256};
use ring::hmac;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::base::id::Draw;

/// The first byte of what was sealed under the master key itself. It is still opened.
const DIRECT: u8 = 1;
/// The first byte of everything that is sealed now: under a data key of its own, which is wrapped by the master key.
const WITH_DATA_KEY: u8 = 2;
const KEY_BYTES: usize = 32;
const KEY_ID_BYTES: usize = 4;
/// Version, key id and nonce, before the ciphertext.
const HEAD_BYTES: usize = 1 + KEY_ID_BYTES + NONCE_LEN;
const TAG_BYTES: usize = 16;
/// A wrapped data key.
const WRAPPED_BYTES: usize = KEY_BYTES + TAG_BYTES;
/// What the tag of a value covers besides its context. The master key is not in it: it may change.
const DATA_LABEL: &[u8] = b"data\0";
const KEY_TEXT_PREFIX: &str = "oncebox-master-key-1:";
const KEY_ID_LABEL: &[u8] = b"oncebox master key id 1\0";
const DERIVE_LABEL: &[u8] = b"oncebox derive 1\0";

/// Bytes that are wiped when dropped, never printed, and compared in constant time.
///
/// ```
/// use oncebox::base::secret::SecretBytes;
/// let secret = SecretBytes::new(b"s3cret".to_vec());
/// assert_eq!(format!("{secret:?}"), "SecretBytes(6 bytes)");
/// assert_eq!(secret.expose(), b"s3cret");
/// ```
#[derive(Clone)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// Takes ownership of the bytes. The caller wipes any copy that it keeps.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes themselves, for a computation or for the wire.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as text; `None` if they are not UTF-8.
    pub fn expose_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl PartialEq for SecretBytes {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_slice().ct_eq(other.0.as_slice()).into()
    }
}

impl Eq for SecretBytes {}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretBytes({} bytes)", self.0.len())
    }
}

/// Why a text is not a master key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    /// The text does not begin like a master key file of this version.
    #[error("this is not a master key: its text begins with `oncebox-master-key-1:`")]
    NoPrefix,
    /// What follows the prefix is not the base64 of 32 bytes.
    #[error(
        "this master key is damaged: `oncebox-master-key-1:` is followed by 44 characters of base64"
    )]
    Damaged,
}

/// Why something sealed could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It is shorter than any sealed value.
    #[error("the sealed value is cut off: {bytes} bytes, at least {least} are needed", least = HEAD_BYTES + TAG_BYTES)]
    Truncated {
        /// How many bytes there are.
        bytes: usize,
    },
    /// It has a layout that this version does not know.
    #[error("the sealed value has layout {found}, this version of Oncebox reads layouts 1 and 2")]
    OtherVersion {
        /// The first byte.
        found: u8,
    },
    /// It was sealed under another master key.
    #[error("the value was sealed under master key {need}, the one loaded is {have}")]
    OtherKey {
        /// Id of the key that was used to open.
        have: String,
        /// Id of the key under which it was sealed.
        need: String,
    },
    /// The bytes were changed, or moved here from another row or column.
    #[error("the sealed value was changed, or belongs to another row or column")]
    Tampered,
}

/// The key under which secrets are sealed in the file; it is kept outside the file.
///
/// ```
/// use oncebox::base::{id::SystemDraw, secret::MasterKey};
/// let draw = SystemDraw::new();
/// let key = MasterKey::generate(&draw);
/// let sealed = key.seal("credential|7|secret", b"whsec_...", &draw);
/// assert_eq!(key.open("credential|7|secret", &sealed)?.expose(), b"whsec_...");
/// assert!(key.open("credential|8|secret", &sealed).is_err());
/// # Ok::<(), oncebox::base::secret::OpenError>(())
/// ```
#[derive(Clone)]
pub struct MasterKey {
    key: Zeroizing<[u8; KEY_BYTES]>,
    id: [u8; KEY_ID_BYTES],
}

impl MasterKey {
    /// A new key.
    pub fn generate(draw: &dyn Draw) -> Self {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        draw.fill(key.as_mut_slice());
        Self::from_key(key)
    }

    fn from_key(key: Zeroizing<[u8; KEY_BYTES]>) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(KEY_ID_LABEL);
        context.update(key.as_slice());
        let mut id = [0; KEY_ID_BYTES];
        for (to, from) in id.iter_mut().zip(context.finish().as_ref()) {
            *to = *from;
        }
        Self { key, id }
    }

    /// Reads the text of a key file; white space around it is ignored.
    pub fn from_text(text: &str) -> Result<Self, KeyTextError> {
        let encoded = text.trim().strip_prefix(KEY_TEXT_PREFIX).ok_or(KeyTextError::NoPrefix)?;
        let decoded = BASE64.decode(encoded.as_bytes()).map_err(|_why| KeyTextError::Damaged)?;
        let decoded = Zeroizing::new(decoded);
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        if decoded.len() != KEY_BYTES {
            return Err(KeyTextError::Damaged);
        }
        key.copy_from_slice(&decoded);
        Ok(Self::from_key(key))
    }

    /// The text of a key file: one line, ended by a newline.
    pub fn to_text(&self) -> Zeroizing<String> {
        let encoded = Zeroizing::new(BASE64.encode(self.key.as_slice()));
        Zeroizing::new(format!("{KEY_TEXT_PREFIX}{}\n", encoded.as_str()))
    }

    /// Identifies the key without revealing it: 8 hex digits of a SHA-256 over it.
    pub fn key_id(&self) -> String {
        HEXLOWER.encode(&self.id)
    }

    /// Seals `plain` with AES-256-GCM for one column of one row: `context` is `table|row|column`. Each value has a random data
    /// key of its own, which this key wraps.
    ///
    /// *Shape*: version byte, 4 bytes of key id, the wrapped data key (12 bytes of nonce, 32 bytes of key, 16 bytes of tag), 12
    /// bytes of nonce, ciphertext, 16 bytes of tag. Both tags cover the context, so that a value moved to another row does not
    /// open.
    /// *Range*: nonces are random, so one key wraps 2^32 data keys (NIST SP 800-38D, section 8.3).
    ///
    /// # Panics
    /// Above 64 GiB of plain text; no value is that large.
    pub fn seal(&self, context: &str, plain: &[u8], draw: &dyn Draw) -> Vec<u8> {
        let mut data_key = Zeroizing::new([0; KEY_BYTES]);
        draw.fill(data_key.as_mut_slice());
        let mut out = self.wrap(context, &data_key, draw);
        let sealed = encrypt(&data_key, &data_aad(context), plain, draw);
        out.extend_from_slice(&sealed);
        out
    }

    /// Opens what [`MasterKey::seal`] made for the same context, or what was sealed under this key itself before.
    pub fn open(&self, context: &str, sealed: &[u8]) -> Result<SecretBytes, OpenError> {
        let (version, rest) = self.of_this_key(sealed)?;
        if version == DIRECT {
            return decrypt(&self.key, &self.aad(DIRECT, context), rest);
        }
        let (data_key, body) = self.unwrap(context, rest, sealed.len())?;
        decrypt(&data_key, &data_aad(context), body)
    }

    /// Has what this key has sealed opened by another one from now on. The value stays as it is sealed: only its data key is
    /// wrapped anew. A value without a data key gets one.
    pub fn rewrap(
        &self,
        to: &Self,
        context: &str,
        sealed: &[u8],
        draw: &dyn Draw,
    ) -> Result<Vec<u8>, OpenError> {
        let (version, rest) = self.of_this_key(sealed)?;
        if version == DIRECT {
            return Ok(to.seal(context, self.open(context, sealed)?.expose(), draw));
        }
        let (data_key, body) = self.unwrap(context, rest, sealed.len())?;
        let mut out = to.wrap(context, &data_key, draw);
        out.extend_from_slice(body);
        Ok(out)
    }

    /// The version of a sealed value, and what follows the key id, which is that of this key.
    fn of_this_key<'s>(&self, sealed: &'s [u8]) -> Result<(u8, &'s [u8]), OpenError> {
        let truncated = OpenError::Truncated { bytes: sealed.len() };
        if sealed.len() < HEAD_BYTES + TAG_BYTES {
            return Err(truncated);
        }
        let Some((&version, rest)) = sealed.split_first() else { return Err(truncated) };
        if version != DIRECT && version != WITH_DATA_KEY {
            return Err(OpenError::OtherVersion { found: version });
        }
        let Some((id, rest)) = rest.split_first_chunk::<KEY_ID_BYTES>() else {
            return Err(truncated);
        };
        if *id != self.id {
            return Err(OpenError::OtherKey { have: self.key_id(), need: HEXLOWER.encode(id) });
        }
        Ok((version, rest))
    }

    /// The head of a value: version, key id and the wrapped data key.
    fn wrap(&self, context: &str, data_key: &[u8; KEY_BYTES], draw: &dyn Draw) -> Vec<u8> {
        let mut out = vec![WITH_DATA_KEY];
        out.extend_from_slice(&self.id);
        let aad = self.aad(WITH_DATA_KEY, context);
        out.extend_from_slice(&encrypt(&self.key, &aad, data_key, draw));
        out
    }

    /// The data key in what follows the key id, and the sealed value after it.
    fn unwrap<'s>(
        &self,
        context: &str,
        rest: &'s [u8],
        bytes: usize,
    ) -> Result<(Zeroizing<[u8; KEY_BYTES]>, &'s [u8]), OpenError> {
        let wrapped = rest.split_at_checked(NONCE_LEN + WRAPPED_BYTES);
        let (wrapped, body) = wrapped.ok_or(OpenError::Truncated { bytes })?;
        let opened = decrypt(&self.key, &self.aad(WITH_DATA_KEY, context), wrapped)?;
        let mut data_key = Zeroizing::new([0; KEY_BYTES]);
        data_key.copy_from_slice(opened.expose());
        Ok((data_key, body))
    }

    /// The id of the key that sealed these bytes; `None` if they are not a sealed value.
    pub fn id_in(sealed: &[u8]) -> Option<String> {
        let id = sealed
            .get(1..=KEY_ID_BYTES)
            .filter(|_| matches!(sealed.first(), Some(&(DIRECT | WITH_DATA_KEY))))?;
        Some(HEXLOWER.encode(id))
    }

    /// A derived key for one purpose, such as hashing tokens: HMAC-SHA256 of the purpose under this key.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.key.as_slice());
        let mut context = hmac::Context::with_key(&key);
        context.update(DERIVE_LABEL);
        context.update(purpose.as_bytes());
        let mut out = [0; 32];
        out.copy_from_slice(context.sign().as_ref());
        out
    }

    fn aad(&self, version: u8, context: &str) -> Vec<u8> {
        let mut aad = vec![version];
        aad.extend_from_slice(&self.id);
        aad.extend_from_slice(context.as_bytes());
        aad
    }
}

fn data_aad(context: &str) -> Vec<u8> {
    [&[WITH_DATA_KEY], DATA_LABEL, context.as_bytes()].concat()
}

fn cipher(key: &[u8; KEY_BYTES]) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new)
}

/// A random nonce, the ciphertext and its tag.
///
/// # Panics
/// Above 64 GiB of plain text.
fn encrypt(key: &[u8; KEY_BYTES], aad: &[u8], plain: &[u8], draw: &dyn Draw) -> Vec<u8> {
    let mut nonce = [0; NONCE_LEN];
    draw.fill(&mut nonce);
    let mut out = nonce.to_vec();
    // If the cipher fails, the buffer still holds the plain text, so it is wiped on drop.
    let mut body = Zeroizing::new(plain.to_vec());
    let tag = cipher(key).and_then(|cipher| {
        let nonce = Nonce::assume_unique_for_key(nonce);
        cipher.seal_in_place_separate_tag(nonce, Aad::from(aad), &mut body).ok()
    });
    assert!(tag.is_some(), "AES-256-GCM takes 32 byte keys and texts under 64 GiB");
    out.extend_from_slice(&body);
    out.extend_from_slice(tag.as_ref().map_or(&[], AsRef::as_ref));
    out
}

/// Opens what [`encrypt`] made.
fn decrypt(key: &[u8; KEY_BYTES], aad: &[u8], sealed: &[u8]) -> Result<SecretBytes, OpenError> {
    let (nonce, body) = sealed.split_first_chunk::<NONCE_LEN>().ok_or(OpenError::Tampered)?;
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let mut body = Zeroizing::new(body.to_vec());
    let cipher = cipher(key).ok_or(OpenError::Tampered)?;
    let opened = cipher.open_in_place(nonce, Aad::from(aad), &mut body);
    let plain_bytes = opened.map_err(|_unspecified| OpenError::Tampered)?.len();
    body.truncate(plain_bytes);
    Ok(SecretBytes(body))
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.key_id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::SystemDraw;

    const CONTEXT: &str = "credential|0190|secret";

    #[test]
    fn a_sealed_value_opens_only_in_its_own_context() {
        let draw = SystemDraw::new();
        let key = MasterKey::generate(&draw);
        for plain in [b"".as_slice(), b"x", &[7; 5000]] {
            let sealed = key.seal(CONTEXT, plain, &draw);
            assert_eq!(key.open(CONTEXT, &sealed).unwrap().expose(), plain);
            let elsewhere = key.open("credential|0191|secret", &sealed);
            assert_eq!(elsewhere, Err(OpenError::Tampered));
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        let draw = SystemDraw::new();
        let key = MasterKey::generate(&draw);
        let sealed = key.seal(CONTEXT, b"whsec_abc", &draw);
        for at in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[at / 8] ^= 1 << (at % 8);
            let refused = key.open(CONTEXT, &changed).unwrap_err();
            match at / 8 {
                0 => assert!(matches!(refused, OpenError::OtherVersion { .. })),
                1..=4 => assert!(matches!(refused, OpenError::OtherKey { .. })),
                _ => assert_eq!(refused, OpenError::Tampered),
            }
        }
        for bytes in 0..sealed.len() {
            assert!(key.open(CONTEXT, &sealed[..bytes]).is_err());
        }
    }

    #[test]
    fn the_same_value_is_sealed_differently_each_time() {
        let draw = SystemDraw::new();
        let key = MasterKey::generate(&draw);
        assert_ne!(key.seal(CONTEXT, b"same", &draw), key.seal(CONTEXT, b"same", &draw));
    }

    #[test]
    fn another_master_key_is_named_rather_than_called_tampering() {
        let draw = SystemDraw::new();
        let old = MasterKey::generate(&draw);
        let new = MasterKey::generate(&draw);
        let refused = new.open(CONTEXT, &old.seal(CONTEXT, b"x", &draw)).unwrap_err();
        assert_eq!(refused, OpenError::OtherKey { have: new.key_id(), need: old.key_id() });
    }

    /// As layout 1 has it: version, key id, nonce, ciphertext and tag, under the master key itself.
    fn sealed_directly(key: &MasterKey, plain: &[u8], draw: &dyn Draw) -> Vec<u8> {
        let sealed = encrypt(&key.key, &key.aad(DIRECT, CONTEXT), plain, draw);
        [&[DIRECT], key.id.as_slice(), &sealed].concat()
    }

    #[test]
    fn another_master_key_takes_over_by_the_data_key_alone() {
        let draw = SystemDraw::new();
        let old = MasterKey::generate(&draw);
        let new = MasterKey::generate(&draw);
        let before = old.seal(CONTEXT, b"whsec_abc", &draw);
        let after = old.rewrap(&new, CONTEXT, &before, &draw).unwrap();
        let body = 1 + KEY_ID_BYTES + NONCE_LEN + WRAPPED_BYTES;
        assert_eq!(before[body..], after[body..], "what is sealed was not touched");
        assert_eq!(new.open(CONTEXT, &after).unwrap().expose(), b"whsec_abc");
        assert!(matches!(old.open(CONTEXT, &after), Err(OpenError::OtherKey { .. })));
        assert_eq!(MasterKey::id_in(&after), Some(new.key_id()));
        let elsewhere = old.rewrap(&new, "credential|0191|secret", &before, &draw);
        assert_eq!(elsewhere, Err(OpenError::Tampered));
    }

    #[test]
    fn what_was_sealed_before_data_keys_opens_and_gets_one_when_the_key_changes() {
        let draw = SystemDraw::new();
        let old = MasterKey::generate(&draw);
        let new = MasterKey::generate(&draw);
        let direct = sealed_directly(&old, b"s3cret", &draw);
        assert_eq!(old.open(CONTEXT, &direct).unwrap().expose(), b"s3cret");
        assert_eq!(MasterKey::id_in(&direct), Some(old.key_id()));
        let after = old.rewrap(&new, CONTEXT, &direct, &draw).unwrap();
        assert_eq!((after[0], new.open(CONTEXT, &after).unwrap().expose()), (2, &b"s3cret"[..]));
    }

    #[test]
    fn a_key_survives_its_text_form_and_does_not_print_itself() {
        let key = MasterKey::generate(&SystemDraw::new());
        let text = key.to_text();
        assert!(text.starts_with("oncebox-master-key-1:") && text.ends_with("=\n"));
        let again = MasterKey::from_text(&format!("  {}\r\n", text.as_str())).unwrap();
        assert_eq!(again.key_id(), key.key_id());
        assert_eq!(again.derive("tokens"), key.derive("tokens"));
        assert_ne!(key.derive("tokens"), key.derive("cursors"));
        assert_eq!(format!("{key:?}"), format!("MasterKey({})", key.key_id()));
    }

    #[test]
    fn a_damaged_key_text_is_refused() {
        let text = MasterKey::generate(&SystemDraw::new()).to_text();
        let cut = text.trim_end().trim_end_matches('=');
        assert_eq!(MasterKey::from_text(cut).unwrap_err(), KeyTextError::Damaged);
        assert_eq!(MasterKey::from_text("hunter2").unwrap_err(), KeyTextError::NoPrefix);
        let short = format!("oncebox-master-key-1:{}", BASE64.encode(&[1; 31]));
        assert_eq!(MasterKey::from_text(&short).unwrap_err(), KeyTextError::Damaged);
    }

    #[test]
    fn equality_of_secrets_is_by_content() {
        let one = SecretBytes::new(vec![1, 2]);
        assert!(one == SecretBytes::new(vec![1, 2]) && one != SecretBytes::new(vec![1, 2, 3]));
    }
}
