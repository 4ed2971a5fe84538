//! The URL of a folder target, and the names of the files in it.
//!
//! Not here: which folders a tenant may write to (`config::permitted`), and how a file is written (`targets::folder`).

use std::path::Path;

/// The longest name of a file. File systems allow 255 bytes; readers often add an ending.
const MAX_NAME_BYTES: usize = 200;
/// How such a URL is written.
const SHAPE: &str =
    "a folder is folder: and an absolute path without . and .., like folder:/srv/erp/in";

/// A folder that events are written to.
///
/// *Shape*: `folder:` and an absolute path.
///
/// ```
/// use oncebox::model::folder::Folder;
/// let folder = Folder::parse("folder:/srv/erp/in")?;
/// assert_eq!(folder.path().to_str(), Some("/srv/erp/in"));
/// assert!(Folder::parse("folder:srv").is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(String);

impl Folder {
    /// Reads a URL. The error says how one is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} cannot be read: {SHAPE}");
        let path = text.strip_prefix("folder:").ok_or_else(wrong)?;
        let path = path.trim_end_matches('/');
        let rest = path.strip_prefix('/').ok_or_else(wrong)?;
        let is_usable = |part: &str| !matches!(part, "" | "." | "..");
        if !rest.split('/').all(is_usable) || path.chars().any(char::is_control) {
            return Err(wrong());
        }
        Ok(Self(format!("folder:{path}")))
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        Path::new(self.0.strip_prefix("folder:").unwrap_or_default())
    }

    /// The URL.
    pub fn url(&self) -> &str {
        &self.0
    }
}

/// The name of a file in a folder from a text that a template made: [`file_name`], with the id of its event. The error
/// says why the text is no name.
pub fn unique_file_name(text: &str, ids: [&str; 2]) -> Result<String, String> {
    let name = file_name(text)?;
    if !ids.iter().any(|id| !id.is_empty() && name.contains(id)) {
        return Err(format!(
            "the file name {name:?} has neither the event's id nor its webhook_id, so two events could have one name"
        ));
    }
    Ok(name)
}

/// The name of a file from a text that a template made. Characters that no directory of Linux or Windows can hold become
/// `_`. The error says why the text is no name: it is empty, begins with a dot, or is too long.
pub fn file_name(text: &str) -> Result<String, String> {
    let is_unusable = |c: char| c.is_control() || "/\\:*?\"<>|".contains(c);
    let mut name: String =
        text.trim().chars().map(|c| if is_unusable(c) { '_' } else { c }).collect();
    if name.ends_with('.') {
        name.pop();
        name.push('_');
    }
    if name.starts_with('.') {
        return Err(format!(
            "the file name {name:?} begins with a dot, so readers would not see it"
        ));
    }
    if name.len() > MAX_NAME_BYTES {
        let bytes = name.len();
        return Err(format!(
            "the file name has {bytes} bytes; it may have {MAX_NAME_BYTES}: shorten name in the template"
        ));
    }
    if name.is_empty() {
        return Err("the file name is empty".to_owned());
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_an_absolute_path_without_steps_back() {
        for (text, path) in [
            ("folder:/srv/erp/in", "/srv/erp/in"),
            ("folder:/srv/in/", "/srv/in"),
            ("folder:/srv/à b", "/srv/à b"),
        ] {
            assert_eq!(Folder::parse(text).unwrap().path().to_str(), Some(path), "{text}");
        }
        for wrong in [
            "/srv/in",
            "folder:",
            "folder:/",
            "folder:srv/in",
            "folder:/srv/../etc",
            "folder:/srv/./in",
            "folder:/srv//in",
            "folder:/srv/i\nn",
            "file:///srv/in",
        ] {
            assert!(Folder::parse(wrong).unwrap_err().contains("folder:/srv/erp/in"), "{wrong}");
        }
    }

    #[test]
    fn a_name_stays_in_its_folder_and_has_the_id() {
        let ids = ["019c-id", "evt_abc"];
        for (text, name) in [
            ("order-evt_abc.json", "order-evt_abc.json"),
            (" a/../b 019c-id.xml\n", "a_.._b 019c-id.xml"),
            ("C:\\x\u{0}evt_abc", "C__x_evt_abc"),
            ("RE 4711/evt_abc.", "RE 4711_evt_abc_"),
        ] {
            assert_eq!(unique_file_name(text, ids).as_deref(), Ok(name), "{text:?}");
        }
        let long = format!("{}evt_abc", "ü".repeat(97));
        for (text, why) in [
            ("", "is empty"),
            ("..", "dot"),
            (".evt_abc", "dot"),
            ("order.json", "neither the event's id"),
            (long.as_str(), "201 bytes"),
        ] {
            let found = unique_file_name(text, ids).unwrap_err();
            assert!(found.contains(why), "{text:?}: {found}");
        }
        assert!(unique_file_name("x", ["", ""]).is_err());
        assert_eq!(file_name("Invoice 4711.pdf").as_deref(), Ok("Invoice 4711.pdf"));
    }
}
