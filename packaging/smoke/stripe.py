#!/usr/bin/env python3
"""Posts a webhook signed as Stripe does it, and prints the status and the answer's body.

    stripe.py URL SECRET EVENT_ID [--bytes N] [--bad-signature] [--header 'Name: value']

Signed: HMAC-SHA256 over "<unix time>.<body>" with the secret as it is written, in hex, in
`Stripe-Signature: t=…,v1=…` (https://docs.stripe.com/webhooks#verify-manually).
"""

import argparse
import hashlib
import hmac
import json
import ssl
import time
import urllib.error
import urllib.request

arguments = argparse.ArgumentParser()
arguments.add_argument("url")
arguments.add_argument("secret")
arguments.add_argument("event_id")
arguments.add_argument("--bytes", type=int, default=0, help="make the body at least so large")
arguments.add_argument("--bad-signature", action="store_true")
arguments.add_argument("--header", action="append", default=[])
asked = arguments.parse_args()

event = {"id": asked.event_id, "object": "event", "type": "invoice.paid", "data": {"object": {"id": "in_4711"}}}
event["filling"] = "x" * asked.bytes
body = json.dumps(event).encode()
now = str(int(time.time()))
key = ("wrong" if asked.bad_signature else asked.secret).encode()
signature = hmac.new(key, now.encode() + b"." + body, hashlib.sha256).hexdigest()
request = urllib.request.Request(asked.url, body, {"Content-Type": "application/json"})
request.add_header("Stripe-Signature", f"t={now},v1={signature}")
for field in asked.header:
    name, _, value = field.partition(":")
    request.add_header(name, value.strip())
# The test's own certificate is nobody's: what is tried is the way through the proxy, not TLS.
unchecked = ssl.create_default_context()
unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
try:
    with urllib.request.urlopen(request, context=unchecked, timeout=20) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as refusal:
    print(refusal.code, refusal.headers.get("content-type"), refusal.read().decode())
