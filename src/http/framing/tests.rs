//! Requests as they are meant, and as attackers write them: each cut at every byte.

use std::time::Duration;

use super::*;
use crate::base::clock::Clock;
use crate::config::environment;
use crate::http::message::Method;

const LIMIT: usize = 4096;

/// What came of some input, in a form that can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Request(Method, String, Option<String>, Vec<(String, Vec<u8>)>, Vec<u8>, ReplyMode),
    Here(u16),
    There(u16),
    Open(Begun),
}

/// Feeds the pieces one after the other, as a connection would.
fn feed<P: AsRef<[u8]>>(pieces: impl IntoIterator<Item = P>) -> Vec<Seen> {
    let mut framer = Framer::default();
    let mut seen = Vec::new();
    for piece in pieces {
        let mut fresh = piece.as_ref();
        while let Some(frame) = next(&mut framer, std::mem::take(&mut fresh)) {
            let (outcome, last) = describe(frame);
            seen.extend(outcome);
            if last {
                return seen;
            }
        }
        let most = Limits::default().head_bytes + LIMIT + piece.as_ref().len();
        assert!(framer.held() <= 2 * most, "{} bytes held", framer.held());
    }
    seen.push(Seen::Open(framer.begun()));
    seen
}

fn next(framer: &mut Framer, fresh: &[u8]) -> Option<Frame> {
    let limits = Limits::default();
    let peer = SocketAddr::from(([192, 0, 2, 1], 7));
    let mut gate = |head: &mut Head| match head.path.as_str() {
        "/missing" => Err(Response::new(404)),
        _ => Ok(LIMIT),
    };
    let frame = framer.advance(fresh, peer, &limits, &mut gate);
    (!matches!(frame, Frame::Partial)).then_some(frame)
}

/// What a frame is, and whether it is the connection's last.
fn describe(frame: Frame) -> (Option<Seen>, bool) {
    match frame {
        Frame::Partial | Frame::Continue => (None, false),
        Frame::Complete(Request { head, body }, mode) => {
            let fields = head.headers.iter().map(|(n, v)| (n.to_owned(), v.to_vec())).collect();
            let Head { method, path, query, .. } = head;
            (Some(Seen::Request(method, path, query, fields, body, mode)), false)
        }
        Frame::Refused(Refused::ByListener(refusal, mode)) => {
            assert!(!mode.persist);
            (Some(Seen::Here(refusal.status)), true)
        }
        Frame::Refused(Refused::ByService(response, mode)) => {
            (Some(Seen::There(response.status)), !mode.persist)
        }
    }
}

/// The outcome of one input, which must not depend on how it is split.
fn outcome(input: &[u8]) -> Vec<Seen> {
    let whole = feed([input]);
    assert_eq!(feed(input.chunks(1)), whole, "byte by byte: {:?}", input.escape_ascii());
    for at in 1..input.len() {
        let (first, second) = input.split_at(at);
        assert_eq!(feed([first, second]), whole, "at {at}: {:?}", input.escape_ascii());
    }
    whole
}

#[track_caller]
fn refused(input: &[u8], status: u16) {
    assert_eq!(outcome(input), [Seen::Here(status)], "{:?}", input.escape_ascii().to_string());
}

/// The only request in the input: its body and mode.
#[track_caller]
fn accepted(input: &[u8]) -> (Vec<u8>, ReplyMode) {
    match outcome(input).as_slice() {
        [Seen::Request(.., body, mode), Seen::Open(Begun::Nothing)] => (body.clone(), *mode),
        other => panic!("{:?} gave {other:?}", input.escape_ascii().to_string()),
    }
}

