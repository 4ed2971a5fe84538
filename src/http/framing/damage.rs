//! Requests that are damaged at random: nothing breaks, however they are split.

use std::time::Duration;

use crate::base::clock::Clock;
use crate::config::environment;
use crate::http::framing::tests::{chunked, feed, with_fields};

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
