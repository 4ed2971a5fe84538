//! Whom the service trusts: the authorities of the machine, where the administrator adds the company's own.

use rustls::{ServerConnection, StreamOwned};

use crate::fault::process::prelude::*;
use crate::rig::http::read_message;
use crate::rig::smtp;

#[test]
fn an_authority_that_the_machine_trusts_is_trusted() {
    let home = tempfile::tempdir().unwrap();
    let authority = home.path().join("company.pem");
    let config = Arc::new(smtp::tls(&authority));
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream.unwrap());
            if read_message(&mut stream).is_ok() {
                drop(stream.write_all(
                    b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
                ));
            }
        }
    });
    for (machine, class) in [("", "transient"), (authority.to_str().unwrap(), "success")] {
        let path = if machine.is_empty() { "/etc/ssl/certs/ca-certificates.crt" } else { machine };
        let home = tempfile::tempdir().unwrap();
        let process = Process::start_under(home.path(), &format!("export SSL_CERT_FILE={path}; "));
        let url = format!("https://localhost:{port}/");
        process.post("/v1/subscriptions", &json!({ "name": "erp", "url": url }));
        process.post("/v1/events", &json!({ "event_type": "a", "payload": 1 }));
        let attempt = || {
            let attempts =
                process.call("GET", "/v1/deliveries/dlv_1/attempts", &json!(null)).json();
            attempts["items"][0].clone()
        };
        until("it was sent", || attempt() != json!(null));
        assert_eq!(attempt()["class"], class, "{}", attempt());
        process.kill();
    }
}
