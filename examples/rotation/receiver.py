"""A receiver that knows one signing secret at a time, and checks every request with it (Standard Webhooks).

Python's standard library alone. The secret is read from a file for each request, so that a new one counts at once.
"""

import base64
import hashlib
import hmac
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET_FILE, PORT_FILE, LOG = sys.argv[1:]
log = open(LOG, "a", buffering=1)


def is_signed(headers, body):
    with open(SECRET_FILE) as file:
        key = base64.b64decode(file.read().strip().removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    right = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return any(hmac.compare_digest(right, one) for one in headers["webhook-signature"].split())


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        taken = is_signed(self.headers, body)
        event = json.loads(body)
        what = "ping" if event.get("type") == "oncebox.ping" else f"order {event['id']}"
        log.write(f"{'taken' if taken else 'refused'} {what}\n")
        self.send_response(204 if taken else 401)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
with open(PORT_FILE, "w") as file:
    file.write(str(server.server_port))
server.serve_forever()
