//! What the file of a table needs: transactions, errors, and the macros that write SQL.

pub(super) use rusqlite::Row;

pub(super) use crate::base::clock::{SureNow, Timestamp};
pub(super) use crate::base::id::{DeliverySeq, SubscriptionSeq};
pub(super) use crate::store::column::cell;
pub(super) use crate::store::error::{Error, Result};
pub(super) use crate::store::sql::{changes, columns, in_order, insert, queries, sql, update};
pub(super) use crate::store::tx::{ReadTx, WriteTx, one_row, tuple};
