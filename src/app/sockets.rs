//! Opens the listening sockets, or takes those of the service manager, and starts the server on them.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use crate::api::context::Api;
use crate::api::listeners::{EndpointRole, Endpoints};
use crate::app::error::Error;
use crate::config::Listen;
use crate::console::Console;
use crate::http::proxies::Proxies;
use crate::http::server::{self, Server, Setup};
use crate::http::service::Limits;
use crate::sys::systemd::Passed;

/// Listening sockets with their roles and addresses, the API's first.
#[derive(Debug)]
pub(super) struct Sockets(Vec<(EndpointRole, SocketAddr, TcpListener)>);

impl Sockets {
    /// Takes the service manager's sockets, and binds those that are missing by the settings. A socket named `intake`,
    /// `api` or `console` serves only that; any other serves all but a console with its own address.
    pub(super) fn open(listen: &Listen, passed: Vec<Passed>) -> Result<Self, Error> {
        let named = |name: &str| passed.iter().any(|passed| passed.name == name);
        let intake = named("intake");
        let api = named("api");
        let console = named("console");
        let is_own = |name: &str| matches!(name, "intake" | "api" | "console");
        let shared = passed.iter().any(|passed| !is_own(&passed.name));
        let own = |address: Option<SocketAddr>| address.filter(|address| *address != listen.api);
        let own_intake = own(listen.intake);
        let own_console = own(listen.console);
        let everything =
            EndpointRole { console: !console && own_console.is_none(), ..EndpointRole::EVERYTHING };
        let served_by_api = EndpointRole { intake: !intake && own_intake.is_none(), ..everything };
        let mut sockets = Self(Vec::new());
        for Passed { name, socket } in passed {
            let serves = match name.as_str() {
                "intake" => EndpointRole::INTAKE,
                "console" => EndpointRole::CONSOLE,
                "api" => served_by_api,
                _ => everything,
            };
            sockets.push(serves, socket, listen.api)?;
        }
        if !api && !shared {
            sockets.push(served_by_api, bind(listen.api)?, listen.api)?;
        }
        if let Some(address) = own_intake.filter(|_| !intake && !shared) {
            sockets.push(EndpointRole::INTAKE, bind(address)?, address)?;
        }
        if let Some(address) = own_console.filter(|_| !console) {
            sockets.push(EndpointRole::CONSOLE, bind(address)?, address)?;
        }
        sockets.0.sort_by_key(|(serves, ..)| !serves.api);
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
    limits: Limits,
) -> Result<(Vec<(EndpointRole, SocketAddr)>, Server), Error> {
    let settings = api.env.settings.get();
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let limits = Limits {
        connections: count(settings.limits.connections),
        connections_per_address: count(settings.limits.connections_per_address),
        ..limits
    };
    let proxies = Proxies::new(settings.listen.trusted_proxies.clone());
    let setup = Setup {
        limits,
        proxies,
        clock: api.env.clock.clone(),
        draw: Arc::clone(&api.env.draw),
        faults: api.env.faults.clone(),
    };
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

    const EVERYTHING: EndpointRole = EndpointRole::EVERYTHING;
    const INTAKE: EndpointRole = EndpointRole::INTAKE;
    const CONSOLE: EndpointRole = EndpointRole::CONSOLE;
    const REST: EndpointRole = EndpointRole { intake: false, ..EVERYTHING };

    fn serves_with(
        (intake, console): (Option<&str>, Option<&str>),
        names: &[&str],
    ) -> Vec<EndpointRole> {
        let address = |text: Option<&str>| text.map(|address| address.parse().unwrap());
        let listen = Listen {
            api: "127.0.0.1:0".parse().unwrap(),
            intake: address(intake),
            console: address(console),
            public_url: None,
            trusted_proxies: Vec::new(),
        };
        let passed = names.iter().map(|name| {
            let socket = server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            Passed { name: (*name).to_owned(), socket }
        });
        Sockets::open(&listen, passed.collect()).unwrap().into_parts().0
    }

    #[test]
    fn sockets_that_are_handed_over_stand_in_for_those_of_the_settings() {
        let serves = |intake, names: &[&str]| serves_with((intake, None), names);
        let other = Some("127.0.0.2:0");
        assert_eq!(serves(None, &[]), [EVERYTHING]);
        assert_eq!(serves(other, &[]), [REST, INTAKE]);
        assert_eq!(serves(Some("127.0.0.1:0"), &[]), [EVERYTHING], "the same address is one");
        assert_eq!(serves(None, &["api"]), [EVERYTHING]);
        assert_eq!(serves(other, &["api"]), [REST, INTAKE]);
        assert_eq!(serves(None, &["intake"]), [REST, INTAKE]);
        assert_eq!(serves(None, &["intake", "api"]), [REST, INTAKE]);
        assert_eq!(serves(other, &["oncebox.socket"]), [EVERYTHING]);
        assert_eq!(serves(None, &["", "oncebox.socket"]), [EVERYTHING, EVERYTHING]);
    }

    #[test]
    fn a_console_of_its_own_is_nowhere_else() {
        let serves = |console, names: &[&str]| serves_with((None, console), names);
        let (other, apart) = (Some("127.0.0.2:0"), EndpointRole { console: false, ..EVERYTHING });
        assert_eq!(serves(other, &[]), [apart, CONSOLE]);
        assert_eq!(serves(Some("127.0.0.1:0"), &[]), [EVERYTHING], "the same address is one");
        assert_eq!(serves(other, &["oncebox.socket"]), [apart, CONSOLE]);
        assert_eq!(serves(None, &["console"]), [apart, CONSOLE]);
        assert_eq!(serves(None, &["console", "api"]), [apart, CONSOLE]);
        let both = serves_with((Some("127.0.0.3:0"), other), &[]);
        assert_eq!(both, [EndpointRole { intake: false, ..apart }, INTAKE, CONSOLE]);
    }
}
