//! Identifiers: UUIDv7 for rows that the API shows, `webhook-id` for events, `dlv_…` for deliveries.

use std::cell::RefCell;
use std::fmt;

use data_encoding::BASE32_NOPAD;
use ring::digest::{Context, SHA256};
use ring::rand::{SecureRandom, SystemRandom};

use crate::base::clock::Timestamp;
use crate::base::words::as_text;

/// Random bytes that a thread draws at once for what is no secret.
const BLOCK_BYTES: usize = 1024;
/// The bytes of a digest that are in a `webhook-id`.
pub const WEBHOOK_ID_BYTES: usize = 16;

/// Randomness that is injected: identifiers, jitter, secrets.
pub trait Draw: Send + Sync {
    /// Fills `into` with random bytes.
    fn fill(&self, into: &mut [u8]);

    /// The same for what is no secret: identifiers, jitter. May be of a block that was drawn before.
    fn fill_open(&self, into: &mut [u8]) {
        self.fill(into);
    }

    /// A number below `end`; 0 when `end` is 0. The bias of the remainder (below 2^-30 for the spans of
    /// a retry schedule) does not matter for jitter.
    fn below(&self, end: u64) -> u64 {
        let mut bytes = [0_u8; 8];
        self.fill_open(&mut bytes);
        u64::from_le_bytes(bytes).checked_rem(end).unwrap_or(0)
    }
}

/// The operating system's random source.
#[derive(Debug)]
pub struct SystemDraw(SystemRandom);

impl SystemDraw {
    /// A handle on the operating system's random source.
    pub fn new() -> Self {
        Self(SystemRandom::new())
    }
}

impl Default for SystemDraw {
    fn default() -> Self {
        Self::new()
    }
}

impl Draw for SystemDraw {
    /// # Panics
    /// When the operating system gives no random bytes: no key or identifier made without them would be safe.
    fn fill(&self, into: &mut [u8]) {
        assert!(self.0.fill(into).is_ok(), "the operating system gave no random bytes");
    }

