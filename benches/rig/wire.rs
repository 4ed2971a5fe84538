//! As much HTTP as the rig needs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// Where a message ends, once all of it is there: head length, and whole length.
pub(crate) fn ends(input: &[u8]) -> Option<(usize, usize)> {
    let head = find(input, b"\r\n\r\n")? + 4;
    let length = field(&input[..head], b"content-length:")
        .map_or(0, |value| std::str::from_utf8(value).unwrap().parse().unwrap());
    (input.len() >= head + length).then_some((head, head + length))
}

/// The value of a field; its name in lower case and with the colon. Senders here write them so.
pub(crate) fn field<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut lines = head.split(|byte| *byte == b'\n');
    let line = lines.find(|line| {
        line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
    })?;
    Some(line[name.len()..].trim_ascii())
}

/// The first place of some bytes.
pub(crate) fn find(input: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = wanted[0];
    let mut from = 0;
    while let Some(at) = input[from..].iter().position(|byte| *byte == first) {
        if input[from + at..].starts_with(wanted) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

/// Digits after a mark, as a number.
pub(crate) fn number_after(input: &[u8], mark: &[u8]) -> Option<u64> {
    let start = find(input, mark)? + mark.len();
    let digits = input[start..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// Sends one request on a connection of its own; status and body.
pub(crate) fn ask(
    address: &str,
    method: &str,
    path: &str,
    token: &str,
    body: &str,
) -> std::io::Result<(u16, Value)> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: rig\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    socket.write_all(request.as_bytes())?;
    let mut input = Vec::new();
    let mut scratch = [0; 16 * 1024];
    while ends(&input).is_none() {
        let length = socket.read(&mut scratch)?;
        if length == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        input.extend_from_slice(&scratch[..length]);
    }
    let (head, whole) = ends(&input).unwrap();
    let status = std::str::from_utf8(&input[9..12]).unwrap().parse().unwrap();
    Ok((status, serde_json::from_slice(&input[head..whole]).unwrap_or(Value::Null)))
}
