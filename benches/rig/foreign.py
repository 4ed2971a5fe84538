# Another program that writes the database, as an ERP does: with Python's sqlite3 and its defaults.
# foreign.py PATH COUNT RATE HOLD_MS PAUSE_MS SPAN: inserts COUNT events at RATE a second, or, if COUNT is 0, one a
# transaction that is held HOLD_MS, with PAUSE_MS between two, for SPAN seconds. Prints JSON.
import json, sqlite3, sys, time

path, (count, rate, hold, pause, span) = sys.argv[1], map(float, sys.argv[2:7])
count = int(count)
db = sqlite3.connect(path, timeout=60, isolation_level=None)
db.execute("PRAGMA wal_autocheckpoint = 0")
waits, committed, begun = [], {}, time.time()


def insert(key, hold_ms):
    asked = time.time()
    db.execute("BEGIN IMMEDIATE")
    waits.append(time.time() - asked)
    payload = '{"sent_us":%d,"of":"%s"}' % (int(time.time() * 1e6), "x" * 460)
    db.execute("INSERT INTO outbox (event_type, idempotency_key, payload) VALUES ('sql.event', ?, ?)", (key, payload))
    if hold_ms:
        time.sleep(hold_ms / 1000)
    db.execute("COMMIT")
    committed[key] = time.time() * 1000


if count:
    for n in range(count):
        time.sleep(max(0, begun + n / rate - time.time()))
        insert("rate-%f-%d" % (begun, n), 0)
else:
    n = 0
    while time.time() < begun + span:
        insert("hold-%f-%d" % (begun, n), hold)
        n += 1
        if pause:
            time.sleep(pause / 1000)


def routed():
    rows = db.execute("SELECT idempotency_key, routed_at FROM outbox WHERE source_system = 'sql'")
    return {key: at for key, at in rows if key in committed}


while any(at is None for at in routed().values()):
    time.sleep(0.02)


def quantiles(values):
    values = sorted(values)
    return [values[len(values) // 2], values[min(len(values) - 1, int(len(values) * 0.99))], values[-1]]


after = [max(0, at - committed[key]) for key, at in routed().items()]
print(json.dumps({"count": len(waits), "wait_ms": [1000 * w for w in quantiles(waits)], "routed_ms": quantiles(after)}))
