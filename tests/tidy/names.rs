//! Names of types that say nothing, or that several types want.

/// Names that say what was done to a value, or that there is more than one of something, and not what it is.
pub(super) const NO_MEANING: [&str; 8] =
    ["Carried", "Common", "Found", "Given", "Kept", "Material", "Parts", "Shared"];

/// Names that fit many types. One type of the program may have each of them; a search finds the others by their nouns.
pub(super) const MANY_MEANINGS: [&str; 3] = ["Filter", "Kind", "State"];

/// How many types of that name are declared in the code of all files.
pub(super) fn named(files: &[String], name: &str) -> usize {
    files.iter().flat_map(|code| types(code)).filter(|declared| *declared == name).count()
}

/// The types that a text declares.
fn types(code: &str) -> impl Iterator<Item = &str> {
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.filter_map(|line| {
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        let mut words = words.filter(|word| !word.is_empty());
        words.find(|word| ["struct", "enum", "type", "trait", "union"].contains(word))?;
        words.next()
    })
}

#[test]
fn declared_types_are_found() {
    let code = "/// The struct Found.\npub(super) struct Given<'a> {\n    found: Found,\n}\n\
                words! {\n    pub enum Kind as \"CredentialKind\" {}\n}\ntype Parts = (u8, u8);\n";
    assert_eq!(types(code).collect::<Vec<_>>(), ["Given", "Kind", "Parts"]);
    let files = [code.to_owned(), "struct Kind;".to_owned()];
    assert_eq!(named(&files, "Kind"), 2);
    assert_eq!(named(&files, "Found"), 0);
}
