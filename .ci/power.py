"""Loads a service whose writes are recorded, then rebuilds its files for cuts of power: see .ci/power."""

import http.server
import json
import os
import pathlib
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

binary, work, images, seed = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
SPAN, PUBLISHERS, SECTOR, SERVED = 20.0, 6, 512, 50
DATABASE = "oncebox.db"
dice = random.Random(seed)
print(f"seed {seed}")


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200 if random.random() < 0.9 else 503)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_words):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    # Connections of a killed service break off.
    def handle_error(self, _request, _address):
        pass


receiver = Server(("127.0.0.1", 0), Receiver)
threading.Thread(target=receiver.serve_forever, daemon=True).start()


def serve(directory, **environment):
    """Starts a service with its data in `directory`; returns it with its address and token."""
    settings = directory.parent / f"{directory.name}.toml"
    settings.write_text(
        f'[listen]\napi = "127.0.0.1:0"\n[database]\ndirectory = "{directory}"\n'
        '[delivery]\nallow = ["127.0.0.0/8"]\n[disk]\nreserve = 0\n')
    log = open(directory.parent / f"{directory.name}.log", "w")
    process = subprocess.Popen(
        [binary, "serve", "--config", settings], stdout=log, stderr=log, env={**os.environ, **environment})
    address, token = directory / "oncebox.address", directory / "admin.token"
    until = time.monotonic() + 60
    while not (address.exists() and address.read_text().strip() and token.exists()):
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            sys.exit(f"the service does not start: {open(log.name).read()}")
        time.sleep(0.02)
    return process, "http://" + address.read_text().strip(), token.read_text().strip()


def call(url, token, method, path, body=None):
    head = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    request = urllib.request.Request(
        url + path, None if body is None else json.dumps(body).encode(), head, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


# The load: events of several publishers, three subscriptions, one of them ordered. An acknowledgement is kept with the
# length that the record had when it came: all that it promises was recorded before.
live, record = work / "live", work / "record"
live.mkdir()
record.touch()
process, url, token = serve(
    live, LD_PRELOAD=str(work / "power.so"), POWER_LOG=str(record), POWER_FILE=DATABASE)
for name, ordering in [("plain", "none"), ("lanes", "key"), ("other", "none")]:
    call(url, token, "POST", "/v1/subscriptions",
         {"name": name, "url": f"http://127.0.0.1:{receiver.server_port}/", "ordering": ordering})
acknowledged, lock, end = [], threading.Lock(), time.monotonic() + SPAN


def publish(publisher):
    number = 0
    while time.monotonic() < end:
        batch = [{"event_type": "power.cut", "idempotency_key": f"{publisher}-{number + n}", "ordering_key": f"k{n % 7}",
                  "payload": {"n": n, "fill": "x" * random.choice([10, 500, 20_000])}} for n in range(random.randint(1, 8))]
        number += len(batch)
        events = call(url, token, "POST", "/v1/events", batch)["events"]
        at = record.stat().st_size
        with lock:
            acknowledged.extend((at, event["id"]) for event in events)


publishers = [threading.Thread(target=publish, args=(n,)) for n in range(PUBLISHERS)]
for thread in publishers:
    thread.start()
for thread in publishers:
    thread.join()
process.kill()
process.wait()
acknowledged.sort()

# The record, read once: (end of the entry in the record, what, file, offset, bytes or length).
entries, raw, at = [], memoryview(record.read_bytes()), 0
while at + 25 <= len(raw):
    what = chr(raw[at])
    length_of_name, offset, length = struct.unpack_from("=QQQ", raw, at + 1)
    begin = at + 25 + length_of_name
    name = bytes(raw[at + 25:begin]).decode()
    bytes_of = raw[begin:begin + length] if what == "W" else b""
    at = begin + len(bytes_of)
    entries.append((at, what, name, offset, bytes_of if what == "W" else length))
syncs = sum(1 for entry in entries if entry[1] == "S")
print(f"{len(acknowledged)} events acknowledged, {len(entries)} writes and syncs, {syncs} of them syncs")
assert len(acknowledged) > 200 and syncs > 50, "too little was recorded"


class File:
    """A file as the disk has it: what was synced, and what may or may not have reached the disk since."""

    def __init__(self):
        self.bytes, self.waiting = bytearray(), []

    @staticmethod
    def put(content, entry, keep):
        what, offset, given = entry
        if what == "T":
            del content[given:]
            content.extend(bytes(given - len(content)))
            return
        if len(content) < offset + len(given):
            content.extend(bytes(offset + len(given) - len(content)))
        # A cut tears a write at any sector.
        for begin in range(0, len(given), SECTOR):
            if keep():
                content[offset + begin:offset + begin + SECTOR] = given[begin:begin + SECTOR]

    def sync(self):
        for entry in self.waiting:
            self.put(self.bytes, entry, lambda: True)
        self.waiting.clear()

    def image(self, manner):
        content = bytearray(self.bytes)
        for entry in self.waiting:
            if manner == "none" or (manner == "some" and dice.random() < 0.5):
                continue
            share = 1.0 if manner in ("all", "some") else dice.random()
            self.put(content, entry, lambda: dice.random() < share)
        return content


def check(directory, promised, served):
    database = sqlite3.connect(directory / DATABASE)
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)], "the file is damaged"
    assert database.execute("PRAGMA foreign_key_check").fetchall() == [], "a row refers to a missing one"
    kept = {row[0] for row in database.execute("SELECT id FROM outbox")}
    database.close()
    missing = [event for event in promised if event not in kept]
    assert not missing, f"{len(missing)} acknowledged events are missing"
    if served:
        process, url, token = serve(directory)
        for event in dice.sample(promised, min(5, len(promised))):
            found = call(url, token, "GET", f"/v1/events/{event}")
            assert found["id"] == event, found
        process.terminate()
        assert process.wait(30) == 0, "the service does not stop"


# Cuts at random moments, in order, so that the record is played once. A token and a key are there from the first
# acknowledgement on; cuts before it have nothing to promise.
first = acknowledged[0][0]
last = [index for index, entry in enumerate(entries) if entry[0] >= first]
cuts = sorted(dice.choices(last, k=images))
files, played, done = {}, 0, 0
for number, cut in enumerate(cuts):
    while played <= cut:
        _end, what, name, offset, given = entries[played]
        played += 1
        if what == "U":
            files.pop(name, None)
        elif what == "S":
            files.setdefault(name, File()).sync()
        else:
            files.setdefault(name, File()).waiting.append((what, offset, given))
    directory = work / "image"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    for name, file in files.items():
        path = directory / name
        path.write_bytes(file.image(dice.choice(["none", "all", "some", "torn"])))
        path.chmod(0o600)
    for name in ("master.key", "admin.token"):
        shutil.copy(live / name, directory / name)
    position = entries[cut][0]
    promised = [event for at, event in acknowledged if at <= position]
    try:
        check(directory, promised, number % SERVED == 0)
    except (AssertionError, sqlite3.DatabaseError) as found:
        sys.exit(f"seed {seed}, image {number}, entry {cut}: {found}")
    done += 1
print(f"{done} cuts of power: 0 acknowledged events missing, 0 damaged files")
