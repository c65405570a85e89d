"""The files that outlive a process: whose they are, that they are whole, and what is said of others."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmesh.credentials import TrustedKeys
from agentmesh.errors import IdentityError
from agentmesh.membership.state import CREDENTIAL_FILE, IDENTITY_FILE, SavedCredential, StateDir, StateError

KEYS = TrustedKeys(frozenset({b"1" * 32, b"2" * 32}))
SAVED = SavedCredential("http://cp", b"the token itself", 1_800_000_000.0, KEYS)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "new" / "state")
    assert state.load() is None
    state.save(SAVED)
    assert state.load() == SAVED


def test_the_folder_and_its_files_are_the_owners_alone(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "state")
    state.save(SAVED)
    identity = state.identity()
    assert state.identity() == identity
    assert mode(state.path) == 0o700
    assert [mode(state.path / name) for name in (CREDENTIAL_FILE, IDENTITY_FILE)] == [0o600, 0o600]


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.identity()
    (tmp_path / IDENTITY_FILE).chmod(0o644)
    with pytest.raises(IdentityError, match=IDENTITY_FILE):
        state.identity()


def test_saving_replaces_the_whole_file_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateDir(tmp_path)
    state.save(SAVED)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=f"No space left on device: '.*{CREDENTIAL_FILE}'"):
        state.save(SavedCredential("http://cp", b"another", 1.0, TrustedKeys()))
    monkeypatch.undo()
    assert state.load() == SAVED
    assert os.listdir(tmp_path) == [CREDENTIAL_FILE]


def test_a_full_disk_says_which_key_was_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left on device: '.*identity.key'"):
        StateDir(tmp_path).identity()
    assert os.listdir(tmp_path) == []


def test_the_token_is_in_no_repr() -> None:
    assert "token itself" not in repr(SAVED)


def without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda fields: {key: value for key, value in fields.items() if key != name}


def with_value(name: str, value: object) -> Callable[[dict[str, Any]], Any]:
    return lambda fields: fields | {name: value}


DAMAGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a list": lambda fields: [fields],
    "a number": lambda fields: 7,
    "null": lambda fields: None,
    "no token": without("token"),
    "one field more": with_value("more", 1),
    "a token that is no base64": with_value("token", "*"),
    "a token that is a number": with_value("token", 7),
    "an expiry of text": with_value("expires_at", "soon"),
    "an expiry that is no number": with_value("expires_at", float("nan")),
    "an expiry beyond numbers": with_value("expires_at", 10**400),
    "no keys": with_value("trusted_keys", None),
    "keys that are no hex": with_value("trusted_keys", ["xyz"]),
    "a short key": with_value("trusted_keys", ["00"]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, damage: Callable[[dict[str, Any]], Any]) -> None:
    state = StateDir(tmp_path)
    state.save(SAVED)
    path = tmp_path / CREDENTIAL_FILE
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    with pytest.raises(StateError, match=str(path)):
        state.load()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200) | st.integers(1000, 5000).map(lambda depth: b"[" * depth))
def test_garbage_raises_nothing_else(tmp_path: Path, data: bytes) -> None:
    (tmp_path / CREDENTIAL_FILE).write_bytes(data)
    with pytest.raises(StateError):
        StateDir(tmp_path).load()


def test_a_file_that_cannot_be_read_is_the_systems_error(tmp_path: Path) -> None:
    (tmp_path / CREDENTIAL_FILE).mkdir()
    with pytest.raises(IsADirectoryError, match=CREDENTIAL_FILE):
        StateDir(tmp_path).load()
