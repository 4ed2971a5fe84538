//! The recipes of docs/files.md, as an operator follows them: a file per batch, and the ways over SFTP against a server of OpenSSH
//! of the test's own.
//!
//! Few things differ from the page: paths, the server's address and its user.

use std::process::Child;

use crate::fault::process::prelude::*;
use crate::rig::port::free_port;

const PAGE: &str = include_str!("../../docs/files.md");

/// A server of a partner, with the directories `in`, `out` and `upload`. It runs without any privilege.
struct Partner {
    home: TempDir,
    user: String,
    port: u16,
    sshd: Option<Child>,
}

impl Partner {
    /// Starts one. `None` where a program is missing, after saying which.
    fn start(programs: &[&str]) -> Option<Self> {
        for program in [&["sshd", "ssh-keygen", "ssh-keyscan", "setpriv"], programs].concat() {
            if found(program).is_none() {
                skipped(&format!("needs {program}"));
                return None;
            }
        }
        let home = tempfile::tempdir().unwrap();
        let user = if is_root() { "nobody".to_owned() } else { run("id", &["-un"]) };
        let mut partner = Self { home, user, port: free_port(), sshd: None };
        for name in ["host", "login"] {
            let key = partner.path(name);
            run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &key]);
        }
        for directory in ["in", "out", "upload"] {
            fs::create_dir_all(partner.home.path().join("files").join(directory)).unwrap();
        }
        let config = format!(
            "ListenAddress 127.0.0.1\nPort {}\nHostKey {}\nPidFile none\nUsePAM {}\nStrictModes no\nPasswordAuthentication no\n\
             AuthorizedKeysFile {}\nSubsystem sftp internal-sftp\nForceCommand internal-sftp -d {}\n",
            partner.port,
            partner.path("host"),
            if is_root() { "yes" } else { "no" },
            partner.path("login.pub"),
            partner.path("files"),
        );
        fs::write(partner.path("sshd_config"), config).unwrap();
        if is_root() {
            for path in ["files", "host"] {
                run("chown", &["-R", "nobody:nogroup", &partner.path(path)]);
            }
            run("chmod", &["711", &partner.path("")]);
        }
        partner.open();
        let keys = run("ssh-keyscan", &["-T", "120", "-p", &partner.port.to_string(), "127.0.0.1"]);
        fs::write(partner.path("hosts"), keys + "\n").unwrap();
        Some(partner)
    }

    fn path(&self, name: &str) -> String {
        self.home.path().join(name).to_str().unwrap().to_owned()
    }

    /// Starts the server.
    fn open(&mut self) {
        let sshd = found("sshd").unwrap();
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"]).arg(sshd);
            command
        } else {
            Command::new(sshd)
        };
        let log = fs::File::create(self.path("log")).unwrap();
        command.args(["-D", "-e", "-f", &self.path("sshd_config")]);
        self.sshd = Some(command.stdin(Stdio::null()).stderr(log).spawn().unwrap());
        until("the server listens", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    /// Ends the server and all its sessions.
    fn close(&mut self) {
        let Some(mut sshd) = self.sshd.take() else { return };
        let sessions = children(sshd.id());
        drop(sshd.kill());
        drop(sshd.wait());
        for session in sessions {
            drop(Command::new("kill").args(["-KILL", &session.to_string()]).output());
        }
    }

    /// The page's text with the paths and the names of this test.
    fn here(&self, text: &str, local: &Path) -> String {
        text.replace("/etc/oncebox/partner-key", &self.path("login"))
            .replace("/etc/oncebox/partner-hosts", &self.path("hosts"))
            .replace("/srv/partner", local.to_str().unwrap())
            .replace("host=sftp.partner.example", &format!("host=127.0.0.1 port={}", self.port))
            .replace("user=shop", &format!("user={}", self.user))
            .replace(
                "shop@sftp.partner.example:/",
                &format!("{}@127.0.0.1:{}", self.user, self.path("files")),
            )
    }

    /// The partner puts a file where we fetch it.
    fn offers(&self, name: &str, content: &str) {
        let path = self.home.path().join("files/out");
        fs::write(path.join(".new"), content).unwrap();
        if is_root() {
            run("chown", &["nobody:nogroup", path.join(".new").to_str().unwrap()]);
        }
        fs::rename(path.join(".new"), path.join(name)).unwrap();
    }

    /// The contents of the files that we brought, in the order of their names.
    fn got(&self) -> Vec<String> {
        contents(&self.home.path().join("files/in"))
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        self.close();
    }
}

/// A share that is mounted until this is dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).output());
    }
}

