"""Reads the only record of a topic and prints it as JSON: read.py BROKERS TOPIC."""
import json
import sys

from confluent_kafka import Consumer

consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "another", "auto.offset.reset": "earliest"})
consumer.subscribe([sys.argv[2]])
record = consumer.poll(60)
if record is None or record.error():
    sys.exit(f"nothing was read: {record and record.error()}")
headers = {name: value.decode() for name, value in record.headers()}
print(json.dumps({"key": record.key().decode(), "value": record.value().decode(), "headers": headers}))
consumer.close()
