//! The environment of the process. Nothing else reads it.

use std::ffi::OsString;
use std::path::PathBuf;

/// Prefix of Oncebox's variables.
const PREFIX: &str = "ONCEBOX_";
/// The variable with systemd's directory of credentials, such as the master key.
pub const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// Separates section and key in a variable that sets a key.
const SEPARATOR: &str = "__";

/// A copy of the environment's variables.
#[derive(Clone, Debug, Default)]
pub struct Environment(Vec<(String, String)>);

impl Environment {
    /// This process's variables, without those that are empty or not UTF-8.
    #[expect(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
    pub fn of_process() -> Self {
        let all = std::env::vars_os();
        let texts = all.filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok().filter(|v| !v.is_empty())?))
        });
        Self(texts.collect())
    }

    /// These variables.
    #[cfg(any(test, feature = "internals"))]
    pub fn of<const N: usize>(variables: [(&str, &str); N]) -> Self {
        Self(variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec())
    }

    /// A variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The variables that set a key: names and values.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        let ours = |name: &str| name.strip_prefix(PREFIX).is_some_and(|n| n.contains(SEPARATOR));
        let all = self.0.iter().filter(move |(name, _)| ours(name));
        all.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The default data directory: systemd's state directory, or the user's, or one in the working directory.
    pub(super) fn data_directory(&self) -> PathBuf {
        if let Some(state) = self.get("STATE_DIRECTORY") {
            return PathBuf::from(state);
        }
        if let Some(home) = self.get("XDG_DATA_HOME") {
            return PathBuf::from(home).join("oncebox");
        }
        match self.get("HOME") {
            Some(home) => PathBuf::from(home).join(".local/share/oncebox"),
            None => PathBuf::from("oncebox-data"),
        }
    }
}

/// The names of Oncebox's variables and of those that lead to its secrets. They are removed for other programs, because
/// they may hold the token or the master key.
#[expect(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
pub fn own_variables() -> Vec<OsString> {
    let names = std::env::vars_os().map(|(name, _)| name);
    let ours = |name: &OsString| {
        name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) || name == CREDENTIALS
    };
    names.filter(ours).collect()
}

/// A variable of this process's environment; `None` if it is not set, empty, or not UTF-8.
#[expect(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
