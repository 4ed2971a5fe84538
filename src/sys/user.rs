//! The user that this process runs as, and changing its rights.
//!
//! In a directory of another user, root works with that user's rights. So a link in that directory cannot make root
//! open a file that the user could not open.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Gid, Uid, getegid, geteuid, getuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// The effective user id of this thread.
pub fn id() -> u32 {
    geteuid().as_raw()
}

/// The id of the user who started this process.
pub fn starter() -> u32 {
    getuid().as_raw()
}

/// If this process runs as root and another user owns `directory`, takes that user's rights from now on, in this
/// thread and in threads that it starts. Otherwise changes nothing.
pub fn become_owner_of(directory: &Path) -> io::Result<()> {
    let owner = fs::metadata(directory)?;
    if !geteuid().is_root() || owner.uid() == 0 {
        return Ok(());
    }
    let group = Gid::from_raw(owner.gid());
    set_thread_groups(&[group])?;
    set_thread_res_gid(Gid::ROOT, group, Gid::ROOT)?;
    Ok(set_thread_res_uid(Uid::ROOT, Uid::from_raw(owner.uid()), Uid::ROOT)?)
}

/// Does `work` on a file of `directory`: with root's rights if root started this process and owns the directory,
/// else with the current rights.
pub fn in_directory<T>(directory: &Path, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = (geteuid(), getegid());
    if before.0.is_root() || !getuid().is_root() {
        return work();
    }
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    // Checked as root, because no other user may look into /root.
    let is_roots = fs::metadata(directory).is_ok_and(|owner| owner.uid() == 0);
    let restore = || {
        set_thread_res_gid(Gid::ROOT, before.1, Gid::ROOT)?;
        set_thread_res_uid(Uid::ROOT, before.0, Uid::ROOT)
    };
    if !is_roots {
        restore()?;
        return work();
    }
    let done = work();
    restore()?;
    done
}

/// The name in `/etc/passwd` of the user who started this process; the user's id if it has none.
pub fn name() -> String {
    let number = starter().to_string();
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
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
    fn a_user_id_is_looked_up_in_its_own_field() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nodd\noncebox:x:998:998::/:/bin/false\n";
        assert_eq!(name_in(passwd, "998").as_deref(), Some("oncebox"));
        assert_eq!(name_in(passwd, "99"), None);
        assert!(!name().is_empty());
    }
}
