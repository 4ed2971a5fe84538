//! The manifest of a backup: a small JSON file beside it that describes it, so that it can be checked years later
//! and on another machine. It contains no secret: of the master key only the id.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::backup::months::MonthCopy;
use crate::backup::store::Facts;
use crate::backup::{Error, Result};
use crate::base::clock::Timestamp;
use crate::sys::files::{directory_of, with_ending};
use crate::sys::user;

/// The ending that a manifest's name adds to the backup's.
pub const ENDING: &str = ".manifest.json";
/// The layout of the manifest.
pub(super) const FORMAT: u32 = 1;
/// The largest file that is read as a manifest.
const MAX_BYTES: u64 = 4 << 20;

/// Why a backup was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A person or a script asked for it.
    Asked,
    /// It was scheduled; only these are removed by retention.
    Scheduled,
    /// An upgrade of the schema followed.
    BeforeUpgrade,
}

/// A manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The layout of the manifest: 1.
    pub format: u32,
    /// The backup's file name.
    pub file: String,
    /// When the copy began; it contains everything committed before.
    pub created_at: Timestamp,
    /// Why it was made.
    pub reason: Reason,
    /// The version of the program that made the backup.
    pub version: String,
    /// What the file contains. Of the master key only the id: the key itself is never in a backup.
    #[serde(flatten)]
    pub facts: Facts,
    /// Bytes of the file.
    pub bytes: u64,
    /// SHA-256 of the file, in hex.
    pub sha256: String,
    /// The months that belong to it; `None` if none were looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub months: Option<Vec<MonthCopy>>,
}

impl Manifest {
    /// The path of a backup's manifest.
    pub fn path_of(backup: &Path) -> PathBuf {
        with_ending(backup, ENDING)
    }

    /// Reads the manifest of a backup.
    pub fn read_of(backup: &Path) -> Result<Self> {
        let path = Self::path_of(backup);
        let wrong = |why: String| Error::Manifest { path: path.clone(), why };
        let looked = user::in_directory(directory_of(&path), || fs::metadata(&path));
        let size = looked.map_err(|error| {
            wrong(format!("{error}; a backup without its manifest cannot be checked"))
        })?;
        if size.len() > MAX_BYTES {
            return Err(wrong("too large for a manifest".to_owned()));
        }
        let text = user::in_directory(directory_of(&path), || fs::read_to_string(&path));
        let text = text.map_err(|error| wrong(error.to_string()))?;
        let manifest: Self = serde_json::from_str(&text)
            .map_err(|error| wrong(format!("not a manifest of a backup: {error}")))?;
        if manifest.format != FORMAT {
            let newer = format!("has layout {}, this version reads {FORMAT}", manifest.format);
            return Err(wrong(newer));
        }
        if !manifest.months.iter().flatten().all(MonthCopy::is_sound) {
            return Err(wrong("names a month that is none".to_owned()));
        }
        let named = backup.file_name().is_some_and(|name| name == manifest.file.as_str());
        if named { Ok(manifest) } else { Err(wrong(format!("belongs to {}", manifest.file))) }
    }

    /// The content of the manifest's file.
    pub fn to_text(&self, path: &Path) -> Result<String> {
        let text = serde_json::to_string_pretty(self);
        let text = text
            .map_err(|error| Error::Manifest { path: path.to_owned(), why: error.to_string() })?;
        Ok(format!("{text}\n"))
    }
}
