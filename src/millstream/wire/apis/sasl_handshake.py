"""SaslHandshake (17): the mechanism that a client logs in with."""

from __future__ import annotations

from millstream.wire.message import Int16, Message, Request


# After version 0, the messages of the mechanism come without a request around them.
class SaslHandshakeRequest(Request["SaslHandshakeResponse"], key=17, versions=(0, 1)):
    mechanism: str


class SaslHandshakeResponse(Message):
    error_code: Int16
    mechanisms: list[str]
