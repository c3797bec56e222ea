"""DescribeUserScramCredentials (50): which users can log in by SCRAM. No secrets."""

from __future__ import annotations

from millstream.wire.message import Int8, Int16, Int32, Message, Request


class DescribeUserScramCredentialsRequest(
    Request["DescribeUserScramCredentialsResponse"], key=50, versions=(0, 0), flexible_from=0
):
    # None or none at all: every user.
    users: list[DescribedScramUser] | None


class DescribedScramUser(Message):
    name: str


class DescribeUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    results: list[DescribeUserScramCredentialsResult]


class DescribeUserScramCredentialsResult(Message):
    user: str
    error_code: Int16
    error_message: str | None = None
    credential_infos: list[ScramCredentialInfo]


class ScramCredentialInfo(Message):
    mechanism: Int8
    iterations: Int32
