import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from alerts import application
from faststream.kafka import KafkaBroker

HOT = {"machine": "press", "celsius": 91.5}
COLD = {"machine": "press", "celsius": 20}


class Plant:
    """The application's topics, wherever they are."""

    def __init__(self, kafka: Any, measurements: str, alerts: str) -> None:
        self._kafka = kafka
        self.measurements = kafka.topic(measurements)
        self.alerts = kafka.topic(alerts)
        self.group = f"of-{measurements}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[KafkaBroker]:
        started = application(
            self._kafka.bootstrap.split(","),
            measurements=str(self.measurements),
            alerts=str(self.alerts),
            group=self.group,
        )
        async with started:
            await started.start()
            yield started

    async def wait_alerts(self, count: int) -> list[Any]:
        found = await asyncio.to_thread(self.alerts.wait, count, timeout=30)
        return [record.json() for record in found]

    def measure(self, *measurements: dict[str, Any]) -> None:
        self.measurements.produce([json.dumps(one) for one in measurements])


@pytest.fixture
def plant(kafka: Any, make_topic: Any) -> Plant:
    return Plant(kafka, make_topic(partitions=2), make_topic())


def test_only_hot_machines_make_an_alert(plant: Plant) -> None:
    async def scenario() -> None:
        async with plant.running():
            plant.measure(COLD, HOT, COLD)
            assert await plant.wait_alerts(1) == [{"machine": "press", "text": "92 °C"}]

    asyncio.run(scenario())


def test_a_broken_measurement_does_not_stop_the_others(plant: Plant) -> None:
    async def scenario() -> None:
        async with plant.running():
            plant.measurements.produce(["{", "[]"])
            plant.measure(HOT)
            assert len(await plant.wait_alerts(1)) == 1

    asyncio.run(scenario())


def test_measurements_from_before_the_start_count(kafka_bootstrap: str, plant: Plant) -> None:
    assert kafka_bootstrap
    plant.measure(HOT, HOT)

    async def scenario() -> None:
        async with plant.running():
            assert len(await plant.wait_alerts(2)) == 2

    asyncio.run(scenario())


def test_a_slow_broker_only_delays(plant: Plant, kafka_faults: Any) -> None:
    slow = kafka_faults.delay("Produce", ms=300, topic=plant.alerts)

    async def scenario() -> None:
        async with plant.running():
            plant.measure(HOT)
            assert len(await plant.wait_alerts(1)) == 1

    asyncio.run(scenario())
    assert slow.applied >= 1


@pytest.mark.millstream(
    topics={"measurements": 1, "alerts": 1},
    config={"log.retention.ms": 3_600_000, "log.retention.check.interval.ms": 1_000},
)
def test_measurements_beyond_retention_are_gone(kafka: Any, kafka_clock: Any) -> None:
    plant = Plant(kafka, "measurements", "alerts")
    plant.measure(HOT, HOT)
    kafka_clock.advance(hours=3)

    while plant.measurements.records():
        time.sleep(0.05)

    async def scenario() -> None:
        async with plant.running():
            plant.measure(HOT)
            assert len(await plant.wait_alerts(1)) == 1

    asyncio.run(scenario())


def test_alerts_survive_a_dead_leader(kafka_cluster: Any) -> None:
    kafka_cluster.create_topic("measurements")
    kafka_cluster.create_topic("alerts")
    plant = Plant(kafka_cluster, "measurements", "alerts")

    async def scenario() -> None:
        async with plant.running():
            plant.measure(HOT)
            await plant.wait_alerts(1)
            leader = kafka_cluster.leader("alerts", 0)
            await asyncio.to_thread(kafka_cluster.kill, leader)
            plant.measure(HOT)
            assert len(await plant.wait_alerts(2)) == 2

    asyncio.run(scenario())
