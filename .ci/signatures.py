"""Posts what other people's libraries have signed to a running service: see .ci/signatures."""

import base64
import hashlib
import hmac
import http.client
import json
import pathlib
import sys
import time
import urllib.parse
import uuid
from datetime import datetime, timezone

import Adyen.util
import slack_sdk.signature
import standardwebhooks
import stripe
import svix
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from multidict import MultiDict
from twilio.request_validator import RequestValidator

url, token, examples = sys.argv[1:]
connection = http.client.HTTPConnection(urllib.parse.urlparse(url).netloc)
SECRET = "0123456789abcdef0123456789abcdef"
WHSEC = "whsec_" + base64.b64encode(bytes(range(32))).decode()
BODY = '{"id":"evt_1","type":"invoice.paid","name":"Größe 漢字 😀"}'


def call(method, path, headers, body):
    connection.request(method, path, body.encode(), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    return answer.status, json.loads(text) if text else None


def api(method, path, body=None):
    status, answer = call(method, path, {"Authorization": "Bearer " + token}, json.dumps(body) if body else "")
    assert status in (200, 201), (method, path, status, answer)
    return answer


def provider(name, scheme, secret):
    scheme = scheme if isinstance(scheme, dict) else {"kind": scheme}
    api("POST", "/v1/providers", {"name": name, "scheme": scheme, "pii": "allow", "secret": secret})


def twice(name, headers, body, want_id, want_type):
    """Stored under that id and type, known the second time, refused when a byte is changed."""
    status, first = call("POST", "/in/" + name, headers, body)
    assert status == 200 and first["status"] == "ok", (name, status, first)
    status, again = call("POST", "/in/" + name, headers, body)
    assert status == 200 and (again.get("already_processed") or again.get("repeated")), (name, status, again)
    shown = api("GET", f"/v1/webhook-events?provider={name}&limit=1")["items"][0]
    have = (shown["provider_event_id"], shown["event_type"])
    assert have == (want_id, want_type), (name, have, want_id, want_type)


def refused(name, headers, body):
    status, answer = call("POST", "/in/" + name, headers, body)
    assert status == 401, (name, status, answer)


now = int(time.time())
for name, library, prefix in [("standard", standardwebhooks.Webhook, "webhook"), ("svix", svix.Webhook, "svix")]:
    provider(name, "standard", WHSEC)
    signature = library(WHSEC).sign("msg_1", datetime.fromtimestamp(now, tz=timezone.utc), BODY)
    headers = {f"{prefix}-id": "msg_1", f"{prefix}-timestamp": str(now), f"{prefix}-signature": signature}
    twice(name, headers, BODY, "msg_1", "invoice.paid")
    refused(name, headers, BODY + " ")

provider("stripe", "stripe", "whsec_" + SECRET)
signature = stripe.WebhookSignature._compute_signature(f"{now}.{BODY}", "whsec_" + SECRET)
headers = {"Stripe-Signature": f"t={now},v1={signature}"}
assert stripe.WebhookSignature.verify_header(BODY, headers["Stripe-Signature"], "whsec_" + SECRET)
twice("stripe", headers, BODY, "evt_1", "invoice.paid")
refused("stripe", headers, BODY + " ")

provider("slack", "slack", SECRET)
slack = '{"event_id":"Ev1","type":"event_callback","event":{"type":"message"}}'
signature = slack_sdk.signature.SignatureVerifier(SECRET).generate_signature(timestamp=str(now), body=slack)
headers = {"X-Slack-Request-Timestamp": str(now), "X-Slack-Signature": signature}
twice("slack", headers, slack, "Ev1", "message")
refused("slack", headers, slack + " ")

provider("twilio", "twilio", SECRET)
form = [("MessageSid", "SM1"), ("MessageStatus", "delivered"), ("Body", "Grüße & mehr"), ("To", "+49")]
signature = RequestValidator(SECRET).compute_signature("https://edge.example/in/twilio", MultiDict(form))
twice("twilio", {"X-Twilio-Signature": signature}, urllib.parse.urlencode(form), "SM1:message.delivered",
      "message.delivered")
refused("twilio", {"X-Twilio-Signature": signature}, urllib.parse.urlencode(form) + "&x=1")

key = ec.generate_private_key(ec.SECP256R1())
provider("sendgrid", "sendgrid", base64.b64encode(key.public_key().public_bytes(
    serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)).decode())
batch = '[{"event":"delivered","sg_event_id":"e1"}]'
signature = base64.b64encode(key.sign(f"{now}{batch}".encode(), ec.ECDSA(hashes.SHA256()))).decode()
headers = {"X-Twilio-Email-Event-Webhook-Signature": signature, "X-Twilio-Email-Event-Webhook-Timestamp": str(now)}
twice("sendgrid", headers, batch, "e1", "delivered")
refused("sendgrid", headers, batch + " ")

provider("adyen", "adyen", SECRET)
item = {"pspReference": "P1", "merchantAccountCode": "M", "merchantReference": "R", "originalReference": "",
        "amount": {"value": 1, "currency": "EUR"}, "eventCode": "AUTHORISATION", "success": "true"}
signature = Adyen.util.generate_notification_sig(item, SECRET).decode()
item["additionalData"] = {"hmacSignature": signature}
items = json.dumps({"live": "false", "notificationItems": [{"NotificationRequestItem": item}]})
twice("adyen", {}, items, "P1:AUTHORISATION:true", "AUTHORISATION")
refused("adyen", {}, items.replace("P1", "P2"))

private = ed25519.Ed25519PrivateKey.generate()
provider("v1a", "standard", "whpk_" + base64.b64encode(private.public_key().public_bytes_raw()).decode())
signature = base64.b64encode(private.sign(f"msg_1.{now}.{BODY}".encode())).decode()
headers = {"webhook-id": "msg_1", "webhook-timestamp": str(now), "webhook-signature": "v1a," + signature}
twice("v1a", headers, BODY, "msg_1", "invoice.paid")
refused("v1a", headers, BODY + " ")

# All of GitHub's published payloads, of every edition.
provider("github", "github", SECRET)
posted = []
for edition in sorted(pathlib.Path(examples).glob("*/index.json")):
    for event in json.loads(edition.read_text()):
        for example in event["examples"]:
            body = json.dumps(example, ensure_ascii=False)
            signature = hmac.new(SECRET.encode(), body.encode(), hashlib.sha256).hexdigest()
            action = example.get("action")
            wanted = f"{event['name']}.{action}" if isinstance(action, str) and action else event["name"]
            headers = {"X-Hub-Signature-256": "sha256=" + signature, "X-GitHub-Event": event["name"],
                       "X-GitHub-Delivery": str(uuid.uuid4())}
            posted.append((headers, body, wanted))
# GitHub's id is not signed: a payload that stands there twice, to the byte, counts once.
known, firsts = set(), []
for headers, body, wanted in posted:
    status, answer = call("POST", "/in/github", headers, body)
    repeated = (wanted, body) in known
    known.add((wanted, body))
    firsts += [] if repeated else [(headers, wanted)]
    assert status == 200 and ("already_processed" in answer) == repeated, (wanted, status, answer)
for headers, body, wanted in posted:
    status, answer = call("POST", "/in/github", headers, body)
    assert status == 200 and answer["already_processed"], (wanted, status, answer)
stored, after = {}, ""
while True:
    page = api("GET", f"/v1/webhook-events?provider=github&limit=500{after}")
    stored |= {one["provider_event_id"]: one["event_type"] for one in page["items"]}
    if not page.get("next"):
        break
    after = f"&after={page['next']}"
assert stored == {headers["X-GitHub-Delivery"]: wanted for headers, wanted in firsts}
assert len(posted) > 500, len(posted)
print(f"signatures: 9 libraries' requests and {len(posted)} of GitHub's payloads were stored once each")
