"""The demo's picture: whole at every width, in the characters that there are; elsewhere a line for each event."""

import io
from collections.abc import Callable
from typing import cast

import pytest
from rich.console import Console

from agentmesh.demo.mesh import PLAYERS
from agentmesh.demo.scene import Path
from agentmesh.demo.screen import MAX_WIDTH, Screen
from agentmesh.demo.story import ACTS
from agentmesh.demo.view import View

MIB = 2**20


def clock() -> Callable[[], float]:
    """A second passes from one look to the next."""
    seconds = iter(range(1_000_000))
    return lambda: float(next(seconds))


def console(width: int, encoding: str = "utf-8", *, terminal: bool = True) -> Console:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    return Console(file=file, width=width, force_terminal=terminal, no_color=True, legacy_windows=False)


def shown(console: Console) -> str:
    file = cast("io.TextIOWrapper[io.BytesIO]", console.file)
    file.flush()
    return file.buffer.getvalue().decode(file.encoding)


def view(console: Console, *, animated: bool) -> View:
    return View(console, animated, clock(), PLAYERS, ACTS)


def play(view: View) -> None:
    """The demo up to the middle of its second act."""
    for name, _ in PLAYERS:
        view.started(name, 4_000_000)
    for name in ("control-plane", "router-1", "router-2"):
        view.up(name)
    for name in ("provider", "reader", "agent"):
        view.attached(name, ["router-1", "router-2"], "ws")
    view.began("tcp")
    view.relayed(Path("reader", "router-1", "provider"))
    for done in (10, 100, 130, 256):
        view.progressed("tcp", done * MIB, 256 * MIB, 4.0)
    view.held("tcp", "SHA-256 equal")
    view.began("ws")
    view.progressed("ws", 4000 * MIB, 4096 * MIB, 40.0)


def picture(width: int, encoding: str = "utf-8", prepare: Callable[[View], None] = play) -> str:
    scene = view(console(width), animated=True)
    prepare(scene)
    paper = console(width, encoding, terminal=False)
    paper.print(Screen(scene.scene, 12.3))
    return shown(paper)


@pytest.mark.parametrize("width", [30, 34, 45, 46, 50, 69, 70, 77, 78, 80, 87, 88, 100, 101, 250])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_it_fits_and_names_everybody(width: int, encoding: str) -> None:
    lines = picture(width, encoding).splitlines()
    assert max(map(len, lines)) <= min(width, MAX_WIDTH)
    for name, _ in PLAYERS:
        assert any(name in line for line in lines)
    words = " ".join(" ".join(lines).split())
    assert "256 of 256 MiB" in words
    assert "67.1 MB/s SHA-256 equal" in words
    assert "encrypted end to end: router-1 carries it and has no key to it" in words


def test_a_wide_terminal_shows_all_there_is() -> None:
    text = picture(100)
    for told in ("4000000", "relays what it cannot read", "router-1, router-2", "WebSocket", "12 s"):
        assert told in text
    assert "✔ 1  The reader downloads" in text
    assert "▶ 2  The reader downloads" in text
    assert "· 3  The agent asks" in text


def test_before_anything_happens_it_says_how_members_are_reached() -> None:
    assert "Nobody dials a member" in picture(100, prepare=lambda view: None)


def test_what_was_under_way_is_marked_when_it_breaks_off() -> None:
    def break_off(view: View) -> None:
        play(view)
        view.ended("router-1")
        view.broke_off()

    text = picture(100, prepare=break_off)
    assert "✘ router-1" in text
    assert "✘ 2  The reader downloads" in text
    assert "✔ 1  The reader downloads" in text


def test_a_terminal_keeps_the_last_picture() -> None:
    terminal = console(100)
    animated = view(terminal, animated=True)
    with animated.shown():
        play(animated)
    text = shown(terminal)
    assert text.endswith("\n\x1b[?25h\n")  # the cursor is back, a line further down
    assert "4000 of 4096 MiB" in text
    assert "\x1b[3" not in text.replace("\x1b[39m", "")  # no colour was asked for


def test_elsewhere_each_event_is_a_line() -> None:
    paper = console(40, terminal=False)
    plain = view(paper, animated=False)
    with plain.shown():
        play(plain)
        plain.ended("agent")
    lines = shown(paper).splitlines()
    assert len(lines) == 1 + 6 + 3 + 3 + 2 + 2 + 1 + 1 + 1 + 1  # a download is told at its quarters
    assert all(line.isascii() for line in lines)
    assert lines[0].startswith("agentmesh demo: ")
    assert [line for line in lines if line.endswith("provider       attached to router-1, router-2 over WebSocket")]
    assert lines[-1].endswith("agent          ended")