/// The contents of the files of a folder, in the order of their names. A file that gets another name meanwhile is left out.
fn contents(folder: &Path) -> Vec<String> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    let read = |path: &PathBuf| match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        content => Some(content.unwrap()),
    };
    paths.iter().filter_map(read).collect()
}

fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn is_root() -> bool {
    run("id", &["-u"]) == "0"
}

#[track_caller]
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {complained}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The processes that a process has started, and those that they have started.
fn children(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let listed = fs::read_to_string(path).unwrap_or_default();
    let own: Vec<u32> = listed.split_whitespace().map(|id| id.parse().unwrap()).collect();
    own.iter().flat_map(|child| [vec![*child], children(*child)].concat()).collect()
}

/// The block of the page in this language that has these words.
fn block(language: &str, words: &str) -> &'static str {
    let fenced = PAGE.split("```").skip(1).step_by(2);
    let mut blocks = fenced.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'));
    blocks.find(|block| block.contains(words)).unwrap()
}

/// The value of a line of the page's unit.
fn line(unit: &str, name: &str) -> String {
    let mut lines = unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    lines.next().unwrap().to_owned()
}

/// A service that writes each event into a folder and reads what is dropped into another one.
fn service(writes: &Path, reads: &Path) -> (TempDir, Process) {
    let home = tempfile::tempdir().unwrap();
    let process = Process::start(home.path());
    process.post(
        "/v1/subscriptions",
        &json!({ "name": "partner", "url": format!("folder:{}", writes.display()), "event_types": ["invoice.sent"],
                 "template": { "name": "{{ id }}.json" } }),
    );
    let settings = json!({ "path": reads, "defaults": { "event_type": "order.received" } });
    process
        .post("/v1/sources", &json!({ "name": "partner", "kind": "drop", "settings": settings }));
    (home, process)
}

fn publish(process: &Process, n: u32) {
    process.post("/v1/events", &json!({ "event_type": "invoice.sent", "payload": n }));
}

/// The events that came from the partner.
fn received(home: &Path) -> Vec<String> {
    let conn = file::open(&home.join("data/oncebox.db"));
    let sql =
        "SELECT CAST(payload AS TEXT) FROM outbox WHERE event_type = 'order.received' ORDER BY seq";
    file::lines(&conn, sql)
}

#[test]
fn a_mounted_share_is_written_and_read_and_one_that_is_away_is_waited_for() {
    if !is_root() || !Path::new("/dev/fuse").exists() {
        return skipped("needs root and /dev/fuse, to mount");
    }
    let Some(mut partner) = Partner::start(&["sshfs", "mount"]) else { return };
    let unit = block("ini", "fuse.sshfs");
    let mount = tempfile::tempdir().unwrap();
    let options = partner.here(&line(unit, "Options"), mount.path());
    let options = options.replace("uid=oncebox,gid=oncebox", "uid=0,gid=0");
    let options = format!("{options},port={}", partner.port);
    let what = partner.here(&line(unit, "What"), mount.path());
    let kind = line(unit, "Type");
    run("mount", &["-t", &kind, "-o", &options, &what, mount.path().to_str().unwrap()]);
    let mounted = Mounted(mount.path().to_owned());
    let (home, process) = service(&mounted.0.join("in"), &mounted.0.join("out"));
    (0..3).for_each(|n| publish(&process, n));
    until("the partner has them", || partner.got() == ["0", "1", "2"]);
    partner.offers("order.json", "{\"order\":7}");
    until("it is read", || received(home.path()) == ["{\"order\":7}"]);
    until("it is done", || contents(&partner.home.path().join("files/out/done")).len() == 1);

    partner.close();
    publish(&process, 3);
    until("the subscription is held", || {
        let shown = process.call("GET", "/v1/subscriptions/partner", &Value::Null).is(200).json();
        shown["holds"][0]["reason"] == "breaker"
    });
    partner.open();
    until("the partner has the last one, too", || partner.got() == ["0", "1", "2", "3"]);
    until("it is settled", || process.pending() == Some(0));
    let conn = file::open(&home.path().join("data/oncebox.db"));
    let counted = "SELECT count(*) FROM attempts WHERE counted = 1";
    assert_eq!(file::lines(&conn, counted), ["0"], "away costs no attempts");
    process.stop();
}

