#!/usr/bin/env python3
"""Starts a systemd service the way its unit says, where systemd itself does not run.

    run_unit.py SERVICE SOCKET LOG

Taken from the unit: the command, user and group, state directory with its mode, umask, credentials
directory, limits, no-new-privileges, the empty capability set, start and stop time limits, the notify
socket and the watchdog. Taken from the socket unit: the addresses, which stay open while the service
restarts. Not applied, and said so in the log: what needs namespaces, cgroups or seccomp.

It runs until SIGTERM, which stops the service. SIGHUP reloads it, SIGUSR1 restarts it, SIGUSR2 kills it
with -9 and starts it again. Whatever happens is a line of LOG:
    READY 1 0.132      start 1 said READY=1 after 0.132 s
    WATCHDOG 1         start 1 said WATCHDOG=1
    STATUS …, RELOADING, STOPPING, EXIT 1 0
It ends with 1, and a line FAILED, when the service breaks what the unit asks for: no READY or no WATCHDOG
in time, an exit nobody asked for, a stop that takes too long.
"""

import ctypes
import fcntl
import grp
import os
import pwd
import resource
import select
import shlex
import shutil
import signal
import socket
import sys
import time

PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, LAST_CAPABILITY = 38, 24, 40
SPANS = {"ms": 0.001, "s": 1, "min": 60, "h": 3600}


def unit(path):
    """The settings of a unit: section to key to the list of its values."""
    sections, section = {}, None
    for line in open(path, encoding="utf-8"):
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            section = sections.setdefault(line.strip("[]"), {})
            continue
        key, _, value = line.partition("=")
        values = section.setdefault(key.strip(), [])
        if value.strip():
            values.append(value.strip())
        elif key.strip() not in ("CapabilityBoundingSet", "AmbientCapabilities"):
            values.clear()
    return sections


def span(text):
    number = text.rstrip("hmins")
    return float(number) * SPANS[text[len(number):] or "s"]


class Failed(Exception):
    pass


