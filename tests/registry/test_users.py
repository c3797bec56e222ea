import asyncio
import base64
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.types import Message

from millstream.errors import StartError
from millstream.registry import users as users_module
from millstream.registry.rest import make_app
from millstream.registry.users import LoginDelayed, Users, load_users
from millstream.security.sasl import plain
from millstream.security.sasl.plain import PlainLogin, StoredPassword
from millstream.security.sasl.scram import (
    ScramCredential,
    encode_credential,
    new_credential,
)
from tests.support.set_clock import SetClock

ADDRESS = "10.0.0.1"


def header(login: str) -> str:
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def allowed(file: Path, *headers: str) -> list[bool]:
    users = load_users(file)

    async def ask() -> list[bool]:
        return [await users.has(each, ADDRESS) for each in headers]

    return asyncio.run(ask())


def test_a_login_is_a_name_and_its_password(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# people\nann=secret\nbob=with:colon\n")
    right = [header("ann:secret"), header("ann:secret"), header("bob:with:colon")]
    assert allowed(file, *right, "basic" + right[0][5:]) == [True] * 4
    wrong = [header("ann:other"), header("eve:secret"), header("ann"), header(""), ""]
    others = ["Basic", "Basic !", "Bearer x", "Basic /w=="]
    assert not any(allowed(file, *wrong, *others))


def test_passwords_may_be_hashed(tmp_path: Path) -> None:
    file = tmp_path / "users"
    hashed = new_credential("SCRAM-SHA-256", "secret", salt=b"12345678", iterations=4096)
    file.write_text(f"ann={encode_credential(hashed)}\n")
    assert allowed(file, header("ann:secret"), header("ann:other")) == [True, False]


@pytest.mark.parametrize("text", ["", "# nobody\n", "ann\n", "ann=\n", "ann=a\nann=b\n"])
def test_a_file_without_users_or_with_mistakes_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "users"
    file.write_text(text)
    with pytest.raises(StartError, match="users"):
        load_users(file)
    with pytest.raises(StartError, match="No such file"):
        load_users(tmp_path / "missing")


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[StoredPassword]:
    """What logins were compared with."""
    found: list[StoredPassword] = []
    matches = plain.matches

    def note(login: PlainLogin, stored: StoredPassword) -> bool:
        found.append(stored)
        return matches(login, stored)

    monkeypatch.setattr(users_module, "matches", note)
    return found


def test_a_stranger_costs_as_much_as_a_user(compared: list[StoredPassword]) -> None:
    hashed = new_credential("SCRAM-SHA-256", "secret", salt=b"12345678", iterations=5000)
    users = Users({"ann": hashed}, SetClock())
    assert not asyncio.run(users.has(header("eve:secret"), ADDRESS))
    [decoy] = compared
    assert isinstance(decoy, ScramCredential)
    assert decoy.iterations == 5000


def test_wrong_passwords_delay_the_next(compared: list[StoredPassword]) -> None:
    clock = SetClock()
    users = Users({"ann": "secret", "bob": "other"}, clock)

    async def scenario() -> None:
        assert await users.has(header("bob:other"), ADDRESS)
        for number in range(5):
            assert not await users.has(header(f"ann:{number}"), ADDRESS)
        with pytest.raises(LoginDelayed, match="wait 1 s"):
            await users.has(header("ann:secret"), ADDRESS)
        # It was right before.
        assert await users.has(header("bob:other"), ADDRESS)
        assert await users.has(header("ann:secret"), "10.0.0.2")
        clock.seconds += 1
        assert not await users.has(header("ann:5"), ADDRESS)
        with pytest.raises(LoginDelayed, match="wait 2 s"):
            await users.has(header("ann:6"), ADDRESS)

    asyncio.run(scenario())
    assert len(compared) == 8


def test_a_client_that_repeats_a_wrong_password_delays_nobody(
    compared: list[StoredPassword],
) -> None:
    users = Users({"ann": "secret", "bob": "other"}, SetClock())

    async def scenario() -> None:
        stale = header("ann:stale")
        together = await asyncio.gather(*(users.has(stale, ADDRESS) for _ in range(50)))
        assert not any(together)
        assert len(compared) <= 4
        for _ in range(100):
            assert not await users.has(stale, ADDRESS)
        # The same client on many machines.
        for number in range(100):
            assert not await users.has(stale, f"10.0.1.{number}")
        assert await users.has(header("ann:secret"), ADDRESS)
        assert await users.has(header("bob:other"), ADDRESS)
        assert await users.has(header("ann:secret"), "10.0.0.2")
        # It counted as one.
        for number in range(4):
            assert not await users.has(header(f"bob:{number}"), ADDRESS)
        assert not await users.has(header("bob:4"), ADDRESS)
        with pytest.raises(LoginDelayed):
            await users.has(header("bob:5"), ADDRESS)
        # And what is known to be wrong is so during the delay, too.
        assert not await users.has(header("bob:4"), ADDRESS)

    asyncio.run(scenario())


def test_many_wrong_users_delay_the_others_at_their_address_for_a_moment() -> None:
    clock = SetClock()
    users = Users({"ann": "secret"}, clock)

    async def scenario() -> None:
        for number in range(40):
            clock.seconds += 10
            assert not await users.has(header(f"user{number}:guess"), ADDRESS)
        with pytest.raises(LoginDelayed, match="wait 10 s"):
            await users.has(header("ann:secret"), ADDRESS)
        clock.seconds += 10
        assert await users.has(header("ann:secret"), ADDRESS)

    asyncio.run(scenario())


def test_a_stranger_cannot_guess_what_others_have_sent() -> None:
    users = Users({"ann": "secret"}, SetClock())

    async def scenario() -> None:
        assert await users.has(header("ann:secret"), "10.0.0.2")
        assert not await users.has(header("ann:stale"), "10.0.0.2")
        for number in range(5):
            assert not await users.has(header(f"ann:{number}"), ADDRESS)
        for login in ("ann:secret", "ann:stale", "ann:6"):
            with pytest.raises(LoginDelayed):
                await users.has(header(login), ADDRESS)

    asyncio.run(scenario())


def test_few_headers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users_module, "_REMEMBERED_MAX", 3)
    clock = SetClock()
    users = Users({"ann": "secret"}, clock)

    async def scenario() -> None:
        for number in range(10):
            assert not await users.has(header("ann:stale"), ADDRESS)
            clock.seconds += 300
            assert not await users.has(header(f"ann:{number}"), ADDRESS)
        assert users._attempts._of_both._counts[f"{ADDRESS} ann"].wrong == 11

    asyncio.run(scenario())
    assert len(users._wrong) == len(users._wrong_anywhere) == 3


