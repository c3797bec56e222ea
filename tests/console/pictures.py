"""Takes the pictures of the console's pages that the documents show.

    python -m tests.console.pictures http://127.0.0.1:8080 127.0.0.1:9092 docs/images/console

`make run` must have run for a few minutes, so that the pipeline has something to show. Beside it,
this adds a small shop: orders, a group that is behind, an open transaction, and a queue.
"""

import json
import random
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from playwright.sync_api import Page, sync_playwright

from tests.support.raw_client import RawClient
from tests.support.share_member import ACCEPT, REJECT, RELEASE, ShareMember, set_group_options

ORDERS_COUNT = 90_000
ORDERS, TASKS, DEAD = "orders", "emails", "dlq.emails"
BILLING, WORKERS = "billing", "mailers"
# The queue comes first: the member that works on it has a session of 45 seconds.
PAGES = {
    "queue": f"/groups/{WORKERS}/queue",
    "overview": "/",
    "topics": "/topics",
    "new_topic": "/new-topic",
    "messages": f"/topics/{ORDERS}",
    "search": f"/topics/{ORDERS}?q=%22status%22%3A+%22returned%22&start=beginning",
    "record": f"/topics/{ORDERS}/records/0/120",
    "partitions": f"/topics/{ORDERS}/partitions",
    "storage": f"/topics/{ORDERS}/storage?at=20000",
    "batch": f"/topics/{TASKS}/batch",
    "consumers": f"/topics/{ORDERS}/consumers",
    "config": f"/topics/{ORDERS}/config",
    "produce": f"/topics/{ORDERS}/produce",
    "groups": "/groups",
    "group": f"/groups/{BILLING}",
    "reset": f"/groups/{BILLING}/reset?to=beginning",
    "nodes": "/nodes",
    "clients": "/clients",
    "transactions": "/transactions",
    "security": "/security",
    "pipeline": "/pipeline",
}
# These are about what is further down, so the whole page is in the picture.
WHOLE = frozenset({"pipeline", "storage", "queue", "batch"})
SCHEMES: Final = ("light", "dark")
WIDTH, HEIGHT = 1280, 860
SETTLE_MS = 3_000


def main(url: str, bootstrap: str, folder: str) -> None:
    open_shop(bootstrap)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for scheme in SCHEMES:
            tab = browser.new_page(color_scheme=scheme, viewport={"width": WIDTH, "height": HEIGHT})
            with working(bootstrap):
                for name, path in PAGES.items():
                    picture = Path(folder, f"{name}-{scheme}.png")
                    take(tab, url + path, picture, whole=name in WHOLE)
        browser.close()


def take(tab: Page, address: str, picture: Path, *, whole: bool) -> None:
    tab.goto(address)
    tab.wait_for_timeout(SETTLE_MS)
    tab.screenshot(path=picture, full_page=whole)
    print(picture)


def open_shop(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    dead = NewTopic(DEAD, 1, 1, config={"errors.deadletterqueue.group.enable": "true"})
    orders = NewTopic(ORDERS, 3, 1, config={"segment.bytes": str(1 << 20)})
    topics = [orders, NewTopic(TASKS, 1, 1), dead]
    for created in admin.create_topics(topics).values():
        created.result(60)
    user = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = UserScramCredentialUpsertion("shop", user, random.randbytes(12))
    for changed in admin.alter_user_scram_credentials([wanted]).values():
        changed.result(60)
    take_orders(bootstrap)
    bill_some(bootstrap)


def take_orders(bootstrap: str) -> None:
    chance = random.Random(7)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(ORDERS_COUNT):
        order = {
            "order": number,
            "customer": f"c-{chance.randrange(900):03}",
            "status": chance.choices(("paid", "sent", "returned"), (60, 37, 3))[0],
            "total": round(chance.lognormvariate(3.4, 0.8), 2),
        }
        headers: dict[str, str | bytes | None] = {"source": chance.choice(("web", "app"))}
        producer.produce(ORDERS, json.dumps(order), key=str(order["customer"]), headers=headers)
        producer.poll(0)
        if number % 1_000 == 999:
            producer.flush(60)
    for number in range(60):
        producer.produce(TASKS, json.dumps({"to": f"c-{number:03}@shop.example", "mail": "sent"}))
    producer.flush(60)


def bill_some(bootstrap: str) -> None:
    """Leaves the group behind and without members."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": BILLING,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(ORDERS, partition, 0) for partition in range(3)])
    read = 0
    while read < ORDERS_COUNT // 2:
        read += len(consumer.consume(500, 10))
    consumer.commit(asynchronous=False)
    consumer.close()


@contextmanager
def working(bootstrap: str) -> Iterator[None]:
    """While the pictures are taken: an open transaction, two consumers, and a queue at work."""
    transaction = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "invoices-1",
            "transaction.timeout.ms": 600_000,
        }
    )
    transaction.init_transactions(60)
    transaction.begin_transaction()
    transaction.produce(ORDERS, b'{"order": 90000, "status": "paid"}', key=b"c-001")
    transaction.flush(60)
    is_over = threading.Event()
    readers = [
        threading.Thread(target=show_dashboards, args=(bootstrap, f"dashboard-{number}", is_over))
        for number in (1, 2)
    ]
    for reader in readers:
        reader.start()
    with RawClient(bootstrap) as client:
        dead = {"errors_deadletterqueue_topic_name": DEAD}
        set_group_options(client, WORKERS, share_auto_offset_reset="earliest", **dead)
    with ShareMember(bootstrap, WORKERS, TASKS) as member:
        member.join()
        member.fetch(wait_ms=60_000)
        member.acknowledge((0, 11, [ACCEPT]))
        member.acknowledge((12, 13, [REJECT]))
        member.acknowledge((14, 19, [RELEASE]))
        yield
    is_over.set()
    for reader in readers:
        reader.join()
    transaction.abort_transaction(60)


def show_dashboards(bootstrap: str, client_id: str, is_over: threading.Event) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "dashboards",
            "client.id": client_id,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([ORDERS])
    while not is_over.is_set():
        consumer.consume(500, 0.5)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