#[test]
fn a_timer_brings_each_file_once_wherever_a_run_is_interrupted() {
    let Some(partner) = Partner::start(&["rclone"]) else { return };
    let local = tempfile::tempdir().unwrap();
    for directory in ["to-send", "incoming", "drop"] {
        fs::create_dir(local.path().join(directory)).unwrap();
    }
    let shell = |script: &str| {
        let output = Command::new("sh")
            .args(["-c", script])
            .env("RCLONE_CONFIG", partner.path("rclone.conf"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    };
    shell(&partner.here(block("sh", "rclone config create"), local.path()));
    let script = partner.here(block("sh", "rclone move"), local.path());
    let lines: Vec<&str> = script.lines().collect();
    let (home, process) = service(&local.path().join("to-send"), &local.path().join("drop"));
    let mut sent = Vec::new();
    let mut orders = Vec::new();
    for (n, until_line) in (0..).zip(3..=lines.len()) {
        publish(&process, n);
        until("it is written", || process.pending() == Some(0));
        partner.offers(&format!("{n}.json"), &format!("{{\"order\":{n}}}"));
        // This far, then the next run.
        shell(&lines[..until_line].join("\n"));
        shell(&script);
        sent.push(n.to_string());
        orders.push(format!("{{\"order\":{n}}}"));
        assert_eq!(partner.got(), sent, "{until_line}");
        until("it is read", || received(home.path()) == orders);
    }
    assert_eq!(sent.len(), 4, "each line but the last was the last one of a run");
    assert_eq!(contents(&local.path().join("to-send")), [""; 0]);
    process.stop();
}

/// The page's command. Its program is ours, and a file has seven lines at most.
fn batch_files(folder: &Path) -> Command {
    let program = env!("CARGO_BIN_EXE_oncebox");
    let command = block("sh", "oncebox batch-files")
        .replace("/srv/books", folder.to_str().unwrap())
        .replace("oncebox batch-files", &format!("exec {program} batch-files --max 7"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).stdout(Stdio::null());
    shell
}

/// A file that a run makes on its way, by the end of its name, and whether it is among the lines.
const ON_THE_WAY: [(&str, &str); 6] = [
    ("lines", "batch.json.new"),
    ("lines", "batch.json"),
    ("in", ".batch.part"),
    ("in", ".batch"),
    ("in", ".csv"),
    ("lines", "done"),
];

/// Runs the command, and kills it once such a file is there.
fn killed_at(folder: &Path, directory: &str, ending: &str) {
    let directory = folder.join(directory);
    let is_there = || {
        let names = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
        names.into_iter().any(|name| name.to_str().unwrap().ends_with(ending))
    };
    let mut run = batch_files(folder).spawn().unwrap();
    while !is_there() && run.try_wait().unwrap().is_none() {}
    drop(run.kill());
    drop(run.wait());
}

#[test]
fn a_file_per_batch_has_each_event_once_wherever_a_run_is_killed() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("books");
    for directory in ["lines", "in"] {
        fs::create_dir_all(folder.join(directory)).unwrap();
    }
    let process = Process::start(home.path());
    let commands =
        block("sh", "subscription create lines").replace("/srv/books", folder.to_str().unwrap());
    let program = Path::new(env!("CARGO_BIN_EXE_oncebox"));
    let config = home.path().join("oncebox.toml");
    let data = home.path().join("data");
    let own =
        format!("{} --config {} --data {}", program.display(), config.display(), data.display());
    let commands = commands.replace("oncebox subscription", &format!("{own} subscription"));
    let made =
        Command::new("sh").args(["-e", "-c", &commands]).current_dir(home.path()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut expected = Vec::new();
    // A reader takes the files away at once. `done/` is there from the second run on.
    let mut read = Vec::new();
    for n in 0..36_usize {
        for part in 0..2 {
            let payload = json!({ "no": format!("{n}-{part}"), "customer": "a;b", "total": n });
            process
                .post("/v1/events", &json!({ "event_type": "invoice.sent", "payload": payload }));
            expected.push(format!("{n}-{part};\"a;b\";{n}"));
        }
        until("they are written", || process.pending() == Some(0));
        let (directory, ending) = ON_THE_WAY[n % ON_THE_WAY.len()];
        killed_at(&folder, directory, ending);
        take(&folder.join("in"), &mut read);
    }
    let last = batch_files(&folder).output().unwrap();
    assert!(last.status.success(), "{last:?}");
    take(&folder.join("in"), &mut read);
    assert_eq!(read, expected);
    process.stop();
}

/// A reader takes each file and its lines, without the names of the columns.
fn take(folder: &Path, read: &mut Vec<String>) {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.file_name().unwrap().to_str().unwrap().starts_with('.') {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("no;customer;total"));
        read.extend(lines.map(str::to_owned));
        fs::remove_file(path).unwrap();
    }
}
