//! What the file of a noun needs: the words of a route table, of answers and of audited changes.

pub(super) use schemars::JsonSchema;
pub(super) use serde::{Deserialize, Serialize};
pub(super) use serde_json::Value;

pub(super) use crate::api::audited::{Audited, Change, change};
pub(super) use crate::api::call::{Call, ok, page_of};
pub(super) use crate::api::context::Api;
pub(super) use crate::api::kind::Kind;
pub(super) use crate::api::lists;
pub(super) use crate::api::problem::{OrNotFound, Problem};
pub(super) use crate::api::route::Answer::{Act, ActLater, Later, Listed, Now};
pub(super) use crate::api::route::{
    AFTER, LIMIT, Param, Resource, Returns, SINCE, UNTIL, delete, get, patch, post, put,
};
pub(super) use crate::api::schema::{
    DayText, Is, NameText, SomeText, Text, Uuid, Whole, bare, exact, value, values,
};
pub(super) use crate::base::clock::Timestamp;
pub(super) use crate::http::message::Response;
pub(super) use crate::http::service::Reply;
pub(super) use crate::model::name::DEFAULT_TENANT;
pub(super) use crate::model::token::Right::{Admin, Operate, Read};
pub(super) use crate::store::error::Result as StoreResult;
pub(super) use crate::store::tx::{ReadTx, WriteTx};
