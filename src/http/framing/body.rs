//! The body of an unfinished request: as long as declared, or until its last chunk. Pure.
//!
//! As strict as `head`. Chunk extensions and trailers are checked, limited and dropped: nothing needs them, and a trailer
//! has not passed the checks of the head.

use crate::http::head::{BodyLength, Parsed, Refusal, ReplyMode};
use crate::http::message::Request;

/// An unfinished body.
#[derive(Debug)]
pub(super) struct Body {
    parsed: Parsed,
    limit: usize,
    /// The decoder of a chunked body.
    chunks: Option<Chunks>,
    bytes: Vec<u8>,
    /// Bytes of memory that the head holds.
    head_held: usize,
}

impl Body {
    /// `None` if the declared length is over the limit.
    pub(super) fn new(parsed: Parsed, limit: usize) -> Option<Self> {
        let (limit, chunks) = match parsed.body_length {
            BodyLength::Chunked => (limit, Some(Chunks::new())),
            BodyLength::Fixed(length) => {
                (usize::try_from(length).ok().filter(|length| *length <= limit)?, None)
            }
        };
        let head_held = parsed.head.held();
        Some(Self { parsed, limit, chunks, bytes: Vec::new(), head_held })
    }

    /// The declared length, or the limit of a chunked body.
    pub(super) const fn expected(&self) -> usize {
        self.limit
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> usize {
        self.head_held.saturating_add(self.bytes.capacity())
    }

    /// How to answer its request.
    pub(super) const fn mode(&self) -> ReplyMode {
        self.parsed.mode
    }

    /// Adds bytes of the body. Returns how many it used, and whether the body is complete.
    pub(super) fn fill(&mut self, bytes: &[u8]) -> Result<(usize, bool), Refusal> {
        if let Some(chunks) = &mut self.chunks {
            let used = chunks.decode(bytes, &mut self.bytes, self.limit)?;
            return Ok((used, chunks.ended()));
        }
        let missing = self.limit.saturating_sub(self.bytes.len());
        let now = bytes.get(..missing).unwrap_or(bytes);
        self.reserve(now.len());
        self.bytes.extend_from_slice(now);
        Ok((now.len(), now.len() == missing))
    }

    /// Reserves at most twice the received bytes, so that a declared length alone costs no memory. Doubles like `Vec`, but
    /// not beyond the declared length.
    fn reserve(&mut self, more: usize) {
        let needed = self.bytes.len().saturating_add(more);
        if needed > self.bytes.capacity() {
            let grown = self.bytes.capacity().saturating_mul(2);
            let wanted = grown.min(self.limit).max(needed);
            self.bytes.reserve_exact(wanted.saturating_sub(self.bytes.len()));
        }
    }

    /// The complete request, and how to answer it.
    pub(super) fn into_request(self) -> (Request, ReplyMode) {
        let Parsed { head, mode, .. } = self.parsed;
        (Request { head, body: self.bytes }, mode)
    }
}

/// Most digits of a chunk size: eight reach 4 GiB, which is over any limit, and cannot overflow.
const SIZE_DIGITS: usize = 8;

/// Most bytes of a line of the coding: a size with its extensions, or a trailer field.
const LINE_BYTES: usize = 1024;

/// Most lines of the trailer.
const TRAILER_LINES: usize = 16;

const fn bad(detail: &'static str) -> Refusal {
    Refusal::new(400, detail)
}

/// The decoder's position in the coding.
#[derive(Clone, Copy, Debug)]
enum ChunkState {
    Size,
    Data { left: usize },
    AfterData,
    Trailer { lines: usize },
    End,
}

/// A decoder for one body.
#[derive(Debug)]
struct Chunks {
    state: ChunkState,
}

impl Chunks {
    const fn new() -> Self {
        Self { state: ChunkState::Size }
    }

    const fn ended(&self) -> bool {
        matches!(self.state, ChunkState::End)
    }

