"""A consumer with its guard in PostgreSQL: the effects of many records in one transaction, their offsets afterwards."""

import sys

import psycopg
from confluent_kafka import Consumer, KafkaException, TopicPartition

brokers, topic, address = sys.argv[1:]
erp = psycopg.connect(address, autocommit=True)
consumer = Consumer({"bootstrap.servers": brokers, "group.id": "erp", "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, "socket.timeout.ms": 2000})
# No election of a group: the mock ends itself when a member is killed in one.
partitions = [TopicPartition(topic, number) for number in consumer.list_topics(topic, 20).topics[topic].partitions]
for partition in consumer.committed(partitions, 20):
    partition.offset = max(partition.offset, 0)
    consumer.incremental_assign([partition])
while True:
    records = [record for record in consumer.consume(200, timeout=0.2) if not record.error()]
    if not records:
        continue
    with erp.transaction():
        for record in records:
            ce_id = dict(record.headers())["ce_id"].decode()
            claimed = erp.execute("INSERT INTO processed_events (consumer_group, event_id) VALUES ('erp', %s) "
                                  "ON CONFLICT DO NOTHING", (ce_id,))
            if claimed.rowcount == 1:
                erp.execute("INSERT INTO effects (invoice) VALUES (%s)", (record.value().decode(),))
    # Not in the background: that commits how far the consumer is when the broker is asked, with records that have no effect yet.
    try:
        consumer.commit(asynchronous=False)
    except KafkaException:
        pass  # The next commit is for these records, too.
