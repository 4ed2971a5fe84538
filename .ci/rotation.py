"""Receives while signing credentials are rotated, and checks each request with other people's libraries: see
.ci/signatures. Standard Webhooks' own library checks v1; it does not know v1a, which `cryptography` checks.
"""

import base64
import json
import secrets
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import standardwebhooks
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed25519

url, token = sys.argv[1:]
ROTATIONS = 10
# An old version signs for so long beside the new one. So several are on the wire at once, and the first ones end.
OVERLAP = "10s"
KINDS = ["signing", "signing_ed25519"]


def call(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    request = urllib.request.Request(url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode()}") from error


def until(what, holds):
    end = time.monotonic() + 60
    while not (found := holds()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited in vain: {what}")
        time.sleep(0.05)
    return found


class Key:
    """What a receiver checks with."""

    def __init__(self, made):
        public = made["settings"].get("public_key")
        self.public = public and ed25519.Ed25519PublicKey.from_public_bytes(
            base64.b64decode(public.removeprefix("whpk_")))
        self.hmac = None if public else standardwebhooks.Webhook(made["secret"])

    def passes(self, headers, body):
        try:
            if self.hmac:
                self.hmac.verify(body, dict(headers.items()))
                return True
        except standardwebhooks.WebhookVerificationError:
            return False
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        for entry in headers["webhook-signature"].split():
            version, _, signature = entry.partition(",")
            try:
                if version == "v1a":
                    self.public.verify(base64.b64decode(signature), signed)
                    return True
            except InvalidSignature:
                pass
        return False


class Receiver(BaseHTTPRequestHandler):
    """Knows one key. It learns the next one, and forgets the old one, with the first ping that only the next passes."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        server = self.server
        body = self.rfile.read(int(self.headers["content-length"]))
        event = json.loads(body)
        is_ping = event.get("type") == "oncebox.ping"
        with server.lock:
            if is_ping and server.next and server.next.passes(self.headers, body):
                server.key, server.next = server.next, None
            taken = server.key.passes(self.headers, body)
            if taken and not is_ping:
                server.taken.add(event["n"])
            elif not taken and not is_ping:
                server.refused.append((event, self.headers["webhook-signature"]))
        self.send_response(204 if taken else 401)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def credentials(kind, state):
    found = call("GET", f"/v1/credentials?subscription={name(kind)}&state={state}")
    return [one for one in found["items"] if one["kind"] == kind]


def name(kind):
    return kind.replace("_", "-")


def receiver(kind):
    """A subscription whose requests only one credential of that kind signs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.lock, server.next, server.taken, server.refused = threading.Lock(), None, set(), []
    server.rotated, server.done = 0, False
    target = f"http://127.0.0.1:{server.server_port}/"
    call("POST", "/v1/subscriptions", {"name": name(kind), "url": target, "event_types": ["rotation.tried"]})
    server.key = Key(call("POST", f"/v1/subscriptions/{name(kind)}/credentials", {"kind": kind}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def begin(kind, server):
    """Begins a rotation. The service may still be at the one before, which it says with 409."""
    (old,) = credentials(kind, "active")
    with server.lock:
        try:
            made = call("POST", f"/v1/credentials/{old['id']}/rotate", {"overlap": OVERLAP})
        except RuntimeError as refused:
            if "being rotated at this moment" in str(refused):
                return None
            raise
        server.next = Key(made)
        return made


def rotate(kind, server):
    for _ in range(ROTATIONS):
        made = until(f"a rotation of {kind} begins", lambda: begin(kind, server))
        until(f"{kind} is promoted", lambda: credentials(kind, "active")[0]["id"] == made["id"])
        server.rotated += 1
    until(f"the old ones of {kind} end", lambda: not credentials(kind, "retiring"))
    server.done = True


published = 0
receivers = {kind: receiver(kind) for kind in KINDS}
rotations = [threading.Thread(target=rotate, args=one, daemon=True) for one in receivers.items()]
for one in rotations:
    one.start()


def is_refused():
    return any(server.refused for server in receivers.values())


while any(one.is_alive() for one in rotations) and not is_refused():
    call("POST", "/v1/events", {"event_type": "rotation.tried", "payload": {"n": published}})
    published += 1
until("all is delivered", lambda: is_refused() or not call("GET", "/v1/deliveries?state=pending")["items"])
for kind, server in receivers.items():
    refused, lost = len(server.refused), published - len(server.taken)
    print(f"{server.rotated} rotations of {kind}: {published} events, {refused} refused, {lost} lost")
    if refused or lost or not server.done:
        sys.exit(f"the first one that was refused: {server.refused[:1]}")
