"""One end of a TLS connection without I/O: bytes of the wire go in and out, plain bytes too.

Memory on both sides of OpenSSL, not a socket below it: one receive and one send then carry many
records, and nothing that OpenSSL wants to write ever has to wait in the middle of a read.
"""

import ssl
from typing import Final, cast

# How the first record of a client begins.
_HANDSHAKE_RECORD: Final = 0x16
_TLS_MAJOR_VERSION: Final = 0x03
# Fatal alerts of TLS 1.2, which are not encrypted during a handshake.
_UNKNOWN_CA: Final = bytes.fromhex("15 0303 0002 02 30")
_BAD_CERTIFICATE: Final = bytes.fromhex("15 0303 0002 02 2a")


def is_client_hello(data: bytes | bytearray | memoryview) -> bool:
    """Do these first bytes begin a TLS handshake?"""
    return data[0] == _HANDSHAKE_RECORD and (len(data) < 2 or data[1] == _TLS_MAJOR_VERSION)


class TlsSession:
    __slots__ = ("_incoming", "_object", "_outgoing", "has_more", "is_ended")

    def __init__(self, context: ssl.SSLContext, *, server_name: str | None = None) -> None:
        """The client's end if it knows the name of its server, else the server's."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )
        # The last read filled its buffer, and there may be more without more from the wire.
        self.has_more = False
        # The other end has said that it sends nothing more.
        self.is_ended = False

    def feed(self, data: memoryview | bytes) -> None:
        """Bytes that arrived. They are copied."""
        self._incoming.write(data)

    def shake_hands(self) -> bool:
        """Go on with the handshake; True when it is done. Raises ssl.SSLError.

        There may be output in any case, an alert for the other end too.
        """
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLCertVerificationError:
            # As Java's servers say it: clients and their tests look for that number.
            self._outgoing.write(self._outgoing.read().replace(_UNKNOWN_CA, _BAD_CERTIFICATE))
            raise
        # The first request may have come together with the end of the handshake.
        self.has_more = True
        return True

    def read_into(self, buffer: memoryview) -> int:
        """As many plain bytes as there are, or fit. 0: more must arrive first, or `is_ended`."""
        filled = 0
        size = len(buffer)
        try:
            while filled < size:
                # With a buffer it returns a count, which its type does not say.
                count = cast(int, self._object.read(size - filled, buffer[filled:]))
                if count == 0:
                    self.is_ended = True
                    break
                filled += count
        except ssl.SSLWantReadError:
            self.has_more = False
        except ssl.SSLZeroReturnError:
            self.has_more, self.is_ended = False, True
        else:
            self.has_more = not self.is_ended
        return filled

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt all of it."""
        self._object.write(data)

    @property
    def output_bytes(self) -> int:
        """How many bytes `take_output` has for the wire."""
        return self._outgoing.pending

    def take_output(self) -> bytes:
        return self._outgoing.read()

    def peer_certificate(self) -> bytes | None:
        """The certificate that the other end has proved to own, as DER."""
        return self._object.getpeercert(binary_form=True)

    @property
    def version(self) -> str | None:
        return self._object.version()
