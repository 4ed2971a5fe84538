//! Content codings of request bodies: which ones a request names, and how a body is unpacked within bounds.
//!
//! Not here: whether a signature covers the packed or the unpacked bytes (`pipeline::receive`), and packing
//! (`console::layout`).

use std::io::{self, Read};

use brotli_decompressor::Decompressor;
use flate2::bufread::GzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use crate::base::budget::{Budget, Share};
use crate::base::headers::Headers;

/// Codings of one body at most. A second one is already rare.
const MAX_CODINGS: usize = 2;
/// Members of a gzip body, or frames of a zstd body, at most. Each one costs time even if it is empty.
const MAX_MEMBERS: usize = 64;
/// Unpacked bytes that are read, checked and charged at once.
const STEP_BYTES: usize = 64 * 1024;
/// How often the unpacked bytes are in memory at once: while they are collected, and as the stored event.
const COPIES: usize = 3;
/// The largest window of a zstd frame. Source: RFC 9659.
const MAX_ZSTD_WINDOW: usize = 8 << 20;
/// Bytes of memory that any decoder takes beside its window, for its tables.
const DECODER_BYTES: usize = 256 * 1024;

/// A content coding that can be unpacked. Source: RFC 9110 section 8.4.1, RFC 7932, RFC 8878.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// `gzip`, also named `x-gzip`.
    Gzip,
    /// `deflate`, with or without the header of zlib.
    Deflate,
    /// `br`.
    Brotli,
    /// `zstd`.
    Zstd,
}

/// The names of all codings, for the header field `Accept-Encoding`.
pub const ACCEPTED: &str = "gzip, deflate, br, zstd";

/// Why a body cannot be unpacked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodingError {
    /// The coding is not one of [`ACCEPTED`].
    #[error("The content coding {0:?} is not supported; send the body plain, or as {ACCEPTED}.")]
    Unknown(String),
    /// The body has too many codings, one in another.
    #[error("The body has {0} content codings; at most {MAX_CODINGS} are unpacked.")]
    Many(usize),
    /// The bytes are not what the coding says.
    #[error("The body is not valid {0}, although Content-Encoding names it.")]
    Corrupt(&'static str),
    /// The unpacked body is larger than the provider may send.
    #[error("Unpacked, the body has more than {0} bytes, which is the provider's body_bytes_max.")]
    Large(usize),
    /// The memory budget has no room for the unpacked body now.
    #[error("Too many large requests are in progress; send it again shortly.")]
    Saturated,
}

/// An unpacked body, with the memory that it is charged for.
#[derive(Debug)]
pub struct Unpacked {
    /// The plain bytes.
    pub body: Vec<u8>,
    /// Keep them as long as the body.
    pub shares: Vec<Share>,
}

impl Coding {
    fn parse(name: &str) -> Option<Self> {
        let all = [
            ("gzip", Self::Gzip),
            ("x-gzip", Self::Gzip),
            ("deflate", Self::Deflate),
            ("br", Self::Brotli),
            ("zstd", Self::Zstd),
        ];
        all.into_iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, coding)| coding)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }

    /// Bytes of memory that its decoder takes for this body.
    fn memory(self, packed: &[u8]) -> usize {
        let window = match self {
            Self::Gzip | Self::Deflate => 32 << 10,
            Self::Brotli => brotli_window(packed),
            Self::Zstd => MAX_ZSTD_WINDOW,
        };
        window.saturating_add(DECODER_BYTES)
    }
}

/// The codings of a request's body in the order in which they were applied; `identity` is none.
/// Fails for an unknown coding, and for too many.
///
/// ```
/// use oncebox::base::headers::Headers;
/// use oncebox::http::content_coding::{Coding, codings};
/// let mut headers = Headers::default();
/// assert_eq!(codings(&headers), Ok(Vec::new()));
/// headers.push("Content-Encoding", b"identity, GZIP");
/// assert_eq!(codings(&headers), Ok(vec![Coding::Gzip]));
/// headers.push("Content-Encoding", b"compress");
/// assert!(codings(&headers).is_err());
/// ```
pub fn codings(headers: &Headers) -> Result<Vec<Coding>, CodingError> {
    let fields = headers.iter().filter(|(name, _)| *name == "content-encoding");
    let mut found = Vec::new();
    for (_, value) in fields {
        for name in String::from_utf8_lossy(value).split(',').map(str::trim) {
            if name.is_empty() || name.eq_ignore_ascii_case("identity") {
                continue;
            }
            let shown = || name.chars().take(64).collect();
            found.push(Coding::parse(name).ok_or_else(|| CodingError::Unknown(shown()))?);
        }
    }
    if found.len() > MAX_CODINGS {
        return Err(CodingError::Many(found.len()));
    }
    Ok(found)
}