class Runner:
    def __init__(self, service, sockets, log):
        self.service = unit(service)["Service"]
        self.sockets = unit(sockets)["Socket"]
        self.name = os.path.basename(service)
        self.log = open(log, "a", buffering=1, encoding="utf-8")
        self.output = log + ".out"
        self.starts = 0
        self.child = None
        self.user = pwd.getpwnam(self.one("User"))
        self.group = grp.getgrnam(self.one("Group"))
        self.listeners = [self.listen(address) for address in self.sockets["ListenStream"]]
        self.notify_path = "/run/oncebox-notify"
        if os.path.exists(self.notify_path):
            os.unlink(self.notify_path)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(self.notify_path)
        os.chmod(self.notify_path, 0o666)
        self.state = self.state_directory()
        self.credentials = self.load_credentials()
        self.watchdog = span(self.one("WatchdogSec"))
        for key in ("ProtectSystem", "SystemCallFilter", "MemoryMax", "PrivateTmp"):
            self.say(f"NOT APPLIED {key}={' '.join(self.service.get(key, []))}")

    def one(self, key):
        return self.service[key][-1]

    def say(self, text):
        self.log.write(text + "\n")

    def listen(self, address):
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), int(port)))
        listener.listen(int(self.sockets.get("Backlog", ["128"])[-1]))
        return listener

    def state_directory(self):
        path = os.path.join("/var/lib", self.one("StateDirectory"))
        os.makedirs(path, exist_ok=True)
        # As systemd does it: all of it, where the directory itself is somebody else's.
        if os.stat(path).st_uid != self.user.pw_uid:
            for name in [path] + [entry.path for entry in os.scandir(path)]:
                os.chown(name, self.user.pw_uid, self.group.gr_gid)
        os.chmod(path, int(self.one("StateDirectoryMode"), 8))
        return path

    def load_credentials(self):
        path = f"/run/credentials/{self.name}"
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path, mode=0o700)
        for entry in self.service.get("LoadCredential", []):
            name, _, source = entry.partition(":")
            target = os.path.join(path, name)
            shutil.copyfile(source, target)
            os.chmod(target, 0o400)
            os.chown(target, self.user.pw_uid, self.group.gr_gid)
        os.chmod(path, 0o500)
        os.chown(path, self.user.pw_uid, self.group.gr_gid)
        return path

    def environment(self):
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
            "LANG": "C.UTF-8",
            "USER": self.user.pw_name,
            "HOME": self.user.pw_dir,
            "STATE_DIRECTORY": self.state,
            "CREDENTIALS_DIRECTORY": self.credentials,
            "NOTIFY_SOCKET": self.notify_path,
            "WATCHDOG_USEC": str(int(self.watchdog * 1e6)),
            "LISTEN_FDS": str(len(self.listeners)),
            "LISTEN_FDNAMES": ":".join(self.sockets["FileDescriptorName"] * len(self.listeners)),
        }

    def before_exec(self):
        """Runs in the child: what systemd does between fork and exec."""
        os.setsid()
        high = [fcntl.fcntl(listener, fcntl.F_DUPFD, 100) for listener in self.listeners]
        for at, number in enumerate(high):
            os.dup2(number, 3 + at, inheritable=True)
            os.close(number)
        os.environ["LISTEN_PID"] = os.environ["WATCHDOG_PID"] = str(os.getpid())
        files = int(self.one("LimitNOFILE"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        resource.setrlimit(resource.RLIMIT_CORE, (int(self.one("LimitCORE")),) * 2)
        os.umask(int(self.one("UMask"), 8))
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in range(LAST_CAPABILITY + 1):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        os.setgroups([grp.getgrnam(name).gr_gid for name in self.service.get("SupplementaryGroups", [])])
        os.setgid(self.group.gr_gid)
        os.setuid(self.user.pw_uid)
        if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs")
        os.chdir("/")

    def start(self):
        self.starts += 1
        self.ready = False
        self.began = self.fed = time.monotonic()
        command = shlex.split(self.one("ExecStart"))
        environment = self.environment()
        out = open(self.output, "ab")
        pid = os.fork()
        if pid == 0:
            try:
                os.environ.clear()
                os.environ.update(environment)
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                self.before_exec()
                os.execve(command[0], command, dict(os.environ))
            except BaseException as error:  # the child must never go on as the parent
                os.write(2, f"{error}\n".encode())
            os._exit(70)
        self.child = pid
        self.say(f"START {self.starts} {pid}")

    def hear(self, seconds):
        """Takes what the service says, for a while."""
        if not select.select([self.notify], [], [], seconds)[0]:
            return
        for line in self.notify.recv(4096).decode().splitlines():
            if line == "READY=1":
                self.say(f"READY {self.starts} {time.monotonic() - self.began:.3f}")
                self.ready, self.fed = True, time.monotonic()
            elif line == "WATCHDOG=1":
                self.say(f"WATCHDOG {self.starts}")
                self.fed = time.monotonic()
            elif line.endswith("=1"):
                self.say(line.removesuffix("=1"))
            elif line.startswith("STATUS="):
                self.say(line.replace("=", " ", 1))

    def exited(self):
        done, status = os.waitpid(self.child, os.WNOHANG)
        if not done:
            return None
        self.child = None
        code = os.waitstatus_to_exitcode(status)
        self.say(f"EXIT {self.starts} {code}")
        return code

    def look(self):
        """One look at what the unit promises."""
        self.hear(0.05)
        code = self.exited()
        if code is not None:
            raise Failed(f"it ended by itself with {code}")
        now = time.monotonic()
        if not self.ready and now - self.began > span(self.one("TimeoutStartSec")):
            raise Failed("no READY=1 in TimeoutStartSec")
        if self.ready and now - self.fed > self.watchdog:
            raise Failed("no WATCHDOG=1 in WatchdogSec")

    def stop(self):
        if self.child is None:
            return
        os.kill(self.child, signal.SIGTERM)
        until = time.monotonic() + span(self.one("TimeoutStopSec"))
        while time.monotonic() < until:
            self.hear(0.05)
            code = self.exited()
            if code is not None:
                if code != 0:
                    raise Failed(f"the stop ended with {code}")
                return
        raise Failed("the stop took longer than TimeoutStopSec")

    def kill(self):
        os.kill(self.child, signal.SIGKILL)
        while self.exited() is None:
            time.sleep(0.01)


def main():
    _, service, sockets, log = sys.argv
    runner = Runner(service, sockets, log)
    asked = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda got, _frame: asked.append(got))
    try:
        runner.start()
        while True:
            runner.look()
            request = asked.pop(0) if asked else None
            if request == signal.SIGHUP:
                os.kill(runner.child, signal.SIGHUP)
            elif request == signal.SIGUSR1:
                runner.stop()
                runner.start()
            elif request == signal.SIGUSR2:
                runner.kill()
                runner.start()
            elif request is not None:
                runner.stop()
                return 0
    except Failed as failure:
        runner.say(f"FAILED {failure}")
        if runner.child is not None:
            runner.kill()
        return 1


sys.exit(main())
