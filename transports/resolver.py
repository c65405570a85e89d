"""Asks DNS servers for texts: what the system's own resolver does not give."""

import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from agentmesh.errors import AddressError, DialError, RemoteProtocolError
from agentmesh.transports.dns import MAX_MESSAGE_BYTES, NO_SUCH_NAME, TxtAnswer, decode_answer, encode_question

SERVER_VARIABLE = "AGENTMESH_TEST_DNS_SERVER"  # host:port of the one server to ask, instead of the system's
RESOLV_CONF = Path("/etc/resolv.conf")
DNS_PORT = 53
ATTEMPT_TIMEOUT = 2.0  # seconds for one server to answer once
ATTEMPTS = 2  # at each server
MAX_SERVERS = 3

Server = tuple[str, int]


def system_servers() -> list[Server]:
    """Those that the machine is set to ask; none when it does not say."""
    try:
        lines = RESOLV_CONF.read_text(errors="replace").splitlines()
    except OSError:
        return []
    words = [line.split() for line in lines]
    return [(word[1], DNS_PORT) for word in words if len(word) > 1 and word[0] == "nameserver"][:MAX_SERVERS]


def servers_from_environment() -> Callable[[], Sequence[Server]]:
    """The servers to ask: what SERVER_VARIABLE says now, else those of the system as they are then.

    Raises:
        AddressError: it is not host:port.
    """
    text = os.environ.get(SERVER_VARIABLE, "")
    if not text:
        return system_servers
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise AddressError(f"{SERVER_VARIABLE} is host:port, not {text!r}")
    servers = [(host.strip("[]"), int(port))]
    return lambda: servers


async def find_texts(name: str, servers: Sequence[Server]) -> tuple[str, ...]:
    """The TXT records of a name; none when there is no such name.

    Args:
        name: in ASCII.
        servers: asked one after another.
    Raises:
        DialError: none of them answered, or it is no name.
    Cancellation: safe; no socket is left.
    """
    try:
        question = encode_question(secrets.randbits(16), name)
    except ValueError as exc:
        raise DialError(str(exc)) from exc
    reason = "no server to ask"
    for server in [server for server in servers for _ in range(ATTEMPTS)]:
        reason = f"no answer from {server[0]}"
        with trio.move_on_after(ATTEMPT_TIMEOUT):
            try:
                answer = await _ask(server, question)
            except (OSError, RemoteProtocolError, trio.BrokenResourceError) as exc:
                reason = f"{server[0]}: {exc}"
                continue
            if answer.code in (0, NO_SUCH_NAME):
                return answer.texts
            reason = f"{server[0]} answers with error {answer.code}"
    raise DialError(f"cannot look up {name}: {reason}")


async def _ask(server: Server, question: bytes) -> TxtAnswer:
    answer = await _ask_by_datagram(server, question)
    return await _ask_by_stream(server, question) if answer.is_truncated else answer


async def _ask_by_datagram(server: Server, question: bytes) -> TxtAnswer:
    family = trio.socket.AF_INET6 if ":" in server[0] else trio.socket.AF_INET
    with trio.socket.socket(family, trio.socket.SOCK_DGRAM) as socket:
        await socket.connect(server)
        await socket.send(question)
        while True:
            data = await socket.recv(MAX_MESSAGE_BYTES)
            try:
                return decode_answer(data, question)
            except RemoteProtocolError:
                continue  # not from the server, or not to us: the right one may come yet


async def _ask_by_stream(server: Server, question: bytes) -> TxtAnswer:
    async with await trio.open_tcp_stream(*server) as stream:
        await stream.send_all(len(question).to_bytes(2, "big") + question)
        size = int.from_bytes(await _exactly(stream, 2), "big")
        return decode_answer(await _exactly(stream, size), question)


async def _exactly(stream: trio.SocketStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = await stream.receive_some(size - len(data))
        if not piece:
            raise RemoteProtocolError("a DNS answer that is not whole")
        data += piece
    return data