/// Unpacks a body of at most `most` bytes. The memory is charged to `budget` step by step, before it is used.
/// Fails with [`CodingError`]; nothing is kept of the body then.
pub fn unpack(
    codings: &[Coding],
    packed: &[u8],
    most: usize,
    budget: &Budget,
) -> Result<Unpacked, CodingError> {
    let mut unpacked: Option<Unpacked> = None;
    // An empty body is empty under each coding: some senders name one on every request.
    let codings = if packed.is_empty() { &[] } else { codings };
    for coding in codings.iter().rev() {
        let from = unpacked.as_ref().map_or(packed, |so_far| &so_far.body);
        unpacked = Some(unpack_one(*coding, from, most, budget)?);
    }
    Ok(unpacked.unwrap_or_else(|| Unpacked { body: packed.to_vec(), shares: Vec::new() }))
}

fn unpack_one(
    coding: Coding,
    packed: &[u8],
    most: usize,
    budget: &Budget,
) -> Result<Unpacked, CodingError> {
    let _decoder = budget.try_take(coding.memory(packed)).ok_or(CodingError::Saturated)?;
    let mut output =
        Output { coding, most, budget, body: Vec::new(), shares: Vec::new(), step: Vec::new() };
    output.step.resize(STEP_BYTES, 0);
    let corrupt = || CodingError::Corrupt(coding.name());
    let mut zstd = FrameDecoder::new();
    zstd.set_max_window_size(u64::try_from(MAX_ZSTD_WINDOW).unwrap_or(u64::MAX));
    let mut rest = packed;
    for _ in 0..MAX_MEMBERS {
        rest = match coding {
            Coding::Gzip => {
                let mut member = GzDecoder::new(rest);
                output.take_all(&mut member)?;
                member.into_inner()
            }
            Coding::Deflate => {
                let mut stream = Inflate::new(rest);
                output.take_all(&mut stream)?;
                stream.rest
            }
            Coding::Brotli => {
                output.take_all(&mut Decompressor::new(rest, STEP_BYTES))?;
                &[]
            }
            Coding::Zstd => zstd_frame(&mut zstd, rest, &mut output)?,
        };
        if rest.is_empty() {
            let Output { body, shares, .. } = output;
            return Ok(Unpacked { body, shares });
        }
        if coding == Coding::Deflate {
            return Err(corrupt());
        }
    }
    Err(corrupt())
}

/// Unpacks one frame; returns the bytes after it.
fn zstd_frame<'b>(
    decoder: &mut FrameDecoder,
    packed: &'b [u8],
    output: &mut Output<'_>,
) -> Result<&'b [u8], CodingError> {
    let corrupt = || CodingError::Corrupt(Coding::Zstd.name());
    let mut rest = packed;
    let frame = match StreamingDecoder::new_with_decoder(&mut rest, &mut *decoder) {
        Ok(frame) => Some(frame),
        // A frame without content, for the sender's own purposes.
        Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
            length,
            ..
        })) => {
            let length = usize::try_from(length).map_err(|_too_long| corrupt())?;
            return rest.get(length..).ok_or_else(corrupt);
        }
        Err(_) => None,
    };
    output.take_all(&mut frame.ok_or_else(corrupt)?)?;
    let stated = decoder.get_checksum_from_data();
    if stated.is_some() && stated != decoder.get_calculated_checksum() {
        return Err(corrupt());
    }
    Ok(rest)
}

/// Collects unpacked bytes, within the limit and the budget.
struct Output<'b> {
    coding: Coding,
    most: usize,
    budget: &'b Budget,
    body: Vec<u8>,
    shares: Vec<Share>,
    step: Vec<u8>,
}

