//! As whom this process runs.

/// The user's number.
pub fn id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The user's name, as `/etc/passwd` has it; the number where it has none.
pub fn name() -> String {
    let number = id().to_string();
    let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_in(&known, &number).unwrap_or(number)
}

fn name_in(passwd: &str, number: &str) -> Option<String> {
    let mut lines = passwd.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_the_name_that_stands_before_it() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nodd\noncebox:x:998:998::/:/bin/false\n";
        assert_eq!(name_in(passwd, "998").as_deref(), Some("oncebox"));
        assert_eq!(name_in(passwd, "99"), None);
        assert!(!name().is_empty());
    }
}
