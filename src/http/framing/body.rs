//! The body of an unfinished request: as long as declared, or until its last chunk.

use crate::http::chunks::Chunks;
use crate::http::head::{Extent, Manner, Parsed, Refusal};
use crate::http::message::Request;

/// What has come of a body, and how much may.
#[derive(Debug)]
pub(super) struct Body {
    parsed: Parsed,
    limit: usize,
    /// The decoder, where the length is not known beforehand.
    chunks: Option<Chunks>,
    bytes: Vec<u8>,
    /// Bytes of memory that the head holds.
    head_held: usize,
}

impl Body {
    /// `None` if the declared length is over the limit.
    pub(super) fn new(parsed: Parsed, limit: usize) -> Option<Self> {
        let (limit, chunks) = match parsed.extent {
            Extent::Chunked => (limit, Some(Chunks::new())),
            Extent::Fixed(length) => {
                (usize::try_from(length).ok().filter(|length| *length <= limit)?, None)
            }
        };
        let head_held = parsed.head.held();
        Some(Self { parsed, limit, chunks, bytes: Vec::new(), head_held })
    }

    /// The declared length; where there is none, the limit.
    pub(super) const fn expected(&self) -> usize {
        self.limit
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> usize {
        self.head_held.saturating_add(self.bytes.capacity())
    }

    /// How its request wants to be answered.
    pub(super) const fn manner(&self) -> Manner {
        self.parsed.manner
    }

    /// Takes bytes of the body; gives how many, and whether it is complete.
    pub(super) fn fill(&mut self, bytes: &[u8]) -> Result<(usize, bool), Refusal> {
        if let Some(chunks) = &mut self.chunks {
            let used = chunks.decode(bytes, &mut self.bytes, self.limit)?;
            return Ok((used, chunks.ended()));
        }
        let missing = self.limit.saturating_sub(self.bytes.len());
        let now = bytes.get(..missing).unwrap_or(bytes);
        self.make_room(now.len());
        self.bytes.extend_from_slice(now);
        Ok((now.len(), now.len() == missing))
    }

    /// Reserves at most twice what has come, so that a declared length costs no memory. Doubles as `Vec`
    /// does, but not beyond the declared length.
    fn make_room(&mut self, more: usize) {
        let needed = self.bytes.len().saturating_add(more);
        if needed > self.bytes.capacity() {
            let grown = self.bytes.capacity().saturating_mul(2);
            let wanted = grown.min(self.limit).max(needed);
            self.bytes.reserve_exact(wanted.saturating_sub(self.bytes.len()));
        }
    }

    /// The request it belongs to, and how that wants to be answered.
    pub(super) fn whole(self) -> (Request, Manner) {
        let Parsed { head, manner, .. } = self.parsed;
        (Request { head, body: self.bytes }, manner)
    }
}
