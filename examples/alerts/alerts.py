"""Publishes an alert for every measurement that is too hot."""

from dataclasses import dataclass

from faststream import AckPolicy
from faststream.kafka import KafkaBroker

HOT_CELSIUS = 80.0


@dataclass(frozen=True)
class Measurement:
    machine: str
    celsius: float


@dataclass(frozen=True)
class Alert:
    machine: str
    text: str


def alert_of(measurement: Measurement) -> Alert | None:
    if measurement.celsius < HOT_CELSIUS:
        return None
    return Alert(measurement.machine, f"{measurement.celsius:.0f} °C")


def application(bootstrap: list[str], *, measurements: str, alerts: str, group: str) -> KafkaBroker:
    """`async with` it and `start` it, or give it to `FastStream`."""
    broker = KafkaBroker(bootstrap)

    # A measurement that cannot be read is skipped, and FastStream logs it.
    @broker.subscriber(
        measurements, group_id=group, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK
    )
    async def watch(measurement: Measurement) -> None:
        alert = alert_of(measurement)
        if alert is not None:
            await broker.publish(alert, alerts, key=alert.machine.encode())

    return broker
