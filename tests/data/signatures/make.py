"""Makes vectors.json: signatures by other people's libraries, to test ours against.

Run it with Python 3.11 or newer in an environment that has
    pip install standardwebhooks==1.1.0 stripe==16.1.0 svix==2.9.1 slack_sdk==3.47.0 twilio==9.13.0 \
        Adyen==16.0.0 sendgrid==6.12.5 cryptography==50.0.2
It prints to standard output; nothing in it depends on the day or the machine.

Stripe's are also checked by its library; the others' refuse times that are not today's.
Slack's, Twilio's and Adyen's are made by their libraries' verifiers, SendGrid's are also checked by its library.
Those of GitHub, Shopify, Square, Paddle, Polar, WooCommerce, Gitea,
Forgejo, PagerDuty, Linear, Terraform, Grafana, Frappe and Mailgun have no library here; theirs are made with Python's
hmac. Ed25519 is by cryptography.
"""

import base64
import hashlib
import hmac
import json
import pathlib
import urllib.parse
import zlib
from datetime import datetime, timezone

import Adyen.util
import slack_sdk.signature
import standardwebhooks
import stripe
import svix
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding
from multidict import MultiDict
from sendgrid.helpers.eventwebhook import EventWebhook
from twilio.request_validator import RequestValidator

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


def plain(header, prefix="", algorithm="sha256", write=bytes.hex, **more):
    def sign(secret, body, _time):
        return {header: prefix + write(digest(algorithm, secret, body.encode())), **more}
    return sign


def b64(data):
    return base64.b64encode(data).decode()


def slack_sign(secret, body, time):
    verifier = slack_sdk.signature.SignatureVerifier(secret)
    signature = verifier.generate_signature(timestamp=str(time), body=body)
    return {"X-Slack-Request-Timestamp": str(time), "X-Slack-Signature": signature}


def square_sign(secret, body, _time):
    mac = digest("sha256", secret, ("https://edge.example/in/p?x=1" + body).encode())
    return {"x-square-hmacsha256-signature": b64(mac)}


def paddle_sign(secret, body, time):
    return {"Paddle-Signature": f"ts={time};h1=" + digest("sha256", secret, f"{time}:{body}".encode()).hex()}


def polar_sign(secret, body, time):
    # What Polar's libraries do: they hand the secret's text, encoded, to those of Standard Webhooks.
    return own(b64(secret.encode()), body, time)


variants("slack", "slack", ONE, TWO, slack_sign, True)
variants("square", "square", ONE, TWO, square_sign, False)
variants("paddle", "paddle", ONE, TWO, paddle_sign, True)
variants("polar", "polar", ONE, TWO, polar_sign, True)
variants("woocommerce", "woocommerce", ONE, TWO, plain("X-WC-Webhook-Signature", write=b64), False)
variants("gitea", "gitea", ONE, TWO, plain("X-Gitea-Signature"), False)
variants("forgejo", "forgejo", ONE, TWO, plain("X-Forgejo-Signature"), False)
variants("pagerduty", "pagerduty", ONE, TWO, plain("X-PagerDuty-Signature", "v1="), False)
variants("linear", "linear", ONE, TWO, plain("Linear-Signature"), False)
variants("terraform", "terraform", ONE, TWO,
         plain("X-TFE-Notification-Signature", algorithm="sha512"), False)
variants("grafana", "grafana", ONE, TWO, plain("X-Grafana-Alerting-Signature"), False)
variants("frappe", "frappe", ONE, TWO, plain("X-Frappe-Webhook-Signature", write=b64), False)
variants("gitlab, signing token", "gitlab", STANDARD, STANDARD_NEW, own, True)

# The published and computed vectors of these.
slack_form = ("token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
              "&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
              "&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
              "&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c")
case("slack: the documentation's vector", "slack", ["8f742231b10e8888abcd99yyyzzz85a5"], {
    "X-Slack-Request-Timestamp": "1531420618",
    "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"},
    slack_form, 0, now=1531420618)
case("square: the computed vector", "square", ["sq_key"], {
    "x-square-hmacsha256-signature": "jLftwvp5vqQ7aSltdwGpocAi8pEBnG+uKXjPwltiEug="},
    BODY, 0, url="https://edge.example/in/square", type="invoice.paid", id=hashlib.sha256(BODY.encode()).hexdigest())
case("square: another URL", "square", ["sq_key"], {
    "x-square-hmacsha256-signature": "jLftwvp5vqQ7aSltdwGpocAi8pEBnG+uKXjPwltiEug="}, BODY, "mismatch")
