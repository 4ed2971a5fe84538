//! The environment of the process. Nothing else reads it.

use std::ffi::OsString;
use std::path::PathBuf;

/// What a variable of ours begins with.
const PREFIX: &str = "ONCEBOX_";
/// Where systemd puts what a unit of ours was given, the master key among it.
pub const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// What stands between section and key in a variable that sets one.
const BETWEEN: &str = "__";

/// Variables, as they were when the process looked.
#[derive(Clone, Debug, Default)]
pub struct Environment(Vec<(String, String)>);

impl Environment {
    /// This process's. Variables that are empty or no text are left out.
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

    /// The variables that set a key: their names, and what they say.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        let ours = |name: &str| name.strip_prefix(PREFIX).is_some_and(|n| n.contains(BETWEEN));
        let all = self.0.iter().filter(move |(name, _)| ours(name));
        all.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// systemd's state directory, else the user's own data directory, else a directory right here.
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

/// The names of all variables of ours in this process's environment, and of those that lead to our secrets.
/// Programs of others are run without them: the token and the master key may be among them.
#[expect(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
pub fn own_variables() -> Vec<OsString> {
    let names = std::env::vars_os().map(|(name, _)| name);
    let ours = |name: &OsString| {
        name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) || name == CREDENTIALS
    };
    names.filter(ours).collect()
}

/// A variable of this process's environment; `None` when it is not set, empty, or not text.
#[expect(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
