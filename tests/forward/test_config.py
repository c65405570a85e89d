"""What the settings allow, and the file with the password."""

from pathlib import Path
from typing import Any

import pytest

from agentmesh.forward import BindAddress, Forward, ForwardConfig
from agentmesh.forward.credentials import Credentials
from agentmesh.membership import StateError
from tests.forward.worlds import ANY_PORT, NODE, TARGET

REMOTE = [BindAddress(host, 1080) for host in ("0.0.0.0", "::", "192.0.2.1", "router.example", "127.0.0.1.example")]
LOCAL = [BindAddress(host, 1080) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")]
PATH = Path("password")


def configured(**settings: Any) -> ForwardConfig:
    chosen: dict[str, Any] = {"node": NODE, "agent": "devbox", **settings}
    return ForwardConfig(**chosen)


@pytest.mark.parametrize("listen", LOCAL, ids=str)
def test_this_machine_may_be_listened_on(listen: BindAddress) -> None:
    configured(forwards=(Forward(listen, TARGET),), socks=listen, http_proxy=listen)


@pytest.mark.parametrize("listen", REMOTE, ids=str)
def test_other_machines_are_let_in_only_when_that_is_said(listen: BindAddress) -> None:
    forwards = (Forward(listen, TARGET),)
    for settings in ({"forwards": forwards}, {"socks": listen}, {"http_proxy": listen}):
        with pytest.raises(ValueError, match="other machines may reach that"):
            configured(**settings)
        configured(**settings, allow_remote=True)
    configured(socks=listen, http_proxy=listen, password_path=PATH)


def test_a_password_of_the_proxies_lets_nobody_into_a_plain_port() -> None:
    with pytest.raises(ValueError, match="other machines may reach that"):
        configured(forwards=(Forward(REMOTE[0], TARGET),), socks=ANY_PORT, password_path=PATH)


def test_a_password_that_nobody_would_ask_for_is_refused() -> None:
    with pytest.raises(ValueError, match="there is none"):
        configured(forwards=(Forward(ANY_PORT, TARGET),), password_path=PATH)


@pytest.mark.parametrize("agent", ["", "a b", "-devbox", "tcp://h:1", "a" * 129])
def test_an_agent_that_cannot_be_called_so_is_refused(agent: str) -> None:
    with pytest.raises(ValueError, match="is no agent's ID"):
        configured(agent=agent, socks=ANY_PORT)


def write(folder: Path, data: bytes, mode: int = 0o600) -> Path:
    path = folder / "password"
    path.touch(mode)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"me:secret", Credentials(b"me", b"secret")),
        (b"me:secret\n", Credentials(b"me", b"secret")),
        (b"me:se cret:word\r\n", Credentials(b"me", b"se cret:word")),
        (b"u" * 255 + b":" + b"p" * 255, Credentials(b"u" * 255, b"p" * 255)),
    ],
)
def test_a_file_holds_a_user_and_a_password(data: bytes, expected: Credentials, tmp_path: Path) -> None:
    assert Credentials.load(write(tmp_path, data)) == expected


@pytest.mark.parametrize(
    "data", [b"", b"me", b":secret", b"me:", b"me:a\nyou:b", b"u" * 256 + b":p", b"u:" + b"p" * 256]
)
def test_a_file_that_holds_none_is_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="holds no user:password"):
        Credentials.load(write(tmp_path, data))


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(Credentials(b"me", b"secret"))