case("paddle: the computed vector", "paddle", ["pdl_ntfset_test"], {"Paddle-Signature":
     f"ts={NOW};h1=6930be53eabd983ba97d6423322b921bffe6e1bbaf145517f4a5b3db549ee8d3"}, BODY, 0)
case("polar: the computed vector", "polar", ["polar_whs_test"], {
    "webhook-id": "msg_1", "webhook-timestamp": str(NOW),
    "webhook-signature": "v1,r1Wsvs0jn8EQTFIVuvpZjUU6TiK6Rb5DyYmXGi+ipRo="}, BODY, 0, id="msg_1", type="invoice.paid")
twice = "v1=" + "0" * 64 + "," + plain("x", "v1=")(ONE, BODY, NOW)["x"]
case("pagerduty: any entry may match", "pagerduty", [ONE], {"X-PagerDuty-Signature": twice}, BODY, 0)
case("paddle: any entry may match", "paddle", [ONE], {"Paddle-Signature":
     paddle_sign(ONE, BODY, NOW)["Paddle-Signature"].replace(";h1=", ";h1=" + "0" * 64 + ";h1=")}, BODY, 0)


def named(kind, body, headers, want_id, want_type, secret=ONE):
    """Where id and type stand, of a request that is right."""
    text = body if isinstance(body, str) else json.dumps(body)
    case(f"{kind}: id and type", kind, [secret], {**SIGNS[kind](secret, text, NOW), **headers}, text, 0,
         id=want_id or hashlib.sha256(text.encode()).hexdigest(), type=want_type)


SIGNS = {
    "slack": slack_sign, "square": square_sign, "paddle": paddle_sign,
    "woocommerce": plain("X-WC-Webhook-Signature", write=b64), "gitea": plain("X-Gitea-Signature"),
    "forgejo": plain("X-Forgejo-Signature"), "pagerduty": plain("X-PagerDuty-Signature", "v1="),
    "linear": plain("Linear-Signature"), "terraform": plain("X-TFE-Notification-Signature", algorithm="sha512"),
    "grafana": plain("X-Grafana-Alerting-Signature"), "frappe": plain("X-Frappe-Webhook-Signature", write=b64),
    "gitlab": lambda secret, body, time: {"X-Gitlab-Token": secret},
}
named("slack", {"event_id": "Ev08", "type": "event_callback", "event": {"type": "app_mention"}}, {},
      "Ev08", "app_mention")
named("square", {"event_id": "6a8f", "type": "payment.updated"}, {}, "6a8f", "payment.updated")
named("paddle", {"event_id": "evt_01", "event_type": "transaction.completed", "notification_id": "ntf_01"}, {},
      "evt_01", "transaction.completed")
named("woocommerce", {"id": 7}, {"X-WC-Webhook-Delivery-ID": "d1", "X-WC-Webhook-Topic": "order.updated"},
      "d1", "order.updated")
named("gitea", {"action": "opened"}, {"X-Gitea-Delivery": "g1", "X-Gitea-Event": "issues"}, "g1", "issues.opened")
named("forgejo", {"ref": "x"}, {"X-Forgejo-Delivery": "f1", "X-Forgejo-Event": "push"}, "f1", "push")
named("pagerduty", {"event": {"id": "01BW", "event_type": "incident.triggered"}}, {}, "01BW", "incident.triggered")
named("linear", {"action": "create", "type": "Issue"}, {"Linear-Delivery": "l1"}, "l1", "Issue.create")
named("terraform", {"run_id": "run-1", "notifications": [{"trigger": "run:completed"}]}, {}, None, "run:completed")
named("grafana", {"status": "firing", "alerts": []}, {}, None, "firing")
named("frappe", {"doctype": "Sales Invoice", "name": "SINV-1"}, {}, None, "Sales_Invoice")
named("gitlab", {"object_kind": "merge_request"}, {"X-Gitlab-Event-UUID": "u1", "X-Gitlab-Event": "Merge Request Hook"},
      "u1", "merge_request")