    /// Decodes `bytes` into `body`, and returns how many bytes it used. Stops at the end of the body, or when it needs
    /// more bytes.
    fn decode(&mut self, bytes: &[u8], body: &mut Vec<u8>, limit: usize) -> Result<usize, Refusal> {
        let mut used: usize = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let Some((step, state)) = self.step(rest, body, limit)? else { return Ok(used) };
            used = used.saturating_add(step);
            self.state = state;
        }
    }

    /// One step: the used bytes and the next state. `None` if more bytes are needed, or at the end.
    fn step(
        &self,
        rest: &[u8],
        body: &mut Vec<u8>,
        limit: usize,
    ) -> Result<Option<(usize, ChunkState)>, Refusal> {
        Ok(match self.state {
            ChunkState::Size => match line(rest)? {
                None => None,
                Some(line) => {
                    Some((past(line), after_size(line, limit.saturating_sub(body.len()))?))
                }
            },
            ChunkState::Data { left } => {
                let (now, _) = rest.split_at_checked(left).unwrap_or((rest, &[]));
                body.extend_from_slice(now);
                match left.saturating_sub(now.len()) {
                    0 => Some((now.len(), ChunkState::AfterData)),
                    _ if now.is_empty() => None,
                    left => Some((now.len(), ChunkState::Data { left })),
                }
            }
            ChunkState::AfterData => match rest {
                [] | [b'\r'] => None,
                [b'\r', b'\n', ..] => Some((2, ChunkState::Size)),
                _ => return Err(bad("a chunk does not end where its size says")),
            },
            ChunkState::Trailer { lines } => match line(rest)? {
                None => None,
                Some([]) => Some((2, ChunkState::End)),
                Some(_) if lines == TRAILER_LINES => {
                    return Err(Refusal::new(431, "too many trailers"));
                }
                Some(field) => Some((past(field), after_trailer(field, lines)?)),
            },
            ChunkState::End => None,
        })
    }
}

/// The line at the beginning of `bytes`, without its end; `None` if it is incomplete.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Refusal> {
    let seen = bytes.split_at_checked(LINE_BYTES).map_or(bytes, |(seen, _)| seen);
    let Some(at) = seen.iter().position(|&byte| byte.is_ascii_control() && byte != b'\t') else {
        let is_too_long = seen.len() == LINE_BYTES;
        return if is_too_long {
            Err(bad("a line of the chunked coding is too long"))
        } else {
            Ok(None)
        };
    };
    let (line, end) = seen.split_at_checked(at).unwrap_or_default();
    match (end, bytes.get(at.saturating_add(1))) {
        ([b'\r', ..], Some(b'\n')) => Ok(Some(line)),
        ([b'\r', ..], None) => Ok(None),
        _ => Err(bad("a control character or a bare CR or LF in the chunked coding")),
    }
}

/// The length of a line with its CR LF.
const fn past(line: &[u8]) -> usize {
    line.len().saturating_add(2)
}

fn after_size(line: &[u8], room: usize) -> Result<ChunkState, Refusal> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, rest) = line.split_at_checked(digits).unwrap_or_default();
    if size.is_empty() || size.len() > SIZE_DIGITS {
        return Err(bad("a malformed chunk size"));
    }
    if !matches!(rest.trim_ascii_start(), [] | [b';', ..]) {
        return Err(bad("a malformed chunk size"));
    }
    let text = std::str::from_utf8(size).unwrap_or_default();
    let size = u32::from_str_radix(text, 16).ok().and_then(|size| usize::try_from(size).ok());
    match size {
        None => Err(bad("a malformed chunk size")),
        Some(0) => Ok(ChunkState::Trailer { lines: 0 }),
        Some(size) if size > room => Err(Refusal::new(413, "the body is larger than allowed here")),
        Some(left) => Ok(ChunkState::Data { left }),
    }
}

fn after_trailer(field: &[u8], lines: usize) -> Result<ChunkState, Refusal> {
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let name = field.iter().take_while(|byte| token(byte)).count();
    if name == 0 || field.get(name) != Some(&b':') {
        return Err(bad("a malformed trailer"));
    }
    Ok(ChunkState::Trailer { lines: lines.saturating_add(1) })
}
