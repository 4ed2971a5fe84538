//! Subject keys: the data about one person is sealed under that person's own key, so that destroying the key
//! destroys the data in every copy.
//!
//! Sealing is deterministic in key, context and text: sealing a field of an event again gives equal bytes, so that
//! a repeated event is recognised by its content. Not here: where keys are stored (`store::subjects`) and which
//! fields are sealed ([`crate::privacy::policy`]).

use data_encoding::HEXLOWER;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use zeroize::Zeroizing;

use crate::base::id::Draw;
use crate::base::secret::SecretBytes;

/// Bytes of a key's id.
pub const ID_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
/// The first byte of every sealed value; another layout gets another number.
const VERSION: u8 = 1;
/// Bytes of the hash that replaces a value.
const HASH_BYTES: usize = 16;

/// The key of one subject.
///
/// ```
/// use oncebox::{base::id::SystemDraw, keys::subject::SubjectKey};
/// let key = SubjectKey::generate(&SystemDraw::new());
/// let sealed = key.seal("acme|evt_1", b"Jane");
/// assert_eq!(SubjectKey::id_in(&sealed), Some(key.id()));
/// assert_eq!(key.open("acme|evt_1", &sealed).unwrap().expose(), b"Jane");
/// assert!(key.open("acme|evt_2", &sealed).is_none());
/// ```
pub struct SubjectKey {
    id: [u8; ID_BYTES],
    key: Zeroizing<[u8; KEY_BYTES]>,
}

impl std::fmt::Debug for SubjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SubjectKey({})", HEXLOWER.encode(&self.id))
    }
}

impl SubjectKey {
    /// A new key with a new id.
    pub fn generate(draw: &dyn Draw) -> Self {
        let mut id = [0; ID_BYTES];
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        draw.fill(&mut id);
        draw.fill(key.as_mut_slice());
        Self { id, key }
    }

    /// A key from its stored bytes; `None` if their number is wrong.
    pub fn new(id: [u8; ID_BYTES], stored: &SecretBytes) -> Option<Self> {
        let key = Zeroizing::new(<[u8; KEY_BYTES]>::try_from(stored.expose()).ok()?);
        Some(Self { id, key })
    }

    /// Its id.
    pub fn id(&self) -> [u8; ID_BYTES] {
        self.id
    }

    /// The key's bytes; store them sealed only.
    pub fn expose(&self) -> &[u8] {
        self.key.as_slice()
    }

    /// Seals a text with AES-256-GCM for one field of one event, which `context` names.
    ///
    /// *Shape*: version, key id, nonce, ciphertext, tag. The nonce is an HMAC of context and text, so that no nonce
    /// is used for two texts.
    ///
    /// # Panics
    /// Above 64 GiB of plain text; no value is that large.
    pub fn seal(&self, context: &str, plain: &[u8]) -> Vec<u8> {
        let mut body = Zeroizing::new(plain.to_vec());
        let nonce = self.nonce(context, plain);
        let tag = self.cipher().and_then(|cipher| {
            let nonce = Nonce::assume_unique_for_key(nonce);
            cipher.seal_in_place_separate_tag(nonce, Aad::from(self.aad(context)), &mut body).ok()
        });
        assert!(tag.is_some(), "AES-256-GCM takes 32 byte keys and texts under 64 GiB");
        let mut out = Vec::with_capacity(1 + ID_BYTES + NONCE_LEN + plain.len() + TAG_BYTES);
        out.push(VERSION);
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&body);
        out.extend_from_slice(tag.as_ref().map_or(&[], AsRef::as_ref));
        out
    }

    /// Opens what [`SubjectKey::seal`] made for the same context; `None` for anything else.
    pub fn open(&self, context: &str, sealed: &[u8]) -> Option<SecretBytes> {
        let (_, rest) = split(sealed).filter(|(id, _)| *id == self.id)?;
        let (nonce, body) = rest.split_first_chunk::<NONCE_LEN>()?;
        let mut body = Zeroizing::new(body.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let cipher = self.cipher()?;
        let opened = cipher.open_in_place(nonce, Aad::from(self.aad(context)), &mut body).ok()?;
        Some(SecretBytes::new(opened.to_vec()))
    }

    /// The id of the key that sealed these bytes; `None` if they are not a sealed value.
    pub fn id_in(sealed: &[u8]) -> Option<[u8; ID_BYTES]> {
        split(sealed).map(|(id, _)| id)
    }

    fn derived(&self, purpose: &[u8]) -> hmac::Tag {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.key.as_slice());
        hmac::sign(&key, purpose)
    }

    fn cipher(&self) -> Option<LessSafeKey> {
        let key = self.derived(b"oncebox subject seal 1");
        UnboundKey::new(&AES_256_GCM, key.as_ref()).ok().map(LessSafeKey::new)
    }

    fn nonce(&self, context: &str, plain: &[u8]) -> [u8; NONCE_LEN] {
        let key = self.derived(b"oncebox subject nonce 1");
        let tag = keyed(key.as_ref(), &[context.as_bytes(), plain]);
        let mut nonce = [0; NONCE_LEN];
        nonce.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
        nonce
    }

    fn aad(&self, context: &str) -> Vec<u8> {
        let mut aad = vec![VERSION];
        aad.extend_from_slice(&self.id);
        aad.extend_from_slice(context.as_bytes());
        aad
    }
}

