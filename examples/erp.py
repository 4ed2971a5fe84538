#!/usr/bin/env python3
"""An ERP and its warehouse in one file: plain SQL, the standard library, nothing of Oncebox.

The ERP keeps its tables in oncebox.db and writes an order and its event in one transaction. The warehouse takes the
webhook, checks who sent it, and packs it exactly once in its own warehouse.db, although it comes twice.
examples/README.md has the commands around it.
"""

import base64
import hashlib
import hmac
import http.server
import json
import os
import sqlite3
import sys
import time


def open_database(path):
    # isolation_level=None: we say BEGIN and COMMIT ourselves.
    db = sqlite3.connect(path, timeout=10, isolation_level=None)
    if sqlite3.sqlite_version_info < (3, 51, 3):
        # Leave it to the service to empty the write-ahead log: older libraries can damage it there.
        db.execute("PRAGMA wal_autocheckpoint = 0")
    return db


# --- The ERP -------------------------------------------------------------------------------------------------------

# Without the key nothing would be recognized as inserted before.
EVENT = """
INSERT INTO outbox (source_system, idempotency_key, event_type, aggregate_type, aggregate_id, payload)
VALUES ('erp.py', :key, 'order.created', 'order', :number, :payload)
    ON CONFLICT DO NOTHING"""


def order(db, article):
    """The order and its event: both, or neither."""
    db.execute("BEGIN IMMEDIATE")
    try:
        number = db.execute("INSERT INTO orders (article) VALUES (?)", [article]).lastrowid
        announce(db, number, article)
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    return number


def announce(db, number, article):
    event = {
        "key": f"order.created:{number}",
        "number": str(number),
        "payload": json.dumps({"number": number, "article": article}),
    }
    return db.execute(EVENT, event).rowcount


# --- The warehouse -------------------------------------------------------------------------------------------------

# From packaging/sql/sqlite.sql: the table, and the claim.
TABLES = """
CREATE TABLE IF NOT EXISTS processed_events (
  consumer_group TEXT NOT NULL CHECK (length(consumer_group) BETWEEN 1 AND 64),
  event_id       TEXT NOT NULL CHECK (length(event_id) BETWEEN 1 AND 255),
  -- Milliseconds since 1970, UTC.
  processed_at   INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)),
  PRIMARY KEY (consumer_group, event_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS parcels (order_number INTEGER NOT NULL, article TEXT NOT NULL);
"""
CLAIM = """
INSERT INTO processed_events (consumer_group, event_id)
VALUES (:consumer_group, :event_id)
    ON CONFLICT DO NOTHING"""


def pack(db, webhook_id, event):
    """Whether it was packed now. Claim and parcel are one transaction: both, or neither."""
    db.execute("BEGIN IMMEDIATE")
    try:
        claim = {"consumer_group": "warehouse", "event_id": webhook_id}
        first = db.execute(CLAIM, claim).rowcount == 1
        if first:
            parcel = [event["number"], event["article"]]
            db.execute("INSERT INTO parcels (order_number, article) VALUES (?, ?)", parcel)
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    return first


def is_genuine(secret, headers, body):
    """Standard Webhooks v1: an HMAC over id, time and the raw body, not older than five minutes."""
    webhook_id, seconds = headers["webhook-id"], headers["webhook-timestamp"]
    if not webhook_id or not seconds or not seconds.isdigit():
        return False
    if abs(time.time() - int(seconds)) > 300:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = b".".join([webhook_id.encode(), seconds.encode(), body])
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    offered = (headers["webhook-signature"] or "").split(" ")
    return any(hmac.compare_digest(expected.encode(), one.encode()) for one in offered)


def receiver(address, secret, warehouse, number):
    """A server that takes the webhook of one order twice: the first answer is a failure, after it was packed."""

    class Receiver(http.server.BaseHTTPRequestHandler):
        answers = [500, 200]

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"] or 0))
            if not is_genuine(secret, self.headers, body):
                return self.answer(401)
            event = json.loads(body)
            if event["number"] != number:
                return self.answer(200)  # of an earlier run of this example
            first = pack(warehouse, self.headers["webhook-id"], event)
            print("a webhook came:", "packed" if first else "packed before")
            return self.answer(Receiver.answers.pop(0))

        def answer(self, status):
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    return http.server.HTTPServer(address, Receiver), Receiver


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: erp.py ONCEBOX.DB SECRET-FILE ADDRESS")
    oncebox_db, secret_file, address = sys.argv[1:]
    host, port = address.split(":")
    with open(secret_file, encoding="ascii") as file:
        secret = file.read().strip()

    erp = open_database(oncebox_db)
    erp.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, article TEXT NOT NULL)")
    warehouse = open_database(os.path.join(os.path.dirname(oncebox_db), "warehouse.db"))
    warehouse.executescript(TABLES)

    number = order(erp, "a lamp")
    print(f"order {number} and its event are committed")
    # A second look, as after a crash: the event is there already, and nothing is sent twice.
    print("inserted again:", announce(erp, number, "a lamp"), "row(s)")

    server, waiting = receiver((host, int(port)), secret, warehouse, number)
    while waiting.answers:
        server.handle_request()
    server.server_close()
    packed = "SELECT count(*) FROM parcels WHERE order_number = ?"
    (count,) = warehouse.execute(packed, [number]).fetchone()
    print(f"order {number} was packed {count} time(s)")
    sys.exit(0 if count == 1 else "it had to be once")


if __name__ == "__main__":
    main()
