//! Takes the chunked transfer coding off a body, bit by bit as it comes. Pure.
//!
//! Strict for the reason `head` is. Extensions and trailers are checked, bounded and dropped: nothing
//! here needs them, and a trailer that joined the fields would have passed no check of the head.

use crate::http::head::Refusal;

/// Digits of a chunk size: eight reach 4 GiB, beyond any limit, and cannot overflow.
const SIZE_DIGITS: usize = 8;

/// Bytes of one line of the coding: a size with its extensions, or one trailer field.
const LINE_BYTES: usize = 1024;

/// Lines of the trailer.
const TRAILER_LINES: usize = 16;

const fn bad(detail: &'static str) -> Refusal {
    Refusal::new(400, detail)
}

/// Where in the coding the next byte stands.
#[derive(Clone, Copy, Debug)]
enum Place {
    Size,
    Data { left: usize },
    AfterData,
    Trailer { lines: usize },
    End,
}

/// A decoder for one body.
#[derive(Debug)]
pub(crate) struct Chunks {
    place: Place,
}

impl Chunks {
    pub(crate) const fn new() -> Self {
        Self { place: Place::Size }
    }

    pub(crate) const fn ended(&self) -> bool {
        matches!(self.place, Place::End)
    }

    /// Appends what `bytes` hold of the body; gives how many bytes it used. Stops at the end of the
    /// body, or where it needs more bytes than there are.
    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        body: &mut Vec<u8>,
        limit: usize,
    ) -> Result<usize, Refusal> {
        let mut used: usize = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let Some((step, place)) = self.step(rest, body, limit)? else { return Ok(used) };
            used = used.saturating_add(step);
            self.place = place;
        }
    }

    /// One step: bytes used and where that leads; `None` when more bytes are needed, or no more.
    fn step(
        &self,
        rest: &[u8],
        body: &mut Vec<u8>,
        limit: usize,
    ) -> Result<Option<(usize, Place)>, Refusal> {
        Ok(match self.place {
            Place::Size => match line(rest)? {
                None => None,
                Some(line) => {
                    Some((past(line), after_size(line, limit.saturating_sub(body.len()))?))
                }
            },
            Place::Data { left } => {
                let (now, _) = rest.split_at_checked(left).unwrap_or((rest, &[]));
                body.extend_from_slice(now);
                match left.saturating_sub(now.len()) {
                    0 => Some((now.len(), Place::AfterData)),
                    _ if now.is_empty() => None,
                    left => Some((now.len(), Place::Data { left })),
                }
            }
            Place::AfterData => match rest {
                [] | [b'\r'] => None,
                [b'\r', b'\n', ..] => Some((2, Place::Size)),
                _ => return Err(bad("a chunk does not end where its size says")),
            },
            Place::Trailer { lines } => match line(rest)? {
                None => None,
                Some([]) => Some((2, Place::End)),
                Some(_) if lines == TRAILER_LINES => {
                    return Err(Refusal::new(431, "too many trailers"));
                }
                Some(field) => Some((past(field), after_trailer(field, lines)?)),
            },
            Place::End => None,
        })
    }
}

/// The line that begins here, without its end; `None` when it is not all there.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Refusal> {
    let seen = bytes.split_at_checked(LINE_BYTES).map_or(bytes, |(seen, _)| seen);
    let Some(at) = seen.iter().position(|&byte| byte.is_ascii_control() && byte != b'\t') else {
        let whole = seen.len() == LINE_BYTES;
        return if whole { Err(bad("a line of the chunked coding is too long")) } else { Ok(None) };
    };
    let (line, end) = seen.split_at_checked(at).unwrap_or_default();
    match (end, bytes.get(at.saturating_add(1))) {
        ([b'\r', ..], Some(b'\n')) => Ok(Some(line)),
        ([b'\r', ..], None) => Ok(None),
        _ => Err(bad("a control character or a bare CR or LF in the chunked coding")),
    }
}

/// Length of a line with its CR LF.
const fn past(line: &[u8]) -> usize {
    line.len().saturating_add(2)
}

fn after_size(line: &[u8], room: usize) -> Result<Place, Refusal> {
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
        Some(0) => Ok(Place::Trailer { lines: 0 }),
        Some(size) if size > room => Err(Refusal::new(413, "the body is larger than allowed here")),
        Some(left) => Ok(Place::Data { left }),
    }
}

fn after_trailer(field: &[u8], lines: usize) -> Result<Place, Refusal> {
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let name = field.iter().take_while(|byte| token(byte)).count();
    if name == 0 || field.get(name) != Some(&b':') {
        return Err(bad("a malformed trailer"));
    }
    Ok(Place::Trailer { lines: lines.saturating_add(1) })
}
