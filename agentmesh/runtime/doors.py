"""Connections that do not become sessions: a protocol may take those that begin with a byte of its own."""

from collections.abc import Awaitable, Callable, Iterable, Mapping

import attrs
import trio

from agentmesh.abc import ByteStream
from agentmesh.errors import LimitExceededError

TAKEN = {0x13: "multistream-select", 0x16: "TLS"}  # how sessions begin


@attrs.frozen
class Door:
    """A way into a host beside its sessions.

    Who comes through it is a stranger: nothing has been proved. The host has read the preamble, within its bounds on
    handshakes, and counts the connection no more. `serve` owns it from there, must not raise for what the peer does,
    and the connection closes when it returns.

    Attributes:
        first_byte: how such a connection begins.
        preamble_bytes: how long its first message is, that byte included; whoever sends more before he is answered is
            turned away.
        timeout: seconds in which it has to come.
        serve: `serve(stream, preamble)`.
    """

    first_byte: int
    preamble_bytes: int
    timeout: float
    serve: Callable[[ByteStream, bytes], Awaitable[None]]


@attrs.frozen
class Visitor:
    """A connection that has come through a door."""

    door: Door
    preamble: bytes


def doors_by_byte(doors: Iterable[Door]) -> Mapping[int, Door]:
    """Raises ValueError when two begin alike, or one as sessions do."""
    found: dict[int, Door] = {}
    for door in doors:
        if door.first_byte in found or door.first_byte in TAKEN:
            raise ValueError(f"two things begin with the byte {door.first_byte:#x}")
        found[door.first_byte] = door
    return found


async def read_preamble(stream: ByteStream, early: bytes | bytearray, door: Door) -> Visitor:
    """The first message of a connection for this door.

    Args:
        early: what has come of it.
    Raises:
        TooSlowError: the rest did not come in time.
        BrokenResourceError: the peer left.
        LimitExceededError: it sent more.
    """
    preamble = bytes(early)
    with trio.fail_after(door.timeout):
        while len(preamble) < door.preamble_bytes:
            data = await stream.receive_some(door.preamble_bytes - len(preamble))
            if not data:
                raise trio.BrokenResourceError("the peer left before it had said what it wants")
            preamble += data
    if len(preamble) > door.preamble_bytes:
        raise LimitExceededError(f"more than {door.preamble_bytes} bytes", limit="preamble_bytes")
    return Visitor(door, preamble)
