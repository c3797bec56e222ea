"""Which clock sets the times of records: the brokers', or every producer's.

Events are judged by their record's time, so that one wrong clock in a line affects nothing
else. A topic that accepts the times of producers relies on their clocks.
Which events are too far ahead or behind is decided in `lines.parser`.
"""

from collections.abc import Mapping
from typing import Final

from millstream.pipeline.spec import Spec

_REQUEST_SECONDS_MAX: Final = 20.0
_TYPE: Final = "message.timestamp.type"
_AHEAD_MAX: Final = "message.timestamp.after.max.ms"


def trusts_producers(configs: Mapping[str, str], *, ahead_ms_max: int) -> bool:
    """Whether a topic accepts a producer's time that is further ahead than this."""
    if configs.get(_TYPE) == "LogAppendTime":
        return False
    return int(configs.get(_AHEAD_MAX) or 2**63 - 1) > ahead_ms_max


def topics_that_trust_producers(spec: Spec) -> list[str]:
    from confluent_kafka.admin import AdminClient, ConfigResource

    admin = AdminClient({"bootstrap.servers": spec.bootstrap, "log_level": 0})
    asked = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in spec.topics]
    found = []
    for resource, answer in admin.describe_configs(asked).items():
        entries = answer.result(_REQUEST_SECONDS_MAX)
        configs = {name: entry.value for name, entry in entries.items()}
        # The watermark's delay allows for times up to `skew` ahead.
        if trusts_producers(configs, ahead_ms_max=spec.skew_ms):
            found.append(resource.name)
    return found
