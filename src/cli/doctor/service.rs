//! How it is reached: port, public address, proxy.

use crate::cli::doctor::{Finding, Patient, fail, ok, warn};
use crate::http::server;

pub(super) fn look(patient: &Patient) -> Vec<Finding> {
    let mut findings = vec![port(patient)];
    findings.push(addresses(patient));
    findings.extend(public_url(patient));
    findings
}

fn port(patient: &Patient) -> Finding {
    let address = patient.settings.listen.api;
    if patient.served {
        return ok("port", format!("a service runs here; it is set to {address}"));
    }
    match server::bind(address) {
        Ok(_free) => ok("port", format!("{address} is free")),
        Err(error) => fail("port", format!("{address} cannot be listened on: {error}")),
    }
}

fn addresses(patient: &Patient) -> Finding {
    let listen = &patient.settings.listen;
    let intake = patient.settings.intake();
    if listen.api.ip().is_loopback() {
        return ok("addresses", format!("API on {}, intake on {intake}", listen.api));
    }
    let detail = format!(
        "the API listens on {}, without TLS: put a proxy before it, or give the intake its own address \
         (listen.intake)",
        listen.api
    );
    warn("addresses", detail)
}

fn public_url(patient: &Patient) -> Vec<Finding> {
    let listen = &patient.settings.listen;
    let Some(url) = &listen.public_url else {
        return vec![ok("public_url", "not set: intake is reached under its own address")];
    };
    let well_formed = url.parse::<http::Uri>().is_ok_and(|uri| {
        uri.scheme_str() == Some("https") && uri.host().is_some_and(|host| !host.is_empty())
    });
    let shape = if well_formed {
        ok("public_url", url.clone())
    } else {
        fail("public_url", format!("{url:?} is not https:// and a host: providers refuse it"))
    };
    let proxies = if listen.trusted_proxies.is_empty() {
        let detail = "a public URL means a proxy, but none is trusted: every client has the proxy's \
                      address (listen.trusted_proxies)";
        warn("proxies", detail)
    } else {
        ok("proxies", format!("{} trusted", listen.trusted_proxies.len()))
    };
    vec![shape, proxies]
}