case("gitlab: another token", "gitlab", [TWO], {"X-Gitlab-Token": ONE}, BODY, "mismatch")
case("gitlab: a signing token is no token", "gitlab", [STANDARD], {"X-Gitlab-Token": STANDARD}, BODY, "mismatch")
case("gitlab: from token to signing token", "gitlab", [STANDARD, ONE], {"X-Gitlab-Token": ONE}, BODY, 1)
case("gitlab: neither", "gitlab", [STANDARD, ONE], {}, BODY, "missing")
CHARGEBEE = {"kind": "chargebee", "user": "erp"}
for name, text, expect in [("right", "erp:a-password", 0), ("wrong user", "erq:a-password", "mismatch"),
                           ("wrong password", "erp:a-passworf", "mismatch")]:
    body = '{"id":"ev_1","event_type":"payment_succeeded"}'
    case(f"chargebee: {name}", CHARGEBEE, ["a-password"], {"Authorization": "Basic " + b64(text.encode())},
         body, expect, id="ev_1", type="payment_succeeded")

# Standard Webhooks v1a, and the generic scheme's ed25519.
private = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
public = private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
WHPK = "whpk_" + b64(public)
other_public = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key().public_bytes_raw()


def v1a_sign(_secret, body, time):
    signature = b64(private.sign(f"msg_1.{time}.{body}".encode()))
    return {"webhook-id": "msg_1", "webhook-timestamp": str(time), "webhook-signature": "v1a," + signature}


variants("standard v1a", "standard", WHPK, "whpk_" + b64(other_public), v1a_sign, True)
mixed = {**own(STANDARD, BODY, NOW)}
mixed["webhook-signature"] += " " + v1a_sign("", BODY, NOW)["webhook-signature"]
case("standard: v1 and v1a, checked by the public key", "standard", [WHPK], mixed, BODY, 0)
case("standard: v1 and v1a, checked by the secret", "standard", [STANDARD], mixed, BODY, 0)
case("standard: nothing signs nothing", "standard", [WHPK],
     {**mixed, "webhook-signature": "v1, v1a,"}, BODY, "mismatch")
ED25519 = {"kind": "generic", "check": {"ed25519": {
    "signed": "{ts}{body}", "header": "X-Signature-Ed25519", "secret_encoding": "hex",
    "timestamp": {"header": "X-Signature-Timestamp"}}}}


def discord_sign(_secret, body, time):
    return {"X-Signature-Timestamp": str(time), "X-Signature-Ed25519": private.sign(f"{time}{body}".encode()).hex()}


variants("generic, like Discord", ED25519, public.hex(), other_public.hex(), discord_sign, True)


# Twilio: the documentation's example, its library's signatures, and URLs as proxies change them.
TWILIO_URL = "https://mycompany.com/myapp.php?foo=1&bar=2"
TWILIO_FORM = "CallSid=CA1234567890ABCDE&Caller=%2B12349013030&Digits=1234&From=%2B12349013030&To=%2B18005551212"
case("twilio: the documentation's vector", "twilio", ["12345"], {
    "X-Twilio-Signature": "0/KCTR6DLpKmkAf8muzZqo1nDgQ="}, TWILIO_FORM, 0, url=TWILIO_URL,
    id="CA1234567890ABCDE::eb9162be2352289ff424f40e39df3482433e37859c8bdd192fe755c10fb6bdfe", type="unknown")


def twilio_form(form, url=TWILIO_URL, secret=ONE):
    return {"X-Twilio-Signature": RequestValidator(secret).compute_signature(url, MultiDict(form))}


def encoded(form):
    return urllib.parse.urlencode(form)


form = [("MessageSid", "SM1"), ("MessageStatus", "delivered"), ("Body", "Grüße & mehr = 1+1 😀"), ("Empty", "")]
case("twilio: good", "twilio", [ONE], twilio_form(form), encoded(form), 0, url=TWILIO_URL,
     id="SM1:message.delivered", type="message.delivered")
case("twilio: its token is not the id", "twilio", [ONE], {**twilio_form(form), "I-Twilio-Idempotency-Token": "t-1"},
     encoded(form), 0, url=TWILIO_URL, id="SM1:message.delivered", type="message.delivered")
several = [*form, ("To", "b"), ("To", "a"), ("To", "b")]
case("twilio: a field three times", "twilio", [ONE], twilio_form(several), encoded(several), 0, url=TWILIO_URL)
case("twilio: a field changed", "twilio", [ONE], twilio_form(form), encoded(form).replace("SM1", "SM2"),
     "mismatch", url=TWILIO_URL)
