//! What is refused, and that the connection ends with it.

use crate::listener::rig::prelude::*;

fn rig() -> Rig {
    Rig::new(Limits::default())
}

fn with_fields(fields: &str) -> String {
    format!("POST /echo HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

#[test]
fn a_declared_length_beyond_the_limit_is_refused_before_the_body_comes() {
    let rig = rig();
    rig.refuses(with_fields("Content-Length: 64000000000\r\n"), 413);
    rig.refuses(with_fields("Content-Length: 1048577\r\n"), 413);
    assert_eq!(rig.server.stats().malformed, 2);
}

#[test]
fn a_client_that_sends_all_of_a_refused_body_first_still_sees_the_answer() {
    let rig = rig();
    rig.refuses(post("/echo", &"x".repeat(8_000_000)), 413);
}

#[test]
fn a_length_that_is_not_a_number_is_refused() {
    let rig = rig();
    for value in ["abc", "+5", "5, 5", ""] {
        rig.refuses(with_fields(&format!("Content-Length: {value}\r\n")), 400);
    }
}

#[test]
fn two_lengths_are_refused() {
    rig().refuses(with_fields("Content-Length: 5\r\nContent-Length: 6\r\n"), 400);
}

#[test]
fn a_length_beside_a_transfer_coding_is_refused() {
    rig().refuses(with_fields("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400);
}

#[test]
fn an_unknown_transfer_coding_is_not_implemented() {
    rig().refuses(with_fields("Transfer-Encoding: xchunked\r\n"), 501);
}

#[test]
fn a_chunk_of_two_to_the_64_minus_1_is_refused() {
    let chunk = format!("{}ffffffffffffffff\r\nx", with_fields("Transfer-Encoding: chunked\r\n"));
    rig().refuses(chunk, 400);
}

#[test]
fn chunks_beyond_the_limit_are_refused_as_they_come() {
    let rig = rig();
    let piece = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let head = with_fields("Transfer-Encoding: chunked\r\n");
    rig.refuses(head + &piece.repeat(17), 413);
}

#[test]
fn a_missing_host_is_refused() {
    rig().refuses("GET / HTTP/1.1\r\n\r\n", 400);
}

#[test]
fn a_second_host_is_refused() {
    rig().refuses("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400);
}

#[test]
fn a_malformed_request_line_is_refused() {
    rig().refuses("HELLO\r\n\r\n", 400);
}

#[test]
fn a_tls_client_is_refused_at_its_first_bytes() {
    rig().refuses(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400);
}

#[test]
fn an_unknown_method_is_not_implemented() {
    rig().refuses("BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501);
}

#[test]
fn http_2_is_refused_by_its_name() {
    rig().refuses("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
}

#[test]
fn a_nul_in_a_field_is_refused() {
    rig().refuses(with_fields("X: a\0b\r\n"), 400);
}

#[test]
fn a_bare_line_feed_in_a_field_is_refused() {
    rig().refuses(with_fields("X: a\nContent-Length: 5\r\n"), 400);
}

#[test]
fn an_expectation_other_than_100_continue_fails() {
    rig().refuses(with_fields("Expect: miracles\r\nContent-Length: 1\r\n"), 417);
}

#[test]
fn too_many_fields_are_refused() {
    rig().refuses(with_fields(&"X: y\r\n".repeat(64)), 431);
}

#[test]
fn a_head_of_300_mb_is_refused_while_it_comes() {
    let rig = rig();
    let mut client = rig.client();
    let mut sender = client.0.try_clone().unwrap();
    let sending = thread::spawn(move || {
        let block = "X: ".to_owned() + &"y".repeat(1_000_000 - 5) + "\r\n";
        let mut sent = sender.write_all(b"GET / HTTP/1.1\r\n");
        for _ in 0..300 {
            sent = sent.and_then(|()| sender.write_all(block.as_bytes()));
        }
        sent
    });
    assert_eq!(client.answer().status, 431);
    assert!(sending.join().unwrap().is_err(), "300 MB were read to the end");
    assert!(rig.server.stats().buffered_bytes < 1_000_000);
    rig.works();
}

#[test]
fn what_the_service_refuses_on_the_head_ends_the_connection_only_if_a_body_follows() {
    let rig = rig();
    rig.refuses(post("/missing", "x"), 404);
    let (answer, closed) = rig.exchange("GET /missing HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((answer.status, closed), (404, false));
}
