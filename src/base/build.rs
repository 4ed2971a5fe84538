//! What this program was built from and for.
//!
//! Cargo tells a program its version. The commit is told by whoever builds a release, in the environment variable
//! `ONCEBOX_COMMIT` (`packaging/release.sh`): a build that read it from Git itself would be made anew after each commit.

/// The version, as in `Cargo.toml`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that it was built from. A build that is no release has none.
pub const COMMIT: Option<&str> = option_env!("ONCEBOX_COMMIT");

/// Optional parts of the program that are in this build.
///
/// # Examples
/// ```
/// assert!(oncebox::base::build::features().iter().all(|feature| *feature == "kafka"));
/// ```
pub fn features() -> Vec<&'static str> {
    let mut features = Vec::new();
    if cfg!(feature = "kafka") {
        features.push("kafka");
    }
    features
}

/// The machine that it runs on: architecture, system and C library, such as `x86_64-linux-gnu`.
pub fn target() -> String {
    let float = if cfg!(all(target_arch = "arm", target_abi = "eabihf")) { "eabihf" } else { "" };
    let linked = if cfg!(target_feature = "crt-static") { ", static" } else { "" };
    format!("{}-{}-gnu{float}{linked}", std::env::consts::ARCH, std::env::consts::OS)
}

/// All of it in lines, under the version. `sqlite` is the version of the library.
pub fn describe(sqlite: &str) -> String {
    let commit = COMMIT.unwrap_or("unknown: not built as a release");
    let features = features();
    let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    let target = target();
    format!(
        "{VERSION}\ncommit    {commit}\ntarget    {target}\nfeatures  {features}\nSQLite    {sqlite}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_a_line() {
        let text = describe("3.51.3");
        let lines: Vec<&str> = text.lines().collect();
        let [version, commit, target, features, sqlite] = lines.as_slice() else {
            panic!("five lines are expected: {text}");
        };
        assert_eq!(*version, VERSION);
        assert!(commit.starts_with("commit    "), "{commit}");
        assert!(target.contains(std::env::consts::ARCH), "{target}");
        assert!(features.starts_with("features  "), "{features}");
        assert_eq!(*sqlite, "SQLite    3.51.3");
    }
}
