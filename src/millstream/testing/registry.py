"""A schema registry for tests, in a thread of the test's process, on any Kafka."""

from typing import TYPE_CHECKING, Any, Final

from millstream.testing.clock import MovableClock
from millstream.testing.loop_thread import LoopThread

if TYPE_CHECKING:
    from millstream.registry.registry import ClusterAccess
    from millstream.registry.serving import RegistryServer
    from millstream.testing.kafka import Kafka

_START_SECONDS_MAX: Final = 60.0
_STOP_SECONDS_MAX: Final = 30.0
DEFAULT_TOPIC: Final = "_schemas"


class RegistryThread:
    """`start()`, then `url` is for clients; `stop()` and `start()` keep it."""

    def __init__(self, kafka: "Kafka", *, topic: str = DEFAULT_TOPIC) -> None:
        self.url = ""
        self._kafka = kafka
        self._topic = topic
        self._port = 0
        self._thread: LoopThread | None = None
        self._server: RegistryServer | None = None

    def start(self) -> None:
        """It answers when this returns."""
        # Imported late: it needs the extra `registry`, and takes a while.
        from millstream.registry.registry import SchemaRegistry
        from millstream.registry.serving import RegistryServer
        from millstream.registry.sockets import listen_on

        bound = listen_on("127.0.0.1", self._port)
        registry = SchemaRegistry(
            _access(self._kafka), topic=self._topic, group_id=f"schema-registry{self._topic}"
        )
        self._server = RegistryServer(registry, bound)
        self.url = self._server.url
        self._port = bound.getsockname()[1]
        # The broker's clock may be stopped or moved; this one goes on.
        self._thread = LoopThread("millstream-registry", MovableClock())
        try:
            self._thread.run(self._server.start(), seconds_max=_START_SECONDS_MAX)
        except BaseException:
            self._thread.stop()
            self._thread = None
            raise

    def stop(self) -> None:
        if self._thread is not None:
            assert self._server is not None
            thread, self._thread = self._thread, None
            try:
                thread.run(self._server.stop(), seconds_max=_STOP_SECONDS_MAX)
            finally:
                thread.stop()


def _access(kafka: "Kafka") -> "ClusterAccess":
    from millstream.client.security import read_security
    from millstream.registry.registry import ClusterAccess

    settings: dict[str, Any] = {**kafka.client_config(), "client.id": "millstream-registry"}
    addresses = [each.rpartition(":") for each in kafka.bootstrap.split(",")]
    options = {name: str(value) for name, value in kafka.client_config("java").items()}
    nodes = [(host.strip("[]"), int(port)) for host, _, port in addresses]
    return ClusterAccess(nodes, settings, read_security(options))