fn split(sealed: &[u8]) -> Option<([u8; ID_BYTES], &[u8])> {
    let (version, rest) = sealed.split_first()?;
    let (id, rest) = rest.split_first_chunk::<ID_BYTES>()?;
    (*version == VERSION && rest.len() >= NONCE_LEN + TAG_BYTES).then_some((*id, rest))
}

/// HMAC-SHA-256 over length-prefixed parts, so that no two lists of parts share an input.
pub(super) fn keyed(key: &[u8], parts: &[&[u8]]) -> hmac::Tag {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let mut context = hmac::Context::with_key(&key);
    for part in parts {
        context.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        context.update(part);
    }
    context.sign()
}

/// Makes the pseudonyms that replace names and values in the file: HMACs under a key that only this installation
/// has, and that a rotation of the master key does not change.
#[derive(Clone)]
pub struct Pseudonyms(Zeroizing<Vec<u8>>);

impl std::fmt::Debug for Pseudonyms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pseudonyms")
    }
}

impl Pseudonyms {
    /// Derives the HMAC key from the installation's pepper.
    pub fn new(pepper: &SecretBytes) -> Self {
        Self(Zeroizing::new(keyed(pepper.expose(), &[b"oncebox pseudonyms 1"]).as_ref().to_vec()))
    }

    /// The pseudonym of a subject in the file.
    pub fn subject(&self, tenant: &str, name: &str) -> [u8; 32] {
        let tag = keyed(&self.0, &[b"subject", tenant.as_bytes(), name.as_bytes()]);
        let mut out = [0; 32];
        out.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
        out
    }

    /// The replacement of a value: equal for equal values of one tenant.
    pub fn value(&self, tenant: &str, text: &str) -> String {
        let tag = keyed(&self.0, &[b"value", tenant.as_bytes(), text.as_bytes()]);
        let short = tag.as_ref().get(..HASH_BYTES).unwrap_or_default();
        format!("hmac:{}", HEXLOWER.encode(short))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::SystemDraw;

    #[test]
    fn sealing_is_deterministic_and_opens_in_its_own_context_only() {
        let draw = SystemDraw::new();
        let key = SubjectKey::generate(&draw);
        let other = SubjectKey::generate(&draw);
        let sealed = key.seal("here", b"Jane");
        assert_eq!(sealed, key.seal("here", b"Jane"));
        assert_ne!(sealed, key.seal("here", b"June"));
        assert_ne!(sealed[29..], key.seal("there", b"Jane")[29..]);
        assert!(key.open("there", &sealed).is_none() && other.open("here", &sealed).is_none());
        let kept = SubjectKey::new(key.id(), &SecretBytes::new(key.expose().to_vec())).unwrap();
        assert_eq!(kept.open("here", &sealed).unwrap().expose(), b"Jane");
    }

    #[test]
    fn a_flipped_bit_or_a_cut_is_noticed() {
        let key = SubjectKey::generate(&SystemDraw::new());
        let sealed = key.seal("here", b"Jane");
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(key.open("here", &changed).is_none(), "byte {at}");
            assert!(key.open("here", &sealed[..at]).is_none(), "cut at {at}");
        }
    }

    #[test]
    fn pseudonyms_differ_by_tenant_and_purpose() {
        let names = Pseudonyms::new(&SecretBytes::new(vec![7; 32]));
        assert_eq!(names.value("a", "x"), names.value("a", "x"));
        assert_ne!(names.value("a", "x"), names.value("b", "x"));
        assert_ne!(names.subject("ab", "c"), names.subject("a", "bc"));
    }
}
