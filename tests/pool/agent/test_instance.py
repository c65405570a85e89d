import logging
from pathlib import Path

import pytest

from agentmesh.pool.agent.config import ConfigError
from agentmesh.pool.agent.instance import INSTANCE_FILE, load_instance, make_connection_id
from agentmesh.protocols.pool.fields import is_identifier


def test_a_restart_keeps_the_id_and_not_the_boot(tmp_path: Path) -> None:
    first, second = load_instance(tmp_path / "state"), load_instance(tmp_path / "state")
    assert first.instance_id == second.instance_id
    assert is_identifier(first.instance_id)
    assert first.boot != second.boot
    assert (first.is_kept, second.is_kept) == (True, True)
    assert [path.name for path in (tmp_path / "state").iterdir()] == [INSTANCE_FILE]


def test_a_configured_id_is_taken(tmp_path: Path) -> None:
    assert load_instance(tmp_path, "devbox-7").instance_id == "devbox-7"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError):
        load_instance(tmp_path, "dev box")


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"two words\n", b"../etc", b"x" * 1000])
def test_a_damaged_file_is_replaced_with_a_warning(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / INSTANCE_FILE).write_bytes(data)
    with caplog.at_level(logging.WARNING):
        fresh = load_instance(tmp_path)
    assert "damaged" in caplog.text
    assert load_instance(tmp_path).instance_id == fresh.instance_id
    assert fresh.is_kept


def test_where_nothing_can_be_kept_there_is_a_fresh_id_and_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        first, second = (load_instance(tmp_path / "file" / "below") for _ in range(2))
    assert first.instance_id != second.instance_id
    assert not first.is_kept
    assert "cannot be kept" in caplog.text


def test_of_two_that_are_first_at_once_both_have_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / INSTANCE_FILE).write_text("inst-other\n")
    real_open = open
    misses = [FileNotFoundError()]

    def open_too_early(path: object, mode: str = "r") -> object:
        if misses:
            raise misses.pop()
        return real_open(path, mode)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", open_too_early)
    assert load_instance(tmp_path).instance_id == "inst-other"


def test_every_dial_has_an_id_of_its_own() -> None:
    ids = {make_connection_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(map(is_identifier, ids))
