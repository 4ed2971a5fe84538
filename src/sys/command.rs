//! Runs a program: writes its input, keeps its output up to a limit, and kills all its processes at its timeout or
//! end.
//!
//! A program runs in a process group of its own. The whole group is killed at the timeout, and also when its leader
//! has ended: a process left in the background would hold the output open, and would still run beside the next
//! attempt. Only [`wait`] and [`Program::run`] block, so that one thread can manage many programs. Not here: what an
//! exit code means.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use crate::base::clock::Clock;
use crate::sys::user;

/// Between asking a program to end and killing it.
const GRACE: Duration = Duration::from_secs(2);
/// How often a program is polled on kernels before 5.3, which have no pidfd.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Bytes read or written at once.
const CHUNK: usize = 16 * 1024;

/// A program to be run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Variables removed from the inherited environment, such as secrets.
    pub without: Vec<OsString>,
    /// Variables added after that.
    pub environment: Vec<(String, String)>,
    /// Its standard input. It need not read all of it.
    pub input: Vec<u8>,
    /// After this it gets SIGTERM, and 2 s later SIGKILL, with every process of its group.
    pub timeout: Duration,
    /// Bytes kept of each output, stdout and stderr. The rest is read and discarded.
    pub output_most: usize,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Killed(i32),
    /// It ran into its timeout.
    TimedOut,
}

impl std::fmt::Display for How {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit {code}"),
            Self::Killed(signal) => write!(f, "killed by signal {signal}"),
            Self::TimedOut => f.write_str("timed out"),
        }
    }
}

/// A program that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How it ended.
    pub how: How,
    /// The start of its standard output.
    pub stdout: Vec<u8>,
    /// The start of its standard error.
    pub stderr: Vec<u8>,
    /// How long it ran.
    pub took: Duration,
}

/// A program that runs. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    group: Pid,
    /// Becomes readable when the leader ends.
    watch: Option<OwnedFd>,
    input: Option<(ChildStdin, Vec<u8>, usize)>,
    stdout: Output<ChildStdout>,
    stderr: Output<ChildStderr>,
    clock: Clock,
    began: Duration,
    /// When it gets SIGTERM; after that, when it gets SIGKILL.
    deadline: Duration,
    asked: bool,
    timed_out: bool,
    reaped: bool,
}

#[derive(Debug)]
struct Output<R> {
    from: Option<R>,
    kept: Vec<u8>,
    most: usize,
}

impl Program {
    /// Starts it.
    pub fn start(self, clock: &Clock) -> io::Result<Running> {
        let Self { argv, without, environment, input, timeout, output_most } = self;
        let (program, arguments) =
            argv.split_first().ok_or_else(|| io::Error::other("there is no program to run"))?;
        let mut command = Command::new(program);
        for name in without {
            command.env_remove(name);
        }
        command.args(arguments).envs(environment).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = user::spawn(&mut command)?;
        let group = Pid::from_child(&child);
        let began = clock.monotonic();
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        let running = Running {
            watch: pidfd_open(group, PidfdFlags::empty()).ok(),
            input: stdin.map(|stdin| (stdin, input, 0)),
            stdout: Output { from: stdout, kept: Vec::new(), most: output_most },
            stderr: Output { from: stderr, kept: Vec::new(), most: output_most },
            child,
            group,
            clock: clock.clone(),
            began,
            deadline: began.saturating_add(timeout),
            asked: false,
            timed_out: false,
            reaped: false,
        };
        // An error from here on drops `running`, which kills the program.
        if let Some((stdin, _, _)) = &running.input {
            rustix::io::ioctl_fionbio(stdin, true)?;
        }
        if let (Some(stdout), Some(stderr)) = (&running.stdout.from, &running.stderr.from) {
            rustix::io::ioctl_fionbio(stdout, true)?;
            rustix::io::ioctl_fionbio(stderr, true)?;
        }
        Ok(running)
    }

    /// Starts it and waits for its end.
    pub fn run(self, clock: &Clock) -> io::Result<Ended> {
        let mut running = self.start(clock)?;
        loop {
            if let Some(ended) = running.look()? {
                return Ok(ended);
            }
            wait(&[&running], Duration::from_secs(1));
        }
    }
}

/// Waits for output, input room, an end or a timeout of one of the programs, at most `most`.
pub fn wait(running: &[&Running], most: Duration) {
    let mut most = most;
    let mut polled = Vec::with_capacity(running.len().saturating_mul(4));
    for one in running {
        most = most.min(one.deadline.saturating_sub(one.clock.monotonic()));
        if one.watch.is_none() {
            most = most.min(LOOK_EVERY);
        }
        let input = one.input.as_ref().map(|(stdin, _, _)| PollFd::new(stdin, PollFlags::OUT));
        polled.extend(input);
        polled.extend(one.stdout.from.as_ref().map(|from| PollFd::new(from, PollFlags::IN)));
        polled.extend(one.stderr.from.as_ref().map(|from| PollFd::new(from, PollFlags::IN)));
        polled.extend(one.watch.as_ref().map(|watch| PollFd::new(watch, PollFlags::IN)));
    }
    // A millisecond more than asked, so that a wait never ends just before its deadline.
    let span = Timespec::try_from(most.saturating_add(Duration::from_millis(1))).ok();
    // A signal or an error may end it early; the caller polls the programs in any case.
    let _ready = poll(&mut polled, span.as_ref());
}