    /// Each thread draws blocks of its own: a call of the system for each identifier was a tenth of an event's calls.
    fn fill_open(&self, into: &mut [u8]) {
        thread_local! {
            static BLOCK: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        BLOCK.with_borrow_mut(|block| {
            if block.len() < into.len() {
                block.resize(into.len().max(BLOCK_BYTES), 0);
                self.fill(block);
            }
            // What was given out is gone.
            let rest = block.len().saturating_sub(into.len());
            into.iter_mut().zip(block.drain(rest..)).for_each(|(byte, drawn)| *byte = drawn);
        });
    }
}

/// A UUIDv7 that follows from its parts, for rows made in a transaction: one that runs twice makes the same row.
pub fn uuid7_of(now: Timestamp, parts: &[&str]) -> String {
    struct Digest([u8; 32]);
    impl Draw for Digest {
        fn fill(&self, into: &mut [u8]) {
            into.iter_mut().zip(self.0).for_each(|(byte, digest)| *byte = digest);
        }
    }
    uuid7(now, &Digest(identity_digest(parts)))
}

/// A new UUIDv7 (RFC 9562): sorts by the time it was made.
///
/// ```
/// use oncebox::base::{clock::Timestamp, id};
/// let id = id::uuid7(Timestamp::from_secs(1_700_000_000), &id::SystemDraw::new());
/// assert!(id.starts_with("018bcfe5-6800-7"));
/// ```
pub fn uuid7(now: Timestamp, draw: &dyn Draw) -> String {
    let mut random = [0_u8; 10];
    draw.fill_open(&mut random);
    let ms = u64::try_from(now.ms()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid().to_string()
}

/// The `webhook-id` of an event: `evt_` and 128 bits of SHA-256 over its identity.
///
/// One event has one id on every attempt and for every subscriber, even if it is published again after a
/// restore, so a consumer's guard still recognises it. The parts are length-prefixed, so that no two
/// identities share an input.
///
/// ```
/// let id = oncebox::base::id::webhook_id("default", "erp", "invoice.paid:4711");
/// assert_eq!(id.len(), 30);
/// assert_eq!(id, oncebox::base::id::webhook_id("default", "erp", "invoice.paid:4711"));
/// ```
pub fn webhook_id(tenant: &str, source_system: &str, idempotency_key: &str) -> String {
    let digest = identity_digest(&[tenant, source_system, idempotency_key]);
    let head = digest.get(..WEBHOOK_ID_BYTES).unwrap_or_default();
    format!("evt_{}", BASE32_NOPAD.encode(head).to_ascii_lowercase())
}

/// The 16 bytes of a `webhook-id`; `None` if it is none.
#[cfg(feature = "service")]
pub fn webhook_id_bytes(webhook_id: &str) -> Option<Vec<u8>> {
    let text = webhook_id.strip_prefix("evt_")?.to_ascii_uppercase();
    BASE32_NOPAD.decode(text.as_bytes()).ok().filter(|bytes| bytes.len() == WEBHOOK_ID_BYTES)
}

/// SHA-256 over length-prefixed parts.
pub fn identity_digest(parts: &[&str]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        context.update(part.as_bytes());
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

/// SHA-256 of bytes, as lower-case hex.
pub fn sha256_hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(ring::digest::digest(&SHA256, bytes).as_ref())
}

/// When a UUIDv7 was made; `None` if the text is not one.
///
/// ```
/// use oncebox::base::{clock::Timestamp, id};
/// let at = Timestamp::from_secs(1_769_860_800);
/// assert_eq!(id::made_at(&id::uuid7(at, &id::SystemDraw::new())), Some(at));
/// assert_eq!(id::made_at("soon"), None);
/// ```
pub fn made_at(uuid7: &str) -> Option<Timestamp> {
    let made = uuid::Uuid::try_parse(uuid7).ok()?.get_timestamp()?;
    let (secs, nanos) = made.to_unix();
    let millis = i64::try_from(secs).ok()?.checked_mul(1000)?;
    millis.checked_add(i64::from(nanos / 1_000_000)).map(Timestamp::from_ms)
}

/// A delivery's number, shown outside as `dlv_17`; its third attempt is `dlv_17.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliverySeq(pub i64);

impl DeliverySeq {
    /// Reads `dlv_17`, or the bare number.
    ///
    /// ```
    /// use oncebox::base::id::DeliverySeq;
    /// assert_eq!(DeliverySeq::parse("dlv_17"), Ok(DeliverySeq(17)));
    /// assert!(DeliverySeq::parse("dlv_-1").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("dlv_").unwrap_or(text);
        let is_number = digits.bytes().all(|b| b.is_ascii_digit());
        let number = digits.parse().ok().filter(|_| is_number).map(Self);
        number.ok_or_else(|| format!("{text:?} is not a delivery's id, like dlv_17"))
    }
}

impl fmt::Display for DeliverySeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dlv_{}", self.0)
    }
}

as_text!(DeliverySeq);

/// A subscription's number in the file; the API shows its name and UUID instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionSeq(pub i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_run_together_give_different_ids() {
        assert_ne!(webhook_id("a", "bc", "d"), webhook_id("ab", "c", "d"));
    }

    #[test]
    fn bytes_of_a_block_are_given_once() {
        let draw = SystemDraw::new();
        let some = || {
            let mut bytes = [0_u8; 16];
            draw.fill_open(&mut bytes);
            bytes
        };
        let all: std::collections::HashSet<_> = (0..1000).map(|_| some()).collect();
        assert_eq!(all.len(), 1000);
        let mut large = vec![0; 3 * BLOCK_BYTES];
        draw.fill_open(&mut large);
        assert!(large.chunks(16).all(|chunk| chunk != [0; 16]));
    }

    #[test]
    fn uuids_sort_by_time() {
        let draw = SystemDraw::new();
        assert!(uuid7(Timestamp::from_ms(1), &draw) < uuid7(Timestamp::from_ms(2), &draw));
    }
}