def test_guesses_that_come_together_are_few(compared: list[StoredPassword]) -> None:
    users = Users({"ann": "secret"}, SetClock())

    async def guess_at_once() -> None:
        guesses = (users.has(header(f"ann:{number}"), ADDRESS) for number in range(100))
        found = await asyncio.gather(*guesses, return_exceptions=True)
        assert sum(isinstance(one, LoginDelayed) for one in found) >= 90

    asyncio.run(guess_at_once())
    assert len(compared) < 10


def test_invented_names_are_kept_short() -> None:
    users = Users({"ann": "secret"}, SetClock())
    assert not asyncio.run(users.has(header("x" * 30_000 + ":secret"), ADDRESS))
    kept = [*users._attempts._of_user._counts, *users._attempts._of_both._counts]
    assert all(len(name) < 300 for name in kept)


def test_a_delayed_login_is_told_how_long() -> None:
    users = Users({"ann": "secret"}, SetClock())
    app = make_app(SimpleNamespace(state=None), users=users)  # type: ignore[arg-type]

    async def ask(login: str, address: str) -> tuple[int, str | None]:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        headers = [(b"authorization", header(login).encode())]
        scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
        await app({**scope, "query_string": b"", "client": (address, 1)}, receive, send)
        answered = dict(sent[0]["headers"])
        return sent[0]["status"], answered.get(b"retry-after", b"").decode() or None

    async def scenario() -> None:
        for number in range(5):
            assert await ask(f"ann:{number}", ADDRESS) == (401, None)
        assert await ask("ann:secret", ADDRESS) == (429, "1")
        assert await ask("ann:secret", "10.0.0.2") == (200, None)

    asyncio.run(scenario())
