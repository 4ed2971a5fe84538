"""Makes vectors.json: signatures by other people's libraries, to test ours against.

Run it with Python 3.11 or newer in an environment that has
    pip install standardwebhooks==1.1.0 stripe==16.1.0 svix==2.9.1
It prints to standard output; nothing in it depends on the day or the machine.

Stripe's are also checked by its library; the others' refuse times that are not today's.
GitHub and Shopify have no library of their own for this; theirs are made with Python's hmac.
"""

import base64
import hashlib
import hmac
import json
from datetime import datetime, timezone

import standardwebhooks
import stripe
import svix

NOW = 1_700_000_000
BODY = '{"id":"evt_1","type":"invoice.paid"}'
UNICODE = '{"id":"evt_2","type":"invoice.paid","name":"Größe 漢字 😀","note":"a\\n.b"}'
STANDARD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STANDARD_NEW = "whsec_" + base64.b64encode(bytes(range(64))).decode()
cases = []


def case(name, scheme, secrets, headers, body, expect, now=NOW, **more):
    if isinstance(body, str):
        body = body.encode()
    cases.append({
        "name": name,
        "scheme": scheme if isinstance(scheme, dict) else {"kind": scheme},
        "secrets": secrets,
        "method": "POST",
        "path": "/in/p?x=1",
        "url": "https://edge.example/in/p?x=1",
        "headers": headers,
        "body_base64": base64.b64encode(body).decode(),
        "now": now,
        "expect": expect,
        **more,
    })


def variants(name, scheme, secret, other, sign, timed):
    """The cases that every scheme has. `sign(secret, body, time)` gives the headers."""
    headers = sign(secret, BODY, NOW)
    case(f"{name}: good", scheme, [secret], headers, BODY, 0)
    case(f"{name}: good, not ASCII", scheme, [secret], sign(secret, UNICODE, NOW), UNICODE, 0)
    case(f"{name}: good, empty body", scheme, [secret], sign(secret, "", NOW), "", 0)
    case(f"{name}: tampered body", scheme, [secret], headers, BODY.replace("1", "2"), "mismatch")
    case(f"{name}: body reformatted", scheme, [secret], headers, BODY.replace(":", ": "), "mismatch")
    case(f"{name}: rotated, signed with the old one", scheme, [other, secret], headers, BODY, 1)
    case(f"{name}: rotated, the old one is gone", scheme, [other], headers, BODY, "mismatch")
    case(f"{name}: no secret", scheme, [], headers, BODY, "no_secret")
    case(f"{name}: no headers", scheme, [secret], {}, BODY, "missing")
    if timed:
        for skew, expect in [(300, 0), (301, "stale"), (-300, 0), (-301, "stale"), (86400, "stale")]:
            case(f"{name}: {skew} s old", scheme, [secret], headers, BODY, expect, now=NOW + skew)
        case(f"{name}: old and wrong", scheme, [other], headers, BODY, "mismatch", now=NOW + 9000)


def standard(library, prefix):
    def sign(secret, body, time):
        at = datetime.fromtimestamp(time, tz=timezone.utc)
        signature = library(secret).sign("msg_1", at, body)
        return {f"{prefix}-id": "msg_1", f"{prefix}-timestamp": str(time), f"{prefix}-signature": signature}
    return sign


def stripe_sign(secret, body, time):
    signature = stripe.WebhookSignature._compute_signature(f"{time}.{body}", secret)
    header = f"t={time},v1={signature}"
    assert stripe.WebhookSignature.verify_header(body, header, secret, tolerance=None)
    return {"Stripe-Signature": header}


def digest(algorithm, key, data):
    return hmac.new(key if isinstance(key, bytes) else key.encode(), data, algorithm).digest()


def github_sign(secret, body, _time):
    return {"X-Hub-Signature-256": "sha256=" + digest("sha256", secret, body.encode()).hex()}


def shopify_sign(secret, body, _time):
    mac = digest("sha256", secret, body.encode())
    return {"X-Shopify-Hmac-Sha256": base64.b64encode(mac).decode()}


ONE, TWO = "0123456789abcdef-one", "0123456789abcdef-two"
own = standard(standardwebhooks.Webhook, "webhook")
variants("standard", "standard", STANDARD, STANDARD_NEW, own, True)
variants("svix", "standard", STANDARD_NEW, STANDARD, standard(svix.Webhook, "svix"), True)
variants("stripe", "stripe", "whsec_test_secret", "whsec_other_secret", stripe_sign, True)
variants("github", "github", ONE, TWO, github_sign, False)
variants("shopify", "shopify", ONE, TWO, shopify_sign, False)

