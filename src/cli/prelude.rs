//! What the file of a command needs: arguments, the service, and what is printed.

pub(super) use clap::Args;
pub(super) use serde_json::{Map, Value, json};

pub(super) use crate::cli::exit::{self, Failure};
pub(super) use crate::cli::flag::{
    Flag, ONLY_THESE, argument, field, heading, members, optional, own, without,
};
pub(super) use crate::cli::input;
pub(super) use crate::cli::noun::Noun;
pub(super) use crate::cli::out::{self, Format};
pub(super) use crate::cli::remote::{ConnectArgs, GlobalArgs, Remote, percent_encoded, with_query};
pub(super) use crate::cli::show::{Cells, Columns, cell, column, list, text, time};
pub(super) use crate::cli::verb::{Call, CommandRow, Commands, Done, command};
