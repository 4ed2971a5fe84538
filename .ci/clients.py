"""Publishes and finds an event with the client that openapi-python-client made, and takes in a webhook."""
import importlib
import io
import os
import pkgutil

import oncebox_client
from oncebox_client import AuthenticatedClient, Client
from oncebox_client.api.events import get_event, list_events, publish_events
from oncebox_client.api.intake import receive_webhook
from oncebox_client.api.providers import create_provider
from oncebox_client.models import (
    EventPage, EventStatus, NewEvent, PiiType0, PlainScheme, PlainSchemeKind, Problem, ProviderCreation, Publications, Receipt,
)
from oncebox_client.types import File

# Each module must import: what a generator does not understand, it leaves out or writes wrongly.
for module in pkgutil.walk_packages(oncebox_client.__path__, "oncebox_client."):
    importlib.import_module(module.name)

url = os.environ["url"]
client = AuthenticatedClient(base_url=url, token=os.environ["token"])

new = NewEvent(event_type="invoice.created", idempotency_key="python-1", payload={"total": "99.00"})
published = publish_events.sync(client=client, body=new)
assert isinstance(published, Publications), published
event = published.events[0]
# No subscription wants it.
assert not event.already_processed and event.status is EventStatus.SKIPPED, event

page = list_events.sync(client=client, idempotency_key="python-1")
assert isinstance(page, EventPage) and [found.id for found in page.items] == [str(event.id)], page

refused = publish_events.sync(client=client, body=[NewEvent(event_type="")])
assert isinstance(refused, Problem) and refused.type_ == "urn:oncebox:problem:unprocessable", refused
missing = get_event.sync(client=client, id=event.id.__class__(int=0))
assert isinstance(missing, Problem) and missing.status == 404 and missing.request_id, missing

creation = ProviderCreation(
    name="shop", scheme=PlainScheme(PlainSchemeKind.GITHUB), pii=PiiType0.ALLOW, secret="a secret of the shop")
assert create_provider.sync_detailed(client=client, body=creation).status_code == 201
body = File(payload=io.BytesIO(b"{}"), mime_type="application/json")
unsigned = receive_webhook.sync(client=Client(base_url=url), provider="shop", body=body)
assert isinstance(unsigned, Problem) and unsigned.status == 401, unsigned
print("python: published, listed, refused and taken in as typed")
