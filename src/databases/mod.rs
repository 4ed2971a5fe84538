//! Databases of others, such as an ERP's own: `PostgreSQL`, `MariaDB`, SQL Server.
//!
//! [`connection::Connection`] is what sources and targets use. Behind it is the program `oncebox-odbc` (`odbc/` in this
//! repository), in a process of its own for each connection: [`helper`]. Not here: what is read from a database or written into
//! it, and the SQL for that.

pub mod connection;
pub mod connection_string;
pub mod database;
pub mod failure;
pub mod frame;
pub mod helper;
pub mod inspect;
pub mod product;
pub mod state;
pub mod store;