impl Running {
    /// Polls it without blocking: writes input, reads output, enforces the timeout; `Some` once it has ended.
    pub fn look(&mut self) -> io::Result<Option<Ended>> {
        self.feed();
        self.stdout.take();
        self.stderr.take();
        self.mind_time();
        if !self.has_ended()? {
            return Ok(None);
        }
        // The leader is dead but not reaped, so its process id cannot belong to another group yet.
        self.signal(Signal::KILL);
        let status = self.child.wait()?;
        self.reaped = true;
        self.stdout.take();
        self.stderr.take();
        Ok(Some(Ended {
            how: self.how(status),
            stdout: std::mem::take(&mut self.stdout.kept),
            stderr: std::mem::take(&mut self.stderr.kept),
            took: self.clock.monotonic().saturating_sub(self.began),
        }))
    }

    fn how(&self, status: ExitStatus) -> How {
        if self.timed_out {
            return How::TimedOut;
        }
        let code = status.code().map(How::Exited);
        code.unwrap_or_else(|| How::Killed(status.signal().unwrap_or(0)))
    }

    fn feed(&mut self) {
        let Some((stdin, bytes, written)) = &mut self.input else { return };
        while let Some(rest) = bytes.get(*written..).filter(|rest| !rest.is_empty()) {
            match stdin.write(rest) {
                Ok(0) => break,
                Ok(length) => *written = written.saturating_add(length),
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // It has closed its input, which is no error.
                Err(_) => break,
            }
        }
        self.input = None;
    }

    fn mind_time(&mut self) {
        let now = self.clock.monotonic();
        if now < self.deadline {
            return;
        }
        self.timed_out = true;
        self.signal(if self.asked { Signal::KILL } else { Signal::TERM });
        self.asked = true;
        self.deadline = now.saturating_add(GRACE);
    }

    fn has_ended(&self) -> io::Result<bool> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        loop {
            match waitid(WaitId::Pid(self.group), look) {
                Ok(status) => return Ok(status.is_some()),
                Err(Errno::INTR) => (),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn signal(&self, signal: Signal) {
        // Fails only if no process is left in the group.
        let _delivered = kill_process_group(self.group, signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::KILL);
            drop(self.child.wait());
        }
    }
}

impl<R: Read> Output<R> {
    /// Reads all output available now; keeps the beginning.
    fn take(&mut self) {
        let mut chunk = [0; CHUNK];
        while let Some(from) = &mut self.from {
            match from.read(&mut chunk) {
                Ok(length) if length > 0 => {
                    let room = self.most.saturating_sub(self.kept.len()).min(length);
                    self.kept.extend_from_slice(chunk.get(..room).unwrap_or_default());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Ok(_) | Err(_) => self.from = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, input: &[u8], timeout_ms: u64) -> Ended {
        let program = Program {
            argv: ["sh", "-c", script].map(OsString::from).to_vec(),
            without: vec!["CARGO_MANIFEST_DIR".into(), "GREETING".into()],
            environment: vec![("GREETING".to_owned(), "hello".to_owned())],
            input: input.to_vec(),
            timeout: Duration::from_millis(timeout_ms),
            output_most: 1000,
        };
        program.run(&Clock::machine()).unwrap()
    }

    #[test]
    fn a_program_gets_its_input_and_its_output_is_kept_up_to_the_limit() {
        let big = vec![b'x'; 1 << 20];
        let ended = shell("echo $GREETING; echo no >&2; cat; exit 7", &big, 60_000);
        assert_eq!(ended.how, How::Exited(7));
        assert_eq!((ended.stdout.len(), ended.stderr.as_slice()), (1000, &b"no\n"[..]));
        assert!(ended.stdout.starts_with(b"hello\nxxx"));
    }

    #[test]
    fn a_program_gets_the_environment_without_the_removed_variables() {
        let ended = shell("echo \"$GREETING,$CARGO_MANIFEST_DIR,${PATH:+path}\"", b"", 60_000);
        assert_eq!(ended.stdout, b"hello,,path\n");
    }

    #[test]
    fn a_program_need_not_read_its_input() {
        assert_eq!(shell("exit 0", &vec![0; 1 << 20], 60_000).how, How::Exited(0));
        assert_eq!(shell("kill -9 $$", b"", 60_000).how, How::Killed(9));
    }

    #[test]
    fn a_program_at_its_timeout_is_killed_with_all_its_processes() {
        let ended = shell("sleep 600 & echo $!; wait", b"", 100);
        assert_eq!(ended.how, How::TimedOut);
        gone(&ended.stdout);
    }

    #[test]
    fn a_background_process_of_a_program_ends_with_it() {
        let ended = shell("sleep 600 & echo $!", b"", 60_000);
        assert_eq!(ended.how, How::Exited(0));
        gone(&ended.stdout);
    }

    /// Waits until a process is dead; init reaps the orphan.
    fn gone(pid: &[u8]) {
        let stat = format!("/proc/{}/stat", std::str::from_utf8(pid).unwrap().trim());
        let is_dead = |text: String| text.contains(") Z") || text.contains(") X");
        while !std::fs::read_to_string(&stat).map_or(true, is_dead) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let program = Program {
            argv: vec!["/nowhere/at/all".into()],
            without: Vec::new(),
            environment: Vec::new(),
            input: Vec::new(),
            timeout: Duration::from_secs(1),
            output_most: 0,
        };
        assert_eq!(program.run(&Clock::machine()).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
