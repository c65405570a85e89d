"""The HTTP request that opens a WebSocket, read before the WebSocket library sees it.

So whoever is not a WebSocket client (a health check, a browser, a scanner) gets an answer at once and costs no more
than its request: 404 for another path, 426 when it asks for no upgrade, 400 or 431 for what is no HTTP or too much.
"""

from collections.abc import Set
from http import HTTPStatus

import h11
import trio

MAX_HEAD_BYTES = 16 * 1024
READ_BYTES = 4096
ROOT = b"/"  # where every other implementation of libp2p looks for the WebSocket


async def read_upgrade(stream: trio.abc.Stream, paths: Set[str]) -> bytes | None:
    """Read a request; answer it here unless it asks to upgrade, at one of `paths` or at the root.

    Returns:
        All bytes read, when it is for the WebSocket library to go on; None when the request has been answered, or the
        client left.
    """
    head = bytearray()
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    try:
        while not isinstance(event := parser.next_event(), h11.Request):
            if event is not h11.NEED_DATA:
                return None
            data = await stream.receive_some(READ_BYTES)
            parser.receive_data(bytes(data))
            head += data
    except h11.RemoteProtocolError as exc:
        await _answer(stream, HTTPStatus(exc.error_status_hint))
        return None
    status = _refusal(event, paths)
    if status is not None:
        await _answer(stream, status)
        return None
    return bytes(head)


def _refusal(request: h11.Request, paths: Set[str]) -> HTTPStatus | None:
    target = request.target.split(b"?")[0]
    if target != ROOT and target.decode("latin-1") not in paths:
        return HTTPStatus.NOT_FOUND
    if b"websocket" in [value.lower() for name, value in request.headers if name == b"upgrade"]:
        return None
    return HTTPStatus.NOT_FOUND if target == ROOT else HTTPStatus.UPGRADE_REQUIRED


async def _answer(stream: trio.abc.Stream, status: HTTPStatus) -> None:
    body = f"{status.value} {status.phrase}\n"
    upgrade = "Upgrade: websocket\r\n" if status is HTTPStatus.UPGRADE_REQUIRED else ""
    await stream.send_all(
        f"HTTP/1.1 {status.value} {status.phrase}\r\n{upgrade}Connection: close\r\n"
        f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