impl Output<'_> {
    fn take_all(&mut self, decoder: &mut dyn Read) -> Result<(), CodingError> {
        loop {
            let read = match decoder.read(&mut self.step) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(CodingError::Corrupt(self.coding.name())),
            };
            if read == 0 {
                return Ok(());
            }
            let length = self.body.len().saturating_add(read);
            if length > self.most {
                return Err(CodingError::Large(self.most));
            }
            if length > self.body.capacity() {
                self.grow(length)?;
            }
            self.body.extend_from_slice(self.step.get(..read).unwrap_or_default());
        }
    }

    /// Makes room for `length` bytes, after the memory was charged.
    fn grow(&mut self, length: usize) -> Result<(), CodingError> {
        let doubled = self.body.capacity().saturating_mul(2).max(STEP_BYTES);
        let capacity = doubled.min(self.most).max(length);
        let more = capacity.saturating_sub(self.body.capacity());
        let share = self.budget.try_take(more.saturating_mul(COPIES));
        self.shares.push(share.ok_or(CodingError::Saturated)?);
        self.body.reserve_exact(capacity.saturating_sub(self.body.len()));
        Ok(())
    }
}

/// Reads one deflate stream, with the header of zlib or without it: senders disagree about the meaning of `deflate`.
struct Inflate<'b> {
    state: Decompress,
    rest: &'b [u8],
    is_ended: bool,
}

impl<'b> Inflate<'b> {
    fn new(packed: &'b [u8]) -> Self {
        // The method is 8, and both bytes together are a multiple of 31. Source: RFC 1950.
        let has_header = match packed {
            [first, second, ..] => {
                first & 0x0f == 8 && u16::from_be_bytes([*first, *second]).is_multiple_of(31)
            }
            _ => false,
        };
        Self { state: Decompress::new(has_header), rest: packed, is_ended: false }
    }
}

impl Read for Inflate<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.is_ended || into.is_empty() {
            return Ok(0);
        }
        let taken_before = self.state.total_in();
        let made_before = self.state.total_out();
        let status = self.state.decompress(self.rest, into, FlushDecompress::None);
        let status = status.map_err(io::Error::other)?;
        let count = |now: u64, before: u64| usize::try_from(now.saturating_sub(before));
        let taken = count(self.state.total_in(), taken_before).map_err(io::Error::other)?;
        let made = count(self.state.total_out(), made_before).map_err(io::Error::other)?;
        self.rest = self.rest.get(taken..).unwrap_or_default();
        self.is_ended = status == Status::StreamEnd;
        if made == 0 && !self.is_ended {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(made)
    }
}

