//! The real program under a service manager: this test is the manager. It holds sockets, listens on a
//! notify socket, starts, stops and kills.

mod activation;
mod lines;
mod notify;
mod process;
