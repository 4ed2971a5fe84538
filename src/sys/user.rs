//! The user that this process runs as, and changing its rights.
//!
//! Where another user decides what a path leads to, root works with that user's rights. So no link of that user makes
//! root open a file that the user could not open.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::{fs, io};

use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid, getuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Links that a path may lead through.
const MAX_LINKS: u32 = 40;

/// The effective user id of this thread.
pub fn id() -> u32 {
    geteuid().as_raw()
}

/// The id of the user who started this process.
pub fn starter() -> u32 {
    getuid().as_raw()
}

/// If root started this process, takes the rights of [`in_directory`] from now on, in this thread and its children.
pub fn become_owner_of(directory: &Path) -> io::Result<()> {
    if getuid().is_root() { Rights::over(directory)?.take() } else { Ok(()) }
}

/// Does `work` on a file of `directory`. If root started this process, with the rights of the user who decides what
/// that path leads to: root only if every directory and link on it is root's.
pub fn in_directory<T>(directory: &Path, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if !getuid().is_root() {
        return work();
    }
    let before = Rights { user: geteuid(), group: getegid() };
    // Looked at as root, because no other user may look into /root.
    Rights::ROOTS.take()?;
    let done = Rights::over(directory).and_then(Rights::take).and_then(|()| work());
    before.take()?;
    done
}

/// Starts a program with the rights of this thread. If root started this process and the thread works as another user,
/// the program gets that user and group alone, as real, effective and saved ids, and no supplementary group: it cannot
/// become root again.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let rights = Rights { user: geteuid(), group: getegid() };
    if !getuid().is_root() || rights.user.is_root() {
        return command.spawn();
    }
    command.uid(rights.user.as_raw()).gid(rights.group.as_raw());
    // Only root may set all ids; the new process does so before it becomes the program.
    Rights::ROOTS.take()?;
    let spawned = command.spawn();
    rights.take()?;
    spawned
}

/// A user and a group that this thread works as.
#[derive(Clone, Copy)]
struct Rights {
    user: Uid,
    group: Gid,
}

impl Rights {
    const ROOTS: Self = Self { user: Uid::ROOT, group: Gid::ROOT };

    fn of(part: &fs::Metadata) -> Option<Self> {
        let user = Uid::from_raw(part.uid());
        let group = Gid::from_raw(part.gid());
        (!user.is_root()).then_some(Self { user, group })
    }

    /// The rights over a path: of the first link that is not root's, else of the last directory that is not root's.
    fn over(path: &Path) -> io::Result<Self> {
        let mut path = std::path::absolute(path)?;
        for _ in 0..MAX_LINKS {
            let mut parts: Vec<&Path> = path.ancestors().collect();
            let owner = |part: &&Path| Self::of(&fs::symlink_metadata(part).ok()?);
            let links_to = |part: &&Path| Some((part.to_path_buf(), fs::read_link(part).ok()?));
            let Some((link, to)) = parts.iter().rev().find_map(links_to) else {
                return Ok(parts.iter().find_map(owner).unwrap_or(Self::ROOTS));
            };
            parts.retain(|part| *part == link);
            if let Some(theirs) = parts.iter().find_map(owner) {
                return Ok(theirs);
            }
            let rest = path.strip_prefix(&link).map_err(io::Error::other)?;
            path = link.parent().unwrap_or(&link).join(to).join(rest);
        }
        Err(Errno::LOOP.into())
    }

    fn take(self) -> io::Result<()> {
        set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
        set_thread_groups(&[self.group])?;
        set_thread_res_gid(Gid::ROOT, self.group, Gid::ROOT)?;
        Ok(set_thread_res_uid(Uid::ROOT, self.user, Uid::ROOT)?)
    }
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
