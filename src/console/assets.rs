//! The stylesheet, the script and the icon. Their names hold a hash, so that a browser may keep them.

use crate::http::message::Response;

const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = include_str!("assets/script.js");
const ICON: &str = include_str!("assets/icon.svg");

/// The names of the three files.
pub(super) struct Assets {
    style: String,
    script: String,
    icon: String,
    version: String,
}

impl Assets {
    pub(super) fn new() -> Self {
        let path = |name: &str, text: &str, ending: &str| {
            format!("/console/assets/{name}-{}.{ending}", hash(text))
        };
        Self {
            style: path("style", STYLE, "css"),
            script: path("script", SCRIPT, "js"),
            icon: path("icon", ICON, "svg"),
            version: hash(&format!("{STYLE}{SCRIPT}{}", env!("CARGO_PKG_VERSION"))),
        }
    }

    pub(super) fn style(&self) -> &str {
        &self.style
    }

    pub(super) fn script(&self) -> &str {
        &self.script
    }

    pub(super) fn icon(&self) -> &str {
        &self.icon
    }

    /// Changes with each release that changes the pages.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// A file, by the last part of its path.
    pub(super) fn get(&self, name: &str) -> Response {
        let named = |path: &str| path.rsplit('/').next() == Some(name);
        let (kind, text) = match name {
            _ if named(&self.style) => ("text/css; charset=utf-8", STYLE),
            _ if named(&self.script) => ("text/javascript; charset=utf-8", SCRIPT),
            _ if named(&self.icon) => ("image/svg+xml", ICON),
            _ => return Response::new(404),
        };
        Response::with_body(200, kind, text.as_bytes().to_vec())
            .header("cache-control", "public, max-age=31536000, immutable")
            .header("x-content-type-options", "nosniff")
    }
}

fn hash(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    data_encoding::HEXLOWER.encode(digest.as_ref().get(..6).unwrap_or_default())
}