# Several signatures in one header, as during a sender's rotation.
both = own(STANDARD, BODY, NOW)
first = own(STANDARD_NEW, BODY, NOW)["webhook-signature"]
both["webhook-signature"] = f"v1a,AAAA {first} " + both["webhook-signature"]
case("standard: any entry may match", "standard", [STANDARD], both, BODY, 0)
case("standard: only another version", "standard", [STANDARD],
     {**both, "webhook-signature": "v1a,AAAA"}, BODY, "malformed")
case("standard: time is no number", "standard", [STANDARD],
     {**both, "webhook-timestamp": "now"}, BODY, "malformed")
case("standard: another id", "standard", [STANDARD], {**both, "webhook-id": "msg_2"}, BODY, "mismatch")
good = stripe_sign("whsec_test_secret", BODY, NOW)["Stripe-Signature"]
case("stripe: any v1 may match", "stripe", ["whsec_test_secret"],
     {"Stripe-Signature": good.replace(",v1=", ",v1=" + "0" * 64 + ",v0=ff,v1=")}, BODY, 0)
case("stripe: v0 is not looked at", "stripe", ["whsec_test_secret"],
     {"Stripe-Signature": good.replace("v1=", "v0=")}, BODY, "malformed")
case("github: SHA-1 alone is not taken", "github", [ONE],
     {"X-Hub-Signature": "sha1=" + digest("sha1", ONE, BODY.encode()).hex()}, BODY, "missing")
case("github: bytes that are not UTF-8", "github", [ONE],
     {"X-Hub-Signature-256": "sha256=" + digest("sha256", ONE, b"\xff\x00\xfe").hex()}, b"\xff\x00\xfe", 0)