/// The window of a brotli stream in bytes, from its first bits. Source: RFC 7932 section 9.1.
fn brotli_window(packed: &[u8]) -> usize {
    let first = packed.first().copied().unwrap_or_default();
    let bits = if first & 1 == 0 {
        16
    } else if first >> 1 & 7 != 0 {
        17_u32.saturating_add(u32::from(first >> 1 & 7))
    } else if first >> 4 & 7 != 0 {
        8_u32.saturating_add(u32::from(first >> 4 & 7))
    } else {
        17
    };
    1 << bits
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    const PLAIN: &[u8] = br#"{"action":"opened","number":1}"#;
    /// `PLAIN`, packed by the reference encoder.
    const BROTLI: &[u8] = b"\x8b\x0e\x80{\"action\":\"opened\",\"number\":1}\x03";
    const BUDGET: usize = 64 << 20;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(plain: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn deflate(plain: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(plain: &[u8]) -> Vec<u8> {
        compress_to_vec(plain, CompressionLevel::Fastest)
    }

    fn unpacked(coding: Coding, packed: &[u8]) -> Result<Vec<u8>, CodingError> {
        unpack(&[coding], packed, 1 << 20, &Budget::new(BUDGET)).map(|unpacked| unpacked.body)
    }

    fn all() -> [(Coding, Vec<u8>); 5] {
        [
            (Coding::Gzip, gzip(PLAIN)),
            (Coding::Deflate, zlib(PLAIN)),
            (Coding::Deflate, deflate(PLAIN)),
            (Coding::Brotli, BROTLI.to_vec()),
            (Coding::Zstd, zstd(PLAIN)),
        ]
    }

    #[test]
    fn each_coding_gives_the_plain_bytes_back() {
        for (coding, packed) in all() {
            assert_eq!(unpacked(coding, &packed).as_deref(), Ok(PLAIN), "{coding:?}");
            assert_eq!(unpacked(coding, b"").as_deref(), Ok(&b""[..]), "{coding:?}");
        }
    }

    #[test]
    fn a_body_that_ends_early_or_is_something_else_is_refused() {
        for (coding, packed) in all() {
            for end in 1..packed.len() {
                let refused = unpacked(coding, &packed[..end]);
                assert_eq!(refused, Err(CodingError::Corrupt(coding.name())), "{coding:?} {end}");
            }
            assert!(unpacked(coding, PLAIN).is_err(), "{coding:?}");
        }
        for (coding, packed) in [(Coding::Gzip, gzip(PLAIN)), (Coding::Deflate, zlib(PLAIN))] {
            let with_more = [packed, b"more".to_vec()].concat();
            assert!(unpacked(coding, &with_more).is_err(), "{coding:?}");
        }
    }

    #[test]
    fn several_members_and_frames_are_one_body_up_to_a_limit() {
        for (coding, packed) in [(Coding::Gzip, gzip(PLAIN)), (Coding::Zstd, zstd(PLAIN))] {
            let twice = unpacked(coding, &packed.repeat(2));
            assert_eq!(twice, Ok(PLAIN.repeat(2)), "{coding:?}");
            assert!(unpacked(coding, &packed.repeat(MAX_MEMBERS + 1)).is_err(), "{coding:?}");
        }
        let skipped = [b"\x50\x2a\x4d\x18\x03\0\0\0abc".to_vec(), zstd(PLAIN)].concat();
        assert_eq!(unpacked(Coding::Zstd, &skipped).as_deref(), Ok(PLAIN));
    }

    #[test]
    fn codings_are_undone_in_reverse_order() {
        let both = [Coding::Gzip, Coding::Zstd];
        let body = unpack(&both, &zstd(&gzip(PLAIN)), 1000, &Budget::new(BUDGET)).unwrap().body;
        assert_eq!(body, PLAIN);
    }

    #[test]
    fn a_small_body_does_not_become_larger_than_the_limit() {
        let plain = vec![0_u8; 10_000_000];
        for (coding, packed) in [
            (Coding::Gzip, gzip(&plain)),
            (Coding::Deflate, zlib(&plain)),
            (Coding::Zstd, zstd(&plain)),
        ] {
            assert_eq!(unpacked(coding, &packed), Err(CodingError::Large(1 << 20)), "{coding:?}");
            let exact = unpack(&[coding], &packed, plain.len(), &Budget::new(BUDGET)).unwrap();
            assert_eq!(exact.body.len(), plain.len());
        }
    }

    #[test]
    fn unpacked_bytes_are_charged_until_they_are_dropped() {
        let budget = Budget::new(BUDGET);
        let packed = gzip(&vec![b' '; 900_000]);
        let unpacked = unpack(&[Coding::Gzip], &packed, 1 << 20, &budget).unwrap();
        assert!(budget.used() >= COPIES * unpacked.body.capacity(), "{}", budget.used());
        drop(unpacked);
        assert_eq!(budget.used(), 0);
        let busy = budget.try_take(BUDGET - 100_000).unwrap();
        let refused = unpack(&[Coding::Gzip], &packed, 1 << 20, &budget).map(|one| one.body);
        assert_eq!(refused, Err(CodingError::Saturated));
        drop(busy);
    }

    #[test]
    fn the_memory_of_a_brotli_window_is_read_from_its_first_bits() {
        for (first, bits) in [(0x00, 16), (0x01, 17), (0x03, 18), (0x0f, 24), (0x71, 15)] {
            assert_eq!(brotli_window(&[first]), 1 << bits, "{first:#x}");
        }
    }

    #[test]
    fn codings_are_read_from_all_fields() {
        let read = |values: &[&str]| {
            let mut headers = Headers::default();
            for value in values {
                headers.push("Content-Encoding", value.as_bytes());
            }
            codings(&headers)
        };
        assert_eq!(read(&["x-gzip", "br"]), Ok(vec![Coding::Gzip, Coding::Brotli]));
        assert_eq!(read(&[" , identity"]), Ok(Vec::new()));
        assert_eq!(read(&["gzip,gzip,gzip"]), Err(CodingError::Many(3)));
        assert_eq!(read(&["lzma"]), Err(CodingError::Unknown("lzma".to_owned())));
    }
}
