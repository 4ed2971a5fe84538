//! Commands that root runs on a directory of the service's user, who may be an attacker by then: nothing outside
//! the directory changes, and what is made in it belongs to that user.

use std::os::unix::fs::{MetadataExt, chown, symlink};

use crate::cli::rig::prelude::*;
use crate::rig::skipped;

/// A user that owns nothing else here.
const SERVICE: u32 = 64_990;
const TOKEN: [&str; 6] = ["token", "create", "lost", "--role", "admin", "--offline"];

/// A service's directory and a file of root's beside it; `None` where this is not root.
struct Site {
    rig: Rig,
    victim: PathBuf,
    _outside: TempDir,
}

impl Site {
    fn new() -> Option<Self> {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            skipped("only root can play root");
            return None;
        }
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        fs::write(&victim, "root's own\n").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
        Some(Self { rig: Rig::stopped(), victim, _outside: outside })
    }

    fn dir(&self) -> &Path {
        self.rig.dir.path()
    }

    /// Gives the directory and what is in it to the service's user.
    fn give(&self) {
        chown(self.dir(), Some(SERVICE), Some(SERVICE)).unwrap();
        for entry in fs::read_dir(self.dir()).unwrap() {
            std::os::unix::fs::lchown(entry.unwrap().path(), Some(SERVICE), Some(SERVICE)).unwrap();
        }
    }

    #[track_caller]
    fn check(&self) {
        assert_eq!(fs::read_to_string(&self.victim).unwrap(), "root's own\n");
        assert_eq!(fs::metadata(&self.victim).unwrap().uid(), 0);
        for entry in fs::read_dir(self.dir()).unwrap() {
            let entry = entry.unwrap();
            let owner = fs::symlink_metadata(entry.path()).unwrap().uid();
            assert_eq!(owner, SERVICE, "{}", entry.path().display());
        }
    }
}

/// The way to the first administrator where the code is not in the journal.
#[test]
fn a_link_that_root_asks_for_makes_the_first_user_and_leaves_nothing_of_roots() {
    let Some(mut site) = Site::new() else { return };
    site.rig.start();
    site.give();
    let link = site.rig.run(&["console", "link", "--user", "anna"]);
    shows(&link.out, &["/console/enter?link=obl_"]);
    shows(&link.err, &["created with the role admin"]);
    assert_eq!(site.rig.items(&["user", "list"]).len(), 1);
    site.check();
}

/// A stopped service that has a database and, in `backups` beside it, a backup.
fn used() -> Option<(Site, PathBuf)> {
    let mut used = Site::new()?;
    used.rig.start();
    let backups = tempfile::tempdir().unwrap().keep();
    used.rig.ok(&["backup", backups.to_str().unwrap()]);
    used.rig.kill();
    let found = fs::read_dir(&backups).unwrap().map(|entry| entry.unwrap().path());
    let backup =
        found.into_iter().find(|path| path.extension().is_some_and(|e| e == "db")).unwrap();
    Some((used, backup))
}

#[test]
fn a_lock_that_is_a_link_empties_nothing() {
    let Some((used, _)) = used() else { return };
    let lock = used.dir().join("oncebox.lock");
    fs::remove_file(&lock).unwrap();
    symlink(&used.victim, &lock).unwrap();
    used.give();
    let ran = used.rig.run(&TOKEN);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("oncebox.lock"), "{ran:?}");
    used.check();
}