case("twilio: rotated", "twilio", [TWO, ONE], twilio_form(form), encoded(form), 1, url=TWILIO_URL)
case("twilio: another token", "twilio", [TWO], twilio_form(form), encoded(form), "mismatch", url=TWILIO_URL)
for name, signed, known, expect in [
    ("signed with its port", "https://mycompany.com:443/a?b=1", "https://mycompany.com/a?b=1", 0),
    ("known with its port", "https://mycompany.com/a?b=1", "https://mycompany.com:443/a?b=1", 0),
    ("http with its port", "http://mycompany.com:80/a", "http://mycompany.com/a", 0),
    ("another port", "https://mycompany.com:8443/a", "https://mycompany.com/a", "mismatch"),
    ("known with a port of its own", "https://mycompany.com/a", "https://mycompany.com:8443/a", 0),
    ("another scheme", "https://mycompany.com/a", "http://mycompany.com/a", "mismatch"),
]:
    case(f"twilio: {name}", "twilio", [ONE], twilio_form(form, signed), encoded(form), expect, url=known)
digest_url = TWILIO_URL + "&bodySHA256=" + hashlib.sha256(BODY.encode()).hexdigest()
assert RequestValidator(ONE).validate(digest_url, BODY, RequestValidator(ONE).compute_signature(digest_url, {}))
json_headers = {"X-Twilio-Signature": RequestValidator(ONE).compute_signature(digest_url, {})}
case("twilio: JSON", "twilio", [ONE], json_headers, BODY, 0, url=digest_url, id="evt_1", type="invoice.paid")
case("twilio: JSON changed", "twilio", [ONE], json_headers, BODY.replace("1", "2"), "mismatch", url=digest_url)
case("twilio: JSON without its digest", "twilio", [ONE], json_headers, BODY, "mismatch", url=TWILIO_URL)
case("twilio: no signature", "twilio", [ONE], {}, encoded(form), "missing", url=TWILIO_URL)

# SendGrid: a batch, signed with a key that is made from a number.
sendgrid_key = ec.derive_private_key(0x4711, ec.SECP256R1())
SENDGRID = b64(sendgrid_key.public_key().public_bytes(
    serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))
other_key = ec.derive_private_key(0x4712, ec.SECP256R1())
SENDGRID_OTHER = b64(other_key.public_key().public_bytes(
    serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))


def sendgrid_sign(_secret, body, time):
    signature = b64(sendgrid_key.sign(f"{time}{body}".encode(), ec.ECDSA(hashes.SHA256(), deterministic_signing=True)))
    hook = EventWebhook(SENDGRID)
    assert hook.verify_signature(body, signature, str(time))
    return {"X-Twilio-Email-Event-Webhook-Signature": signature, "X-Twilio-Email-Event-Webhook-Timestamp": str(time)}


variants("sendgrid", "sendgrid", SENDGRID, SENDGRID_OTHER, sendgrid_sign, True)
events = '[{"email":"a@example.com","event":"delivered","sg_event_id":"e1"},\r\n {"event":"open","sg_event_id":"e2"}]\r\n'
case("sendgrid: a batch", "sendgrid", [SENDGRID], sendgrid_sign("", events, NOW), events, 0,
     items=[["e1", "delivered"], ["e2", "open"]])
case("sendgrid: no list", "sendgrid", [SENDGRID], sendgrid_sign("", "{}", NOW), "{}", 0, items="no list")
case("sendgrid: a broken item", "sendgrid", [SENDGRID], sendgrid_sign("", "[{},7]", NOW), "[{},7]", 0, items="item 2")

# Adyen: every item is signed for itself.
ADYEN = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056"
published = {"pspReference": "7914073381342284", "originalReference": "", "merchantAccountCode": "TestMerchant",
             "merchantReference": "TestPayment-1407325143704", "amount": {"value": 1130, "currency": "EUR"},
             "eventCode": "AUTHORISATION", "success": "true"}


def adyen(*items, key=ADYEN):
    signed = []
    for item in items:
        signature = Adyen.util.generate_notification_sig(item, key).decode()
        signed.append({"NotificationRequestItem": {**item, "additionalData": {"hmacSignature": signature}}})
    return json.dumps({"live": "false", "notificationItems": signed})


assert "coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0=" in adyen(published)
capture = {**published, "eventCode": "CAPTURE", "originalReference": "7914073381342284", "pspReference": "8314",
           "merchantReference": "a:b\\c", "success": "false"}
case("adyen: the documentation's vector", "adyen", [ADYEN], {}, adyen(published), 0,
     items=[["7914073381342284:AUTHORISATION:true", "AUTHORISATION"]])
case("adyen: two items", "adyen", [ADYEN], {}, adyen(published, capture), 0,
     items=[["7914073381342284:AUTHORISATION:true", "AUTHORISATION"], ["8314:CAPTURE:false", "CAPTURE"]])
