#!/usr/bin/env python3
"""Asks /livez on a new connection again and again until SIGTERM; ends with 1 if one was refused or broken.

    knock.py HOST PORT
"""

import http.client
import signal
import sys
import time

host, port = sys.argv[1], int(sys.argv[2])
asked, slowest, broken, going = 0, 0.0, [], True


def end(_number, _frame):
    global going
    going = False


signal.signal(signal.SIGTERM, end)
while going:
    began = time.monotonic()
    try:
        connection = http.client.HTTPConnection(host, port, timeout=60)
        connection.connect()
    except OSError as error:
        broken.append(f"knock {asked}: {error}")
        continue
    try:
        connection.request("GET", "/livez")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        # The connection was there; a process killed with -9 may leave it without an answer.
        pass
    connection.close()
    asked += 1
    slowest = max(slowest, time.monotonic() - began)
    if asked == 1:
        print("knocking", flush=True)
    time.sleep(0.002)
print(f"{asked} connections, none refused, the slowest answered after {slowest:.2f} s" if not broken else broken)
sys.exit(1 if broken else 0)