#[test]
fn a_restore_overwrites_nothing_through_a_link_at_its_partial_file() {
    let Some((used, backup)) = used() else { return };
    fs::remove_file(used.dir().join("oncebox.db")).unwrap();
    // Its name has the time in it, to the second.
    let now = std::time::SystemTime::now();
    for ahead in 0..20 {
        let at = Timestamp::from(now + Duration::from_secs(ahead));
        let stamp = oncebox::backup::online::stamp(at);
        let name = format!("oncebox.db.restored-{stamp}.partial");
        symlink(&used.victim, used.dir().join(name)).unwrap();
    }
    used.give();
    let ran = used.rig.run(&["restore", backup.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "a leftover is cleared away, whatever it is: {ran:?}");
    used.check();
}

#[test]
fn a_restore_into_an_empty_directory_leaves_everything_to_the_service() {
    let Some((used, backup)) = used() else { return };
    let key = used.dir().join("master.key");
    let kept = fs::read(&key).unwrap();
    for entry in fs::read_dir(used.dir()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    fs::write(&key, kept).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    used.give();
    // The backup lies where only root may look.
    fs::set_permissions(backup.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
    let ran = used.rig.run(&["restore", backup.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    used.check();
    let ran = used.rig.run(&TOKEN);
    assert_eq!(ran.code, 0, "{ran:?}");
    let audit = used.rig.run(&["audit", "verify"]);
    assert_eq!(audit.code, 0, "{audit:?}");
    used.check();
}

#[test]
fn a_key_of_roots_is_read_and_rotated_in_roots_directory() {
    let Some((used, _)) = used() else { return };
    let etc = tempfile::tempdir().unwrap();
    fs::set_permissions(etc.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let key = etc.path().join("master.key");
    fs::rename(used.dir().join("master.key"), &key).unwrap();
    used.give();
    let mut command = used.rig.command(&["keys", "rotate"]);
    command.env("ONCEBOX_KEYS__MASTER_KEY_FILE", &key);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::metadata(&key).unwrap().uid(), 0);
    assert_eq!(
        fs::read_dir(etc.path()).unwrap().count(),
        2,
        "the old key stays beside the new one"
    );
    used.check();
}

#[test]
fn a_user_who_swaps_links_while_root_works_reaches_nothing() {
    let Some((used, backup)) = used() else { return };
    used.give();
    let (over, victim, dir) = (AtomicBool::new(false), &used.victim, used.dir());
    thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let now = std::time::SystemTime::now();
                let stamp = oncebox::backup::online::stamp(Timestamp::from(now));
                let partial = format!("oncebox.db.restored-{stamp}.partial");
                let fixed = ["oncebox.lock", "oncebox.db-wal", "oncebox.db.erasures"];
                for name in fixed.into_iter().chain([partial.as_str()]) {
                    let (there, aside) = (dir.join(name), dir.join("aside"));
                    drop(symlink(victim, &aside));
                    drop(fs::rename(&aside, &there));
                }
                thread::sleep(Duration::from_micros(200));
                for name in fixed.into_iter().chain([partial.as_str()]) {
                    drop(fs::remove_file(dir.join(name)));
                }
            }
        });
        for _ in 0..10 {
            used.rig.run(&TOKEN);
            used.rig.run(&["restore", "--force", backup.to_str().unwrap()]);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read_to_string(victim).unwrap(), "root's own\n");
}

#[test]
fn a_backup_that_root_makes_in_a_directory_of_the_service_belongs_to_the_service() {
    let Some((used, _)) = used() else { return };
    used.give();
    let backups = tempfile::tempdir().unwrap();
    chown(backups.path(), Some(SERVICE), Some(SERVICE)).unwrap();
    used.rig.ok(&["backup", backups.path().to_str().unwrap()]);
    for entry in fs::read_dir(backups.path()).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().uid(), SERVICE);
    }
    used.check();
}

