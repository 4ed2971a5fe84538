//! Packets: a header of eight bytes, and a part of a message.

use std::io::{Read, Result, Write};
use std::net::TcpStream;

/// A message before the log-on.
pub(super) const PRELOGIN: u8 = 0x12;
/// The log-on.
pub(super) const LOGIN: u8 = 0x10;
/// Statements as text.
pub(super) const BATCH: u8 = 0x01;
/// A call of a procedure.
pub(super) const CALL: u8 = 0x03;
/// A wish to stop.
pub(super) const ATTENTION: u8 = 0x06;
/// A request of a transaction.
pub(super) const TRANSACTION: u8 = 0x0E;

/// An answer.
const ANSWER: u8 = 0x04;
/// The last packet of a message.
const LAST: u8 = 1;
const HEADER: usize = 8;
/// The size that is agreed on where nobody says another.
const SIZE: usize = 4096;

/// A line, message by message.
pub(super) struct Packets(TcpStream);

impl Packets {
    pub(super) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    /// A whole message and its kind.
    pub(super) fn read(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut message = Vec::new();
        loop {
            let mut header = [0; HEADER];
            self.0.read_exact(&mut header)?;
            let size = usize::from(u16::from_be_bytes([header[2], header[3]]));
            let mut part = vec![0; size - HEADER];
            self.0.read_exact(&mut part)?;
            message.extend(part);
            if header[1] & LAST != 0 {
                return Ok((header[0], message));
            }
        }
    }

    pub(super) fn write(&mut self, message: &[u8]) -> Result<()> {
        let parts: Vec<&[u8]> = message.chunks(SIZE - HEADER).collect();
        for (n, part) in (1..).zip(&parts) {
            let size = u16::try_from(part.len() + HEADER).unwrap().to_be_bytes();
            let last = u8::from(n == parts.len());
            let number = u8::try_from(n % 256).unwrap();
            self.0.write_all(&[ANSWER, last, size[0], size[1], 0, 51, number, 0])?;
            self.0.write_all(part)?;
        }
        Ok(())
    }
}
