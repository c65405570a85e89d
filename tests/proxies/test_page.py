"""What docs/proxies.md says in numbers is so."""

import re

import pytest

from agentmesh.runtime.config import SOURCE_SHARE, ConnectionLimits, SessionConfig
from agentmesh.transports.websocket_stream import MESSAGE_BYTES
from tests.proxies.proxies import BLOCKS, NGINX_FILE, PAGE
from tests.proxies.site import HAPROXY_FILES, NGINX, WAYS, Way

TEXT = PAGE.read_text()
FILES = {NGINX: NGINX_FILE, **HAPROXY_FILES}
TIMEOUTS: list[tuple[str, str, str]] = re.findall(r"^\| (nginx|HAProxy) \| `([\w ]+)` \| (\d+) \|$", TEXT, re.MULTILINE)


@pytest.mark.parametrize(("program", "setting", "seconds"), TIMEOUTS)
def test_the_keep_alive_is_well_below_the_timeouts_of_proxies(program: str, setting: str, seconds: str) -> None:
    """Twice: so that a ping may come late."""
    assert 2 * SessionConfig().ping_interval < int(seconds)
    if program == "HAProxy":
        assert all(f"{setting} {seconds}s" in BLOCKS[file] for file in HAPROXY_FILES.values())


def test_every_row_and_every_file_was_read() -> None:
    assert {program for program, _, _ in TIMEOUTS} == {"nginx", "HAProxy"}
    assert len(TIMEOUTS) == len(re.findall(r"^\| (?:nginx|HAProxy) ", TEXT, re.MULTILINE))
    assert set(BLOCKS) == set(FILES.values())


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_files_say_which_address_is_dialled_where(way: Way) -> None:
    assert f"# /dns4/{way.name}/tcp/443{way.suffix}\n" in BLOCKS[FILES[way.proxy]]


def test_our_own_numbers() -> None:
    assert f"pings every {SessionConfig().ping_interval:.0f} seconds" in TEXT
    assert f"WebSocket message of ours is {MESSAGE_BYTES // 1024} KiB" in TEXT
    assert f"{ConnectionLimits().max_handshakes_per_source} handshakes of one source" in TEXT
    assert SOURCE_SHARE == 0.25
    assert "by default a quarter of `--high-watermark`" in TEXT
