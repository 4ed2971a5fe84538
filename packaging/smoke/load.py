#!/usr/bin/env python3
"""Publishes events until SIGTERM, and notes the key of each one that was acknowledged, in FILE.

    load.py URL TOKEN_FILE FILE            publish
    load.py URL TOKEN_FILE FILE --check    look up every key of FILE; ends with 1 if one is missing
"""

import json
import signal
import sys
import urllib.request

url, token_file, file = sys.argv[1:4]
token = open(token_file, encoding="utf-8").read().strip()
going = True


def end(_number, _frame):
    global going
    going = False


def call(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Authorization": f"Bearer {token}"})
    if data:
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def publish():
    number = 0
    with open(file, "w", encoding="utf-8") as acknowledged:
        while going:
            keys = [f"smoke-{number + at}" for at in range(20)]
            number += len(keys)
            events = [
                {"event_type": "invoice.paid", "idempotency_key": key, "payload": {"invoice": key}} for key in keys
            ]
            answer = call("/v1/events", events)
            assert len(answer["events"]) == len(keys), answer
            acknowledged.write("".join(key + "\n" for key in keys))
            acknowledged.flush()


def check():
    keys = open(file, encoding="utf-8").read().split()
    missing = [key for key in keys if not call(f"/v1/events?idempotency_key={key}")["items"]]
    if missing:
        sys.exit(f"{len(missing)} of {len(keys)} acknowledged events are missing: {missing[:5]}")
    print(f"all {len(keys)} acknowledged events are there")


signal.signal(signal.SIGTERM, end)
check() if "--check" in sys.argv else publish()
