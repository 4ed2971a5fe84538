//! What most files of tests import: `use crate::rig::prelude::*`.
#![allow(unused_imports, reason = "each test program uses the part of the rig that it needs")]

pub(crate) use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
pub(crate) use std::fs;
pub(crate) use std::io::{Read, Write};
pub(crate) use std::net::{SocketAddr, TcpListener, TcpStream};
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::process::{Command, Stdio};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Mutex, mpsc};
pub(crate) use std::thread;
pub(crate) use std::time::{Duration, Instant};

pub(crate) use data_encoding::{BASE64, HEXLOWER};
pub(crate) use oncebox::base::clock::{Clock, Timestamp};
pub(crate) use oncebox::base::faults::{Faults, Step};
pub(crate) use oncebox::http::message::Method;
pub(crate) use oncebox::store::writer::Queue;
pub(crate) use ring::hmac;
pub(crate) use rusqlite::Connection;
pub(crate) use serde_json::{Value, json};
pub(crate) use tempfile::TempDir;

pub(crate) use super::executable;
pub(crate) use super::file::{self, Run, holding};
pub(crate) use super::http::{self, Answer, Message};
pub(crate) use super::receiver::{Receiver, Reply, answer_all};
pub(crate) use super::{
    DISK_TOTAL, Rig, START, has, merged, secs, shows, skipped, text, until, words,
};