case("adyen: rotated", "adyen", ["00" * 32, ADYEN], {}, adyen(published), 1)
case("adyen: one item of two is wrong", "adyen", [ADYEN], {}, adyen(published, capture).replace("8314", "8315"), "mismatch")
case("adyen: the amount is covered", "adyen", [ADYEN], {}, adyen(published).replace("1130", "1"), "mismatch")
case("adyen: an item without a signature", "adyen", [ADYEN], {}, adyen(published).replace("hmacSignature", "x"), "body")
case("adyen: no item", "adyen", [ADYEN], {}, '{"notificationItems":[]}', "body")
case("adyen: no secret", "adyen", [], {}, adyen(published), "no_secret")

# Mailgun: time and token alone are signed.
mail = {"signature": {"timestamp": str(NOW), "token": "tok123",
                      "signature": "5771f65d3dfb6e9b4d8fb77cb8a51664fb68dabdce9ac53005fcd19180df47ff"},
        "event-data": {"id": "m1", "event": "delivered"}}
case("mailgun: the computed vector", "mailgun", ["mg_key"], {}, json.dumps(mail), 0, id="m1", type="delivered")
for skew, expect in [(300, 0), (301, "stale"), (-301, "stale")]:
    case(f"mailgun: {skew} s old", "mailgun", ["mg_key"], {}, json.dumps(mail), expect, now=NOW + skew)
case("mailgun: another token", "mailgun", ["mg_key"], {}, json.dumps(mail).replace("tok123", "tok124"), "mismatch")
case("mailgun: another secret", "mailgun", ["mg_other"], {}, json.dumps(mail), "mismatch")
case("mailgun: rotated", "mailgun", ["mg_other", "mg_key"], {}, json.dumps(mail), 1)
case("mailgun: no signature", "mailgun", ["mg_key"], {}, "{}", "body")
case("mailgun: no JSON", "mailgun", ["mg_key"], {}, "timestamp=1", "body")

# Dynamics 365 Business Central: what the subscription was made with comes back in every item.
notes = {"value": [{"subscriptionId": "s1", "clientState": ONE, "changeType": "updated", "resource": "customers(1)"},
                   {"subscriptionId": "s1", "clientState": ONE, "changeType": "deleted", "resource": "customers(2)"}]}
case("dynamics: good", "dynamics", [TWO, ONE], {}, json.dumps(notes), 1)
case("dynamics: one state is another", "dynamics", [ONE], {}, json.dumps(notes).replace(ONE, TWO, 1), "mismatch")
case("dynamics: no state", "dynamics", [ONE], {}, '{"value":[{}]}', "body")
LIST = {"kind": "generic", "check": {"token": {"header": "X-Token"}}, "items": "/data/rows",
        "event_id": {"pointer": "/id"}, "event_type": {"pointer": "/t"}}
rows = '{"data":{"rows":[ {"id":1,"t":"a"},{"id":"x","t":"b"} ]}}'
case("generic: a batch", LIST, [ONE], {"X-Token": ONE}, rows, 0, items=[["1", "a"], ["x", "b"]])
case("generic: the body is the batch", {**LIST, "items": ""}, [ONE], {"X-Token": ONE}, '[{"id":7}]', 0,
     items=[["7", "unknown"]])
case("generic: an empty batch", LIST, [ONE], {"X-Token": ONE}, '{"data":{"rows":[]}}', 0, items=[])


# PayPal and Amazon SNS: RSA, with a certificate that is made from the key beside this file. Both are given in the
# settings, as on a box that may not fetch them.
HERE = pathlib.Path(__file__).parent
rsa_key = serialization.load_pem_private_key((HERE / "rsa.pem").read_bytes(), None)


