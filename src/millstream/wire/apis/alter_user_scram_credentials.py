"""AlterUserScramCredentials (51): users that log in by SCRAM are created, changed and deleted.

The client salts the password: the password itself does not travel.
"""

from __future__ import annotations

from millstream.wire.message import Bytes, Int8, Int16, Int32, Message, Request


class AlterUserScramCredentialsRequest(
    Request["AlterUserScramCredentialsResponse"], key=51, versions=(0, 0), flexible_from=0
):
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


class ScramCredentialDeletion(Message):
    name: str
    mechanism: Int8


class ScramCredentialUpsertion(Message):
    name: str
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes


class AlterUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult]


class AlterUserScramCredentialsResult(Message):
    user: str
    error_code: Int16
    error_message: str | None = None