/// A command that could take root's rights back would undo that the service works with its user's.
#[test]
fn a_command_of_a_service_that_root_started_has_the_ids_of_the_services_user_alone() {
    let Some((mut used, _)) = used() else { return };
    let settings = fs::read_to_string(used.dir().join("oncebox.toml")).unwrap();
    let status = used.dir().join("status");
    let script = format!("cat /proc/self/status > {}; printf second", status.display());
    let commands = format!("[credentials.commands]\nvault = [\"/bin/sh\", \"-c\", \"{script}\"]\n");
    used.rig.file("oncebox.toml", &format!("{settings}\n{commands}"));
    used.give();
    used.rig.start();
    let target = Target::answering(204);
    used.rig.ok(&["subscription", "create", "erp", "--event-type", "*", "--url", &target.url]);
    let secret = used.rig.file("secret", "first");
    let secret = secret.to_str().unwrap();
    used.rig.ok(&["credential", "set", "erp", "--kind", "bearer", "--secret-file", secret]);
    let all = used.rig.items(&["credential", "list", "--subscription", "erp", "--state", "active"]);
    let bearer = all.iter().find(|one| one["kind"] == "bearer").unwrap();
    let id = bearer["id"].as_str().unwrap();
    used.rig.ok(&["credential", "rotate", id, "--command", "vault"]);
    let status = fs::read_to_string(&status).unwrap();
    let ids = |name: &str| -> Vec<u32> {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().skip(1).map(|id| id.parse().unwrap()).collect()
    };
    // Real, effective, saved, and of files.
    assert_eq!((ids("Uid:"), ids("Gid:")), (vec![SERVICE; 4], vec![SERVICE; 4]));
    let groups = ids("Groups:");
    assert!(groups.iter().all(|group| *group == SERVICE), "{groups:?}");
}

/// Replaces a file by another, as the service's user could.
fn plant(used: &Site, name: &str, target: &Path) {
    let path = used.dir().join(name);
    drop(fs::remove_file(&path));
    symlink(target, path).unwrap();
    used.give();
}

#[test]
fn a_token_that_is_a_link_to_roots_key_is_sent_to_nobody() {
    let Some((used, _)) = used() else { return };
    let heard = TcpListener::bind("127.0.0.1:0").unwrap();
    heard.set_nonblocking(true).unwrap();
    let server = format!("http://{}", heard.local_addr().unwrap());
    plant(&used, "admin.token", &used.victim);
    let ran = used.rig.run(&["token", "list", "--server", &server]);
    assert!(ran.code == 77 && ran.err.contains("admin.token"), "{ran:?}");
    assert!(heard.accept().is_err(), "something was sent");
    // A file that somebody else put there is another's token.
    let token = used.dir().join("admin.token");
    fs::remove_file(&token).unwrap();
    fs::write(&token, "obx_planted").unwrap();
    chown(&token, Some(SERVICE + 1), Some(SERVICE)).unwrap();
    let ran = used.rig.run(&["token", "list", "--server", &server]);
    assert!(ran.code == 77 && ran.err.contains("somebody else"), "{ran:?}");
    assert!(heard.accept().is_err(), "something was sent");
}

#[test]
fn an_address_that_is_a_link_or_somebody_elses_gets_no_token() {
    let Some((used, _)) = used() else { return };
    let heard = TcpListener::bind("127.0.0.1:0").unwrap();
    heard.set_nonblocking(true).unwrap();
    fs::write(&used.victim, heard.local_addr().unwrap().to_string()).unwrap();
    plant(&used, "oncebox.address", &used.victim);
    used.rig.run(&["token", "list"]);
    assert!(heard.accept().is_err(), "the token went where the link leads");
    let address = used.dir().join("oncebox.address");
    fs::remove_file(&address).unwrap();
    fs::copy(&used.victim, &address).unwrap();
    chown(&address, Some(SERVICE + 1), Some(SERVICE)).unwrap();
    used.rig.run(&["token", "list"]);
    assert!(heard.accept().is_err(), "the token went where somebody else said");
}

#[test]
fn a_backup_follows_no_link_of_the_services_user_into_a_directory_of_root() {
    let Some((used, _)) = used() else { return };
    let roots = tempfile::tempdir().unwrap();
    plant(&used, "backups", roots.path());
    let named = used.dir().join("backups");
    let ran = used.rig.run(&["backup", named.to_str().unwrap()]);
    assert_eq!((ran.code, fs::read_dir(roots.path()).unwrap().count()), (77, 0), "{ran:?}");
    // Nor into one that can be reached through a directory of that user.
    let below = used.dir().join("below");
    fs::remove_file(&named).unwrap();
    fs::create_dir(&below).unwrap();
    let ran = used.rig.run(&["backup", below.to_str().unwrap()]);
    assert_eq!((ran.code, fs::read_dir(&below).unwrap().count()), (77, 0), "{ran:?}");
}
