"""The checked-in message classes are what the definitions say."""

from pathlib import Path

import pytest

from agentmesh.wire import generate


def test_checked_in_messages_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0, capsys.readouterr().out


def test_check_prints_what_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "MESSAGES", tmp_path)
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    (tmp_path / "mesh/v1/__init__.py").write_text("stale = True\n")
    (tmp_path / "py.typed").unlink()
    (tmp_path / "left_over.py").write_text("old = True\n")
    assert generate.main(["--check"]) == 1
    printed = capsys.readouterr().out
    assert "-stale = True\n" in printed
    assert "+class AuthFrame(betterproto2.Message):\n" in printed
    assert "-old = True\n" in printed
    assert "missing: py.typed\n" in printed