# The published and computed vectors of providers.md.
case("standard: the specification's vector", "standard", [STANDARD], {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
    '{"test": 2432232314}', 0, now=1614265330, id="msg_p5jXN8AQM9LWM0D4loKWxJek", type="unknown")
case("github: the documentation's vector", "github", ["It's a Secret to Everybody"], {
    "X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958", "X-GitHub-Event": "push"},
    "Hello, World!", 0, id="72d3162e-cc78-11e3-81ab-4c9367dc0958", type="push")
case("stripe: the computed vector", "stripe", ["whsec_test_secret"], {"Stripe-Signature":
     f"t={NOW},v1=46dc069361a7691082640523fa33fe5d6c8c88d5f5e257cdf8cf11539d166595"},
     BODY, 0, id="evt_1", type="invoice.paid")
case("shopify: the computed vector", "shopify", ["shop_secret"], {
    "X-Shopify-Hmac-Sha256": "LluuQsAHxc8b/0XJ5EVSDXoE03KnVKpRJUmDqJ1ei+o=",
    "X-Shopify-Event-Id": "98880550-7158-44d4-b7cd-2c97c8a091b5",
    "X-Shopify-Webhook-Id": "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
    "X-Shopify-Topic": "orders/create"},
    BODY, 0, id="98880550-7158-44d4-b7cd-2c97c8a091b5", type="orders/create")
case("shopify: without an event id the webhook's", "shopify", ["shop_secret"], {
    "X-Shopify-Hmac-Sha256": "LluuQsAHxc8b/0XJ5EVSDXoE03KnVKpRJUmDqJ1ei+o=",
    "X-Shopify-Webhook-Id": "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043"},
    BODY, 0, id="b54557e4-bdd9-4b37-8a5f-bf7d70bcd043", type="unknown")
opened = '{"action":"opened","number":1}'
case("github: the action is part of the type", "github", [ONE], {
    **github_sign(ONE, opened, NOW), "X-GitHub-Event": "pull_request"},
    opened, 0, id=hashlib.sha256(opened.encode()).hexdigest(), type="pull_request.opened")
case("standard: id from the header, type from the body", "standard", [STANDARD],
     own(STANDARD, BODY, NOW), BODY, 0, id="msg_1", type="invoice.paid")


def generic(check, **more):
    return {"kind": "generic", "check": check, **more}


def timed(name, unit="s"):
    return {"header": name, "unit": unit}


SLACK = generic({"hmac": {"signed": "v0:{ts}:{body}", "header": "X-Slack-Signature", "prefix": "v0=",
                          "timestamp": timed("X-Slack-Request-Timestamp")}},
                event_id={"pointer": "/event_id"}, event_type={"pointer": "/event/type"})
SLACK_BODY = '{"event_id":"Ev08","event":{"type":"app_mention"}}'


def slack_sign(secret, body, time):
    signature = digest("sha256", secret, f"v0:{time}:{body}".encode()).hex()
    return {"X-Slack-Request-Timestamp": str(time), "X-Slack-Signature": "v0=" + signature}


variants("generic, like Slack", SLACK, ONE, TWO, slack_sign, True)
case("generic, like Slack: id and type", SLACK, [ONE], slack_sign(ONE, SLACK_BODY, NOW), SLACK_BODY, 0,
     id="Ev08", type="app_mention")

SQUARE = generic({"hmac": {"signed": "{url}{body}", "header": "X-Square-HmacSha256-Signature",
                           "encoding": "base64"}}, event_id={"pointer": "/id"})
case("generic, like Square: the computed vector", SQUARE, ["sq_key"], {
    "X-Square-HmacSha256-Signature": "jLftwvp5vqQ7aSltdwGpocAi8pEBnG+uKXjPwltiEug="},
    BODY, 0, url="https://edge.example/in/square", id="evt_1", type="unknown")
case("generic, like Square: another URL", SQUARE, ["sq_key"], {
    "X-Square-HmacSha256-Signature": "jLftwvp5vqQ7aSltdwGpocAi8pEBnG+uKXjPwltiEug="}, BODY, "mismatch")

key = bytes(range(32))
whole = f"POST\n/in/p?x=1\nn-1\nid-1\n{NOW}123\n{BODY}".encode()
WHOLE = {"hash": "sha512", "signed": "{method}\n{path}\n{header:X-Nonce}\n{id}\n{ts}\n{body}",
         "header": "X-Sig", "encoding": "base64url", "secret_encoding": "hex", "separator": ";",
         "prefix": "s=", "timestamp": timed("X-Ts", "ms")}
WHOLE_HEADERS = {"X-Nonce": "n-1", "X-Id": "id-1", "X-Ts": f"{NOW}123", "X-Type": "Sales Invoice",
                 "X-Sig": "s=AAAA; s=" + base64.urlsafe_b64encode(digest("sha512", key, whole)).decode()}
everything = generic({"hmac": WHOLE}, event_id={"header": "X-Id"}, event_type={"header": "X-Type"})
case("generic: every placeholder", everything, [key.hex()], WHOLE_HEADERS, BODY, 0,
     id="id-1", type="Sales_Invoice")
case("generic: milliseconds are checked too", everything, [key.hex()], WHOLE_HEADERS, BODY, "stale",
     now=NOW + 302)
for name in ["X-Nonce", "X-Id", "X-Ts"]:
    changed = {**WHOLE_HEADERS, name: WHOLE_HEADERS[name].replace("1", "2")}
    case(f"generic: {name} is covered", everything, [key.hex()], changed, BODY, "mismatch")
    gone = {have: value for have, value in WHOLE_HEADERS.items() if have != name}
    case(f"generic: {name} is needed", everything, [key.hex()], gone, BODY, "missing")
case("generic: the method is covered", everything, [key.hex()], WHOLE_HEADERS, BODY, "mismatch", method="PUT")
case("generic: the path is covered", everything, [key.hex()], WHOLE_HEADERS, BODY, "mismatch", path="/in/p")

SHA1 = generic({"hmac": {"hash": "sha1", "signed": "{body}", "header": "X-Hub-Signature",
                         "prefix": "sha1=", "secret_encoding": "base64"}}, event_type={"constant": "push"})
case("generic: SHA-1 and a key in base64", SHA1, [base64.b64encode(key).decode()],
     {"X-Hub-Signature": "sha1=" + digest("sha1", key, BODY.encode()).hex().upper()}, BODY, 0,
     id=hashlib.sha256(BODY.encode()).hexdigest(), type="push")
case("generic: a key that is no base64", SHA1, ["***"],
     {"X-Hub-Signature": "sha1=" + digest("sha1", key, BODY.encode()).hex()}, BODY, "no_secret")

TOKEN = generic({"token": {"header": "X-Gitlab-Token"}}, event_id={"header": "X-Gitlab-Event-UUID"})
case("generic: token", TOKEN, [TWO, ONE], {"X-Gitlab-Token": ONE}, BODY, 1)
case("generic: wrong token", TOKEN, [ONE], {"X-Gitlab-Token": TWO}, BODY, "mismatch")
case("generic: empty token, empty secret", TOKEN, [""], {"X-Gitlab-Token": ""}, BODY, "no_secret")
BEARER = generic({"token": {"header": "Authorization", "prefix": "Bearer "}})
case("generic: bearer", BEARER, [ONE], {"Authorization": "Bearer " + ONE}, BODY, 0)
case("generic: not bearer", BEARER, [ONE], {"Authorization": "Basic " + ONE}, BODY, "malformed")
BASIC = generic({"basic": {"user": "erp"}})
for name, text, expect in [("right", "erp:pa:ss", 0), ("wrong user", "erq:pa:ss", "mismatch"),
                           ("wrong password", "erp:pass", "mismatch")]:
    case(f"generic: basic, {name}", BASIC, ["pa:ss"],
         {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}, BODY, expect)

names = [entry["name"] for entry in cases]
assert len(set(names)) == len(names), "two cases have the same name"
print(json.dumps(cases, indent=1, ensure_ascii=False))
