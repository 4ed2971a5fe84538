//! Opens the listening sockets, or takes those of the service manager, and starts the server on them.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use crate::api::context::Api;
use crate::api::listeners::{EndpointRole, Endpoints};
use crate::app::error::Error;
use crate::base::faults::Faults;
use crate::config::Listen;
use crate::console::Console;
use crate::http::limits::Limits;
use crate::http::proxies::Proxies;
use crate::http::server::{self, Server, Setup};
use crate::sys::systemd::Passed;

/// Listening sockets with their roles and addresses, the API's first.
#[derive(Debug)]
pub(super) struct Sockets(Vec<(EndpointRole, SocketAddr, TcpListener)>);

impl Sockets {
    /// Takes the service manager's sockets, and binds those that are missing by the settings. A socket named `intake` or
    /// `api` serves only that; any other serves both.
    pub(super) fn open(listen: &Listen, passed: Vec<Passed>) -> Result<Self, Error> {
        let named = |name: &str| passed.iter().any(|passed| passed.name == name);
        let (intake, api) = (named("intake"), named("api"));
        let both = passed.iter().any(|passed| !matches!(passed.name.as_str(), "intake" | "api"));
        let own_intake = listen.intake.filter(|address| *address != listen.api);
        let apart = intake || own_intake.is_some();
        let served_by_api = if apart { EndpointRole::Api } else { EndpointRole::Everything };
        let mut sockets = Self(Vec::new());
        for Passed { name, socket } in passed {
            let serves = match name.as_str() {
                "intake" => EndpointRole::Intake,
                "api" => served_by_api,
                _ => EndpointRole::Everything,
            };
            sockets.push(serves, socket, listen.api)?;
        }
        if !api && !both {
            sockets.push(served_by_api, bind(listen.api)?, listen.api)?;
        }
        if let Some(address) = own_intake.filter(|_| !intake && !both) {
            sockets.push(EndpointRole::Intake, bind(address)?, address)?;
        }
        sockets.0.sort_by_key(|(serves, ..)| !serves.has_api());
        Ok(sockets)
    }

    fn push(
        &mut self,
        serves: EndpointRole,
        socket: TcpListener,
        wanted: SocketAddr,
    ) -> Result<(), Error> {
        let address = socket.local_addr();
        let address = address.map_err(|source| Error::Listen { address: wanted, source })?;
        self.0.push((serves, address, socket));
        Ok(())
    }

    /// The role and address of each socket.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (EndpointRole, SocketAddr)> {
        self.0.iter().map(|(serves, address, _)| (*serves, *address))
    }

    /// The roles and the sockets, in the same order.
    pub(super) fn into_parts(self) -> (Vec<EndpointRole>, Vec<TcpListener>) {
        self.0.into_iter().map(|(serves, _, socket)| (serves, socket)).unzip()
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    server::bind(address).map_err(|source| Error::Listen { address, source })
}

/// Starts the server on the sockets. Returns their roles and addresses, and the server.
pub(super) fn listen(
    sockets: Sockets,
    api: Api,
    (limits, faults): (Limits, Faults),
) -> Result<(Vec<(EndpointRole, SocketAddr)>, Server), Error> {
    let settings = api.settings.get();
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let limits = Limits {
        connections: count(settings.limits.connections),
        connections_per_address: count(settings.limits.connections_per_address),
        ..limits
    };
    let proxies = Proxies::new(settings.listen.trusted_proxies.clone());
    let (clock, draw) = (api.clock.clone(), Arc::clone(&api.draw));
    let setup = Setup { limits, proxies, clock, draw, faults };
    let addresses: Vec<_> = sockets.addresses().collect();
    let (roles, sockets) = sockets.into_parts();
    let address = settings.listen.api;
    let stats = api.server_stats.clone();
    let started = Server::start(sockets, setup, Arc::new(Endpoints::new(Console::new(api), roles)));
    let server = started.map_err(|source| Error::Listen { address, source })?;
    stats.follow(&server);
    Ok((addresses, server))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(intake: Option<&str>) -> Listen {
        let loopback = "127.0.0.1:0".parse().unwrap();
        let intake = intake.map(|address| address.parse().unwrap());
        Listen { api: loopback, intake, public_url: None, trusted_proxies: Vec::new() }
    }

    fn serves(intake: Option<&str>, names: &[&str]) -> Vec<EndpointRole> {
        let passed = names.iter().map(|name| {
            let socket = server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            Passed { name: (*name).to_owned(), socket }
        });
        let sockets = Sockets::open(&listen(intake), passed.collect()).unwrap();
        sockets.into_parts().0
    }

    #[test]
    fn sockets_that_are_handed_over_stand_in_for_those_of_the_settings() {
        use EndpointRole::{Api, Everything, Intake};
        let other = Some("127.0.0.2:0");
        assert_eq!(serves(None, &[]), [Everything]);
        assert_eq!(serves(other, &[]), [Api, Intake]);
        assert_eq!(serves(Some("127.0.0.1:0"), &[]), [Everything], "the same address is one");
        assert_eq!(serves(None, &["api"]), [Everything]);
        assert_eq!(serves(other, &["api"]), [Api, Intake]);
        assert_eq!(serves(None, &["intake"]), [Api, Intake]);
        assert_eq!(serves(None, &["intake", "api"]), [Api, Intake]);
        assert_eq!(serves(other, &["oncebox.socket"]), [Everything]);
        assert_eq!(serves(None, &["", "oncebox.socket"]), [Everything, Everything]);
    }
}