def certificate(key, name):
    named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder().subject_name(named).issuer_name(named).public_key(key.public_key())
    builder = builder.serial_number(4711).not_valid_before(datetime(2020, 1, 1)).not_valid_after(datetime(2100, 1, 1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


CERTIFICATE = certificate(rsa_key, "messageverificationcerts.paypal.com")
PAYPAL = {"kind": "paypal", "webhook_id": "4JH86294D6297924G", "certificates": CERTIFICATE}


def rsa(message, algorithm):
    return b64(rsa_key.sign(message.encode(), padding.PKCS1v15(), algorithm))


def paypal(body, time="2023-11-14T22:13:20Z", webhook="4JH86294D6297924G"):
    message = f"t-1|{time}|{webhook}|{zlib.crc32(body.encode())}"
    return {"PAYPAL-TRANSMISSION-ID": "t-1", "PAYPAL-TRANSMISSION-TIME": time, "PAYPAL-AUTH-ALGO": "SHA256withRSA",
            "PAYPAL-CERT-URL": "https://api.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-df8cd2d5",
            "PAYPAL-TRANSMISSION-SIG": rsa(message, hashes.SHA256())}


assert zlib.crc32(BODY.encode()) == 3628243811
sale = '{"id":"WH-1","event_type":"PAYMENT.SALE.COMPLETED"}'
case("paypal: good", PAYPAL, [], paypal(sale), sale, 0, id="WH-1", type="PAYMENT.SALE.COMPLETED")
case("paypal: body changed", PAYPAL, [], paypal(sale), sale.replace("1", "2"), "mismatch")
case("paypal: of another webhook", PAYPAL, [], paypal(sale, webhook="ANOTHER1"), sale, "mismatch")
case("paypal: stale", PAYPAL, [], paypal(sale), sale, "stale", now=NOW + 301)
case("paypal: another algorithm", PAYPAL, [], {**paypal(sale), "PAYPAL-AUTH-ALGO": "MD5withRSA"}, sale, "malformed")
case("paypal: no certificate", {"kind": "paypal", "webhook_id": "4JH86294D6297924G"}, [], paypal(sale), sale, "no_secret")
for name in ["PAYPAL-TRANSMISSION-ID", "PAYPAL-TRANSMISSION-TIME", "PAYPAL-TRANSMISSION-SIG", "PAYPAL-AUTH-ALGO"]:
    gone = {have: value for have, value in paypal(sale).items() if have != name}
    case(f"paypal: {name} is needed", PAYPAL, [], gone, sale, "missing")

TOPIC = "arn:aws:sns:eu-central-1:123456789012:orders"
SNS = {"kind": "sns", "topics": [TOPIC], "certificates": CERTIFICATE}


def sns(message, version="2"):
    message = {"TopicArn": TOPIC, "Timestamp": "2023-11-14T22:13:20.000Z", **message}
    names = (["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"] if message["Type"] == "Notification"
             else ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"])
    text = "".join(f"{name}\n{message[name]}\n" for name in names if name in message)
    signature = rsa(text, hashes.SHA1() if version == "1" else hashes.SHA256())
    return {**message, "SignatureVersion": version, "Signature": signature,
            "SigningCertURL": "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-1.pem"}


note = {"Type": "Notification", "MessageId": "n-1", "Message": "Grüße\n{}", "Subject": "s"}
for version in ["1", "2"]:
    case(f"sns: good, version {version}", SNS, [], {}, json.dumps(sns(note, version)), 0, id="n-1", type="Notification")
    case(f"sns: changed, version {version}", SNS, [], {}, json.dumps(sns(note, version)).replace("n-1", "n-2"), "mismatch")
case("sns: no subject", SNS, [], {}, json.dumps(sns({**note, "Subject": "x"} | {"Subject": ""})), 0)
unsubject = {name: value for name, value in note.items() if name != "Subject"}
case("sns: without a subject", SNS, [], {}, json.dumps(sns(unsubject)), 0)
confirm = {"Type": "SubscriptionConfirmation", "MessageId": "c-1", "Message": "You have chosen", "Token": "t",
           "SubscribeURL": "https://sns.eu-central-1.amazonaws.com/?Action=ConfirmSubscription"}
case("sns: a confirmation", SNS, [], {}, json.dumps(sns(confirm)), 0, id="c-1", type="SubscriptionConfirmation")
case("sns: another topic", SNS, [], {}, json.dumps(sns({**note, "TopicArn": TOPIC + "2"})), "body")
case("sns: another version", SNS, [], {}, json.dumps({**sns(note), "SignatureVersion": "3"}), "body")
case("sns: no JSON", SNS, [], {}, "x", "body")

# Several signatures in one header, as during a sender's rotation.
both = own(STANDARD, BODY, NOW)
first = own(STANDARD_NEW, BODY, NOW)["webhook-signature"]
both["webhook-signature"] = f"v1a,AAAA {first} " + both["webhook-signature"]
case("standard: any entry may match", "standard", [STANDARD], both, BODY, 0)
case("standard: only another version", "standard", [STANDARD],
     {**both, "webhook-signature": "v2,AAAA"}, BODY, "malformed")
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
    BODY, 0, id="98880550-7158-44d4-b7cd-2c97c8a091b5:orders/create", type="orders/create")
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
