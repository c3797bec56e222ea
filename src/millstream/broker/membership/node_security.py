"""How this node connects to the others: with the protocol of the listener between nodes.

With TLS it shows its own certificate; with SASL it logs in with the user name and password of
that listener's `sasl.jaas.config`. After either, it still proves that it is a node.
"""

from millstream.client.security import PLAINTEXT, Security, SecurityError, read_security
from millstream.config import BrokerConfig, ConfigError, Listener
from millstream.security.tls import read_store_options


def node_security(config: BrokerConfig, listener: Listener) -> Security:
    """Raises ConfigError."""
    if not listener.uses_tls and not listener.uses_sasl:
        return PLAINTEXT
    own = config.for_listener(listener.name)
    options = read_store_options(own)
    options["security.protocol"] = listener.protocol
    options["ssl.endpoint.identification.algorithm"] = (
        own.optional_string("ssl.endpoint.identification.algorithm") or ""
    )
    if listener.uses_sasl:
        mechanism = config.string("sasl.mechanism.inter.broker.protocol")
        options["sasl.mechanism"] = mechanism
        of_mechanism = config.for_listener(listener.name, mechanism)
        options["sasl.jaas.config"] = of_mechanism.optional_string("sasl.jaas.config") or ""
    try:
        return read_security(options)
    except SecurityError as problem:
        raise ConfigError(f"between nodes, on listener {listener.name}: {problem}") from None