fn with_fields(fields: &str) -> Vec<u8> {
    format!("POST /in HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}

fn chunked(body: &str) -> Vec<u8> {
    format!("POST /in HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}").into_bytes()
}

#[test]
fn a_request_is_the_same_however_it_is_split() {
    let input = b"POST /in/x?y=1&z=%20 HTTP/1.1\r\nHost: a.example:80\r\nX-Empty:\r\n\
                  X-Sig: \xc3\xa4 b \r\nContent-Length: 11\r\n\r\nhello\r\n\0\xff\r\n";
    let fields = [
        ("host", &b"a.example:80"[..]),
        ("x-empty", b""),
        ("x-sig", b"\xc3\xa4 b"),
        ("content-length", b"11"),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_vec())).to_vec();
    let wanted = Seen::Request(
        Method::Post,
        "/in/x".to_owned(),
        Some("y=1&z=%20".to_owned()),
        fields,
        b"hello\r\n\0\xff\r\n".to_vec(),
        ReplyMode { persist: true, old: false, head_only: false },
    );
    assert_eq!(outcome(input), [wanted, Seen::Open(Begun::Nothing)]);
}

#[test]
fn requests_in_a_row_are_cut_apart() {
    let input = b"\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n\r\n\r\nPOST /b HTTP/1.1\r\nHost: a\r\n\
        Content-Length: 2\r\n\r\nokGET /missing HTTP/1.1\r\nHost: a\r\n\r\nPOST /c HTTP/1.1\r\nHost: a\r\n\
        Transfer-Encoding: Chunked\r\n\r\n3;x=\"y\"\r\nabc\r\n0a \t;z\r\n0123456789\r\n0\r\nT: 1\r\n\r\nHEAD /d";
    let seen = outcome(input);
    let short: Vec<String> = seen
        .iter()
        .map(|seen| match seen {
            Seen::Request(method, path, _, _, body, _) => {
                format!("{} {path} {}", method.as_str(), body.escape_ascii())
            }
            Seen::Here(_) | Seen::There(_) | Seen::Open(_) => format!("{seen:?}"),
        })
        .collect();
    let wanted = ["GET /a ", "POST /b ok", "There(404)", "POST /c abc0123456789", "Open(Head)"];
    assert_eq!(short, wanted);
}

#[test]
fn a_malformed_request_line_is_refused() {
    for line in [
        "GET",
        "GET /",
        "GET  / HTTP/1.1",
        "GET / HTTP/1.1 ",
        " GET / HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET / http/1.1",
        "GET / HTTP",
        "GET / FOO",
        "G@T / HTTP/1.1",
        "/ HTTP/1.1",
        "GET a HTTP/1.1",
        "GET * HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET ?a HTTP/1.1",
        "GET /\u{e4} HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET http://b/x HTTP/1.1",
        "GET ftp://a/x HTTP/1.1",
        "GET http://u@a/x HTTP/1.1",
        "GET /\u{7f} HTTP/1.1",
    ] {
        refused(format!("{line}\r\nHost: a\r\n\r\n").as_bytes(), 400);
    }
}

#[test]
fn the_forms_of_a_target_are_read() {
    for (target, path, query) in [
        ("/a%2fb//c", "/a%2fb//c", None),
        ("/a?", "/a", Some("")),
        ("/a?b?c", "/a", Some("b?c")),
        ("http://A/x?y", "/x", Some("y")),
        ("http://a", "/", None),
        ("https://a?y", "/", Some("y")),
        ("*", "*", None),
    ] {
        let seen = outcome(format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        match seen.as_slice() {
            [Seen::Request(_, seen_path, seen_query, ..), _] => {
                assert_eq!((seen_path.as_str(), seen_query.as_deref()), (path, query));
            }
            other => panic!("{target} gave {other:?}"),
        }
    }
}

#[test]
fn what_is_not_spoken_here_is_named_as_such() {
    refused(b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501);
    refused(b"get / HTTP/1.1\r\nHost: a\r\n\r\n", 501);
    refused(b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 501);
    refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
    refused(b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505);
    refused(b"GET / HTTP/3\r\nHost: a\r\n\r\n", 505);
    refused(&with_fields("Transfer-Encoding: xchunked\r\n"), 501);
    refused(&with_fields("Transfer-Encoding: gzip, chunked\r\n"), 501);
    refused(&with_fields("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), 501);
    refused(&with_fields("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 501);
    refused(&with_fields("Transfer-Encoding:\r\n"), 501);
    refused(&with_fields("Expect: 200-ok\r\nContent-Length: 1\r\n"), 417);
}

#[test]
fn a_head_that_two_readers_could_read_differently_is_refused() {
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\ncontent-length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: abc\r\n",
        "Content-Length:\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: 5\u{a0}\r\n",
        "Content-Length : 5\r\n",
        " Content-Length: 5\r\n",
        "X: a\r\n Content-Length: 5\r\n",
        "X: a\r\n\tb\r\n",
        "X: a\0b\r\n",
        "X: a\nContent-Length: 5\r\n",
        "X: a\rContent-Length: 5\r\n",
        "X: a\r\r\n",
        "X\0: a\r\n",
        "X\r\n",
        ": a\r\n",
        "X y: a\r\n",
        "X: a\u{1}\r\n",
        "X: a\u{7f}\r\n",
        "Host: a\r\n",
        "Host: b\r\n",
    ] {
        refused(&with_fields(fields), 400);
    }
    refused(b"GET / HTTP/1.1\nHost: a\n\n", 400);
    refused(b"GET / HTTP/1.1\r\nHost: a\r\n\n", 400);
    refused(b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    refused(b"\x16\x03\x01\x02", 400);
}

#[test]
fn exactly_one_host_is_wanted_since_http_1_1() {
    refused(b"GET / HTTP/1.1\r\n\r\n", 400);
    refused(b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400);
    for host in ["a b", "a,b", "a/b", "u@a", "\u{e4}", "a?b"] {
        refused(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(), 400);
    }
    assert!(accepted(b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n").1.persist);
    assert!(accepted(b"GET / HTTP/1.1\r\nHost:\r\n\r\n").1.persist);
}

#[test]
fn the_connection_persists_as_version_and_fields_say() {
    let persists = |version: &str, fields: &str| {
        let input = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        accepted(input.as_bytes()).1.persist
    };
    assert!(persists("1.1", ""));
    assert!(!persists("1.1", "Connection: Close\r\n"));
    assert!(!persists("1.1", "Connection: keep-alive\r\nConnection: x , close\r\n"));
    assert!(!persists("1.0", ""));
    assert!(persists("1.0", "Connection: Keep-Alive\r\n"));
    assert!(accepted(b"GET / HTTP/1.0\r\n\r\n").1.old);
    refused(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400);
}

#[test]
fn a_body_may_be_as_long_as_its_limit() {
    let of = |length: usize| {
        let mut input = with_fields(&format!("Content-Length: {length}\r\n"));
        input.resize(input.len() + length, b'x');
        input
    };
    assert_eq!(feed([of(LIMIT).as_slice()]).len(), 2);
    refused(&with_fields(&format!("Content-Length: {}\r\n", LIMIT + 1)), 413);
    refused(&with_fields("Content-Length: 64000000000\r\n"), 413);
    refused(&with_fields("Content-Length: 99999999999999999999999999\r\n"), 413);
    assert_eq!(accepted(&with_fields("Content-Length: 000\r\n")).0, b"");
    refused(&chunked(&format!("{:x}\r\n", LIMIT + 1)), 413);
    refused(&chunked(&format!("1\r\nx\r\n{LIMIT:x}\r\n")), 413);
    let full = format!("{LIMIT:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(LIMIT));
    assert_eq!(feed([chunked(&full).as_slice()]).len(), 2);
}

#[test]
fn a_body_nobody_wants_is_not_waited_for() {
    let input = b"POST /missing HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n";
    assert_eq!(outcome(input), [Seen::There(404)]);
}

#[test]
fn malformed_chunks_are_refused() {
    for body in [
        "ffffffffffffffff\r\n",
        "10000000000000000\r\n",
        "000000001\r\nx\r\n",
        "\r\n",
        "g\r\n",
        "-1\r\n",
        "+1\r\nx\r\n",
        "0x1\r\nx\r\n",
        "1 x\r\nx\r\n",
        "1\nx\r\n",
        "1\rx",
        "1;a\nb\r\nx\r\n",
        "1;a\rb\r\n",
        " 1\r\nx\r\n",
        "1\r\nxx\r\n",
        "1\r\nx\n",
        "1\r\nx\rx",
        "0\r\nT : 1\r\n\r\n",
        "0\r\n T: 1\r\n\r\n",
        "0\r\nT\r\n\r\n",
        "0\r\nT: 1\n\r\n",
        "0\r\nT: \0\r\n\r\n",
        "0\r\n: 1\r\n\r\n",
        "0\r\n\n",
    ] {
        refused(&chunked(body), 400);
    }
    refused(&chunked(&format!("1;{}", "x".repeat(1022))), 400);
    refused(&chunked(&format!("0\r\n{}", "T: 1\r\n".repeat(17))), 431);
    assert_eq!(accepted(&chunked(&format!("0\r\n{}\r\n", "T: 1\r\n".repeat(16)))).0, b"");
}

#[test]
fn a_head_is_bounded_in_bytes_and_fields() {
    let limits = Limits::default();
    let start = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
    let of = |length: usize| format!("{start}{}\r\n\r\n", "x".repeat(length - start.len() - 4));
    assert_eq!(feed([of(limits.head_bytes).as_bytes()]).len(), 2);
    for long in [of(limits.head_bytes + 1), "x".repeat(limits.head_bytes), of(100_000)] {
        assert_eq!(feed([long.as_bytes()]), [Seen::Here(431)]);
        assert_eq!(feed(long.as_bytes().chunks(1000)), [Seen::Here(431)]);
    }
    let of = |fields: usize| with_fields(&"X: y\r\n".repeat(fields - 1));
    assert_eq!(feed([of(limits.head_fields).as_slice()]).len(), 2);
    assert_eq!(feed([of(limits.head_fields + 1).as_slice()]), [Seen::Here(431)]);
    assert_eq!(feed([of(1000).as_slice()]), [Seen::Here(431)]);
}

#[test]
fn a_client_that_waits_is_told_to_go_on_once_the_limit_is_known() {
    let limits = Limits::default();
    let peer = SocketAddr::from(([192, 0, 2, 1], 7));
    let mut framer = Framer::default();
    let head = with_fields("Expect: 100-Continue\r\nContent-Length: 2\r\n");
    let first = framer.advance(&head, peer, &limits, &mut |_: &mut Head| Ok(2));
    assert!(matches!(first, Frame::Continue));
    assert!(matches!(
        framer.advance(&[], peer, &limits, &mut |_: &mut Head| Ok(2)),
        Frame::Partial
    ));
    assert!(matches!(
        framer.advance(b"ok", peer, &limits, &mut |_: &mut Head| Ok(2)),
        Frame::Complete(..)
    ));
    let refused = framer.advance(&head, peer, &limits, &mut |_: &mut Head| Ok(1));
    assert!(matches!(refused, Frame::Refused(Refused::ByListener(Refusal { status: 413, .. }, _))));
}

/// A small generator of the same numbers on every run.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end.max(1)).unwrap()).unwrap()
    }
}

#[test]
fn damaged_requests_never_break_it_nor_depend_on_how_they_are_split() {
    let seeds = [
        b"GET /a?b=c HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n".to_vec(),
        with_fields("Content-Length: 12\r\nExpect: 100-continue\r\n\r\nhello, world"),
        chunked("5;x=y\r\nhello\r\n7\r\n, world\r\n0\r\nT: 1\r\n\r\n"),
        b"PUT http://a/x HTTP/1.0\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc".to_vec(),
    ];
    let spice: [&[u8]; 14] = [
        b"\r\n",
        b"\r",
        b"\n",
        b"\0",
        b" ",
        b":",
        b"0",
        b"ffffffffffffffff",
        b"\r\n\r\n",
        b",",
        b";",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"HTTP/1.1",
    ];
    // 60,000 rounds of the same numbers; with ONCEBOX_FUZZ_SECONDS as long as that, from ONCEBOX_SEED.
    let number = |name| environment(name).and_then(|text| text.parse::<u64>().ok());
    let clock = Clock::machine();
    let until = number("ONCEBOX_FUZZ_SECONDS").map(Duration::from_secs);
    let seed = number("ONCEBOX_SEED").unwrap_or(0x9e37_79b9_7f4a_7c15).max(1);
    println!("seed {seed}");
    let mut draw = Xorshift(seed);
    let mut rounds = 0;
    while until.map_or(rounds < 60_000, |until| clock.monotonic() < until) {
        rounds += 1;
        let mut input = seeds[draw.below(seeds.len())].clone();
        input.extend_from_slice(&seeds[draw.below(seeds.len())]);
        for _ in 0..=draw.below(4) {
            let at = draw.below(input.len());
            match draw.below(4) {
                0 => input[at] = u8::try_from(draw.below(256)).unwrap(),
                1 => drop(input.drain(at..(at + draw.below(9)).min(input.len()))),
                2 => drop(input.splice(at..at, spice[draw.below(spice.len())].iter().copied())),
                _ => input.truncate(at.max(1)),
            }
            if input.is_empty() {
                input.push(b'x');
            }
        }
        let whole = feed([input.as_slice()]);
        let step = 1 + draw.below(7);
        assert_eq!(feed(input.chunks(step)), whole, "{}", input.escape_ascii());
        let (first, second) = input.split_at(draw.below(input.len()));
        assert_eq!(feed([first, second]), whole, "{}", input.escape_ascii());
    }
}
