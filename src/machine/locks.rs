//! Whether another process holds a lock on a file.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where the system lists the locks on files. A process in a container sees those of its container only.
const LOCKS: &str = "/proc/locks";

/// Whether another process is seen to hold a lock on a file. Reads one small file and opens nothing else: to
/// open and close the file itself would give up the locks of our own on it.
///
/// ```
/// let file = tempfile::NamedTempFile::new().unwrap();
/// assert!(!oncebox::machine::locks::held_by_another(file.path()));
/// ```
pub fn held_by_another(file: &Path) -> bool {
    let (Ok(file), Ok(locks)) = (file.metadata(), std::fs::read_to_string(LOCKS)) else {
        return false;
    };
    is_held(&locks, file.ino(), std::process::id())
}

/// `1: POSIX  ADVISORY  READ 4711 fe:00:131090 128 128`: the fifth field is the process, the sixth the file. The
/// device is left out: some file systems show another one here than `stat` does.
fn is_held(locks: &str, inode: u64, own: u32) -> bool {
    locks.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(4);
        let holder = fields.next().and_then(|id| id.parse::<u32>().ok());
        let locked = fields.next().and_then(|file| file.rsplit(':').next()?.parse::<u64>().ok());
        holder.is_some_and(|id| id != own) && locked == Some(inode)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
1: POSIX  ADVISORY  READ 4711 fe:00:131090 128 128
2: FLOCK  ADVISORY  WRITE 12 fe:00:8 0 EOF
3: OFDLCK ADVISORY  READ -1 fe:00:9 0 EOF
3: -> POSIX  ADVISORY  WRITE 13 fe:00:7 0 EOF
";

    #[test]
    fn a_lock_counts_when_it_is_on_the_file_and_not_our_own() {
        assert!(is_held(LOCKS, 131_090, 1));
        assert!(!is_held(LOCKS, 131_090, 4711));
        assert!(!is_held(LOCKS, 31_090, 1));
        assert!(is_held(LOCKS, 8, 1));
    }

    #[test]
    fn a_line_that_is_not_understood_holds_nothing() {
        assert!(!is_held("", 9, 1));
        assert!(!is_held("3: OFDLCK ADVISORY  READ -1 fe:00:9 0 EOF\nnonsense\n", 9, 1));
        assert!(!is_held(LOCKS, 7, 13));
    }
}
