//! Reads secrets from a file or stdin, or generates them. Never from an argument, which every user of the machine can
//! read in the process list.
//!
//! Not here: whether a secret fits a scheme (`Scheme::check_secret`).

use std::path::{Path, PathBuf};

use clap::Args;
use zeroize::Zeroizing;

use crate::base::id::SystemDraw;
use crate::base::text::without_mark;
use crate::cli::exit::Failure;
use crate::cli::input;
use crate::config::{CREDENTIALS, environment};
use crate::signatures::Scheme;
use crate::signatures::new_secret::new_secret;

/// Flags that say where a secret is.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(super) struct SecretAt {
    /// File with the secret
    #[arg(id = "secret_file", long = "secret-file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Read the secret from stdin
    #[arg(id = "secret_stdin", long = "secret-stdin")]
    stdin: bool,
    #[arg(
        id = "secret_credential",
        long = "secret-credential",
        value_name = "NAME",
        help = "systemd credential with the secret: its name in $CREDENTIALS_DIRECTORY"
    )]
    credential: Option<String>,
}

impl SecretAt {
    /// The secret; `None` if no flag says where it is.
    pub(super) fn read(&self) -> Result<Option<Zeroizing<String>>, Failure> {
        if let Some(path) = &self.file {
            one_line(path).map(Some)
        } else if self.stdin {
            line_of(&Zeroizing::new(input::stdin()?), "stdin").map(Some)
        } else {
            self.credential.as_deref().map(credential).transpose()
        }
    }

    fn is_given(&self) -> bool {
        self.file.is_some() || self.stdin || self.credential.is_some()
    }
}

/// Reads a systemd credential.
pub(super) fn credential(name: &str) -> Result<Zeroizing<String>, Failure> {
    let directory = environment(CREDENTIALS).ok_or_else(|| {
        let why = "there are no systemd credentials: CREDENTIALS_DIRECTORY is not set";
        Failure::input(format!("{name}: {why}"))
    })?;
    one_line(&Path::new(&directory).join(name))
}

/// Flags that name a provider's secret.
#[derive(Debug, Args)]
pub(super) struct SecretFrom {
    #[command(flatten)]
    at: SecretAt,
    /// Generate a secret for the scheme and print it; it cannot be shown again
    #[arg(long, conflicts_with_all = ["secret_file", "secret_stdin", "secret_credential"])]
    generate_secret: bool,
}

/// A secret. If it was generated here, it has to be printed.
#[derive(Debug)]
pub(super) struct Secret {
    pub(super) text: Zeroizing<String>,
    pub(super) generated: bool,
}

impl SecretFrom {
    /// The secret; `None` if no flag names one.
    pub(super) fn read(&self, scheme: &Scheme) -> Result<Option<Secret>, Failure> {
        let text = match self.at.read()? {
            Some(text) => text,
            None if self.generate_secret => new_secret(scheme, &SystemDraw::new()),
            None => return Ok(None),
        };
        Ok(Some(Secret { text, generated: self.generate_secret }))
    }

    /// Whether a flag names a secret.
    pub(super) fn is_given(&self) -> bool {
        self.at.is_given() || self.generate_secret
    }
}

/// Reads a secret from a file, without the newline at its end.
pub(super) fn one_line(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let bytes = Zeroizing::new(input::file(path)?);
    line_of(&bytes, &path.display().to_string())
}

/// The failure for a file that cannot be written.
pub(super) fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()))
}

/// Decodes a secret: text without the newline at its end, not empty.
fn line_of(bytes: &[u8], name: &str) -> Result<Zeroizing<String>, Failure> {
    let text = std::str::from_utf8(without_mark(bytes))
        .map_err(|error| Failure::input(format!("{name} is not text: {error}")))?;
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() {
        return Err(Failure::input(format!("{name} is empty")));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_made_here_suits_its_scheme() {
        for scheme in [
            r#"{"kind":"standard"}"#,
            r#"{"kind":"stripe"}"#,
            r#"{"kind":"github"}"#,
            r#"{"kind":"shopify"}"#,
            r#"{"kind":"generic","check":{"token":{"header":"X-Token"}}}"#,
            r#"{"kind":"generic","check":{"basic":{"user":"erp"}}}"#,
            r#"{"kind":"generic","check":{"hmac":{"signed":"{body}","header":"X-Sig","secret_encoding":"base64"}}}"#,
            r#"{"kind":"generic","check":{"hmac":{"signed":"{body}","header":"X-Sig","secret_encoding":"hex"}}}"#,
        ] {
            let scheme: Scheme = serde_json::from_str(scheme).unwrap();
            let secret = new_secret(&scheme, &SystemDraw::new());
            assert_eq!(scheme.check_secret(&secret), Ok(()), "{}", scheme.kind());
            assert_ne!(secret, new_secret(&scheme, &SystemDraw::new()));
        }
    }

    #[test]
    fn the_newline_that_an_editor_leaves_is_no_part_of_the_secret() {
        assert_eq!(line_of(b"abc\r\n", "x").unwrap().as_str(), "abc");
        assert_eq!(line_of(b"\xef\xbb\xbfabc\r\n", "x").unwrap().as_str(), "abc");
        assert_eq!(line_of(b"a c\n\n", "x").unwrap().as_str(), "a c\n");
        assert!(line_of(b"\n", "x").is_err() && line_of(&[0xff], "x").is_err());
    }
}
