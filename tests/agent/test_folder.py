"""Two processes in one data folder."""

import logging
from pathlib import Path

import pytest

from agentmesh.agent.folder import hold_folder


def test_the_second_in_a_folder_hears_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with hold_folder(tmp_path):
        assert caplog.text == ""
        with hold_folder(tmp_path):
            assert [(one.levelname, one.message) for one in caplog.records] == [
                ("WARNING", "another process runs in this data folder")
            ]
    caplog.clear()
    with hold_folder(tmp_path):
        assert caplog.text == ""


def test_a_file_system_without_locks_is_good_enough(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with caplog.at_level(logging.INFO), hold_folder(tmp_path):
        assert caplog.text == ""


def test_a_folder_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), hold_folder(tmp_path / "none"):
        pass
