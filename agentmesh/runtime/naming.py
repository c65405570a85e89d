"""How an inbound stream learns its protocol: from the bytes that it was opened with, or from those that follow."""

from agentmesh.errors import StreamResetError
from agentmesh.runtime.multistream import MAX_MESSAGE_BYTES, Responder, opening_of
from agentmesh.runtime.registry import Protocol, ProtocolRegistry
from agentmesh.runtime.stream import MuxStream


def hear_name(stream: MuxStream, registry: ProtocolRegistry) -> tuple[Protocol | None, bytes]:
    """Take the protocol's name from what came with the stream, where it nearly always is.

    Returns:
        The protocol; or None, and what there is for a negotiation.
    """
    data = stream.read_arrived(MAX_MESSAGE_BYTES)
    if (protocol := registry.opened_by(data)) is not None:
        opening = opening_of(protocol.id)
        stream.agree(protocol.id, opening, data[len(opening) :])
    return protocol, data


async def wait_name(stream: MuxStream, responder: Responder, early: bytes = b"") -> None:
    """Learn the protocol, however long the peer takes. The answer leaves with the protocol's first bytes.

    Args:
        early: what has come already.
    Raises:
        RemoteProtocolError: the peer does not speak multistream.
        trio.BrokenResourceError: the stream ended first.
    """
    if early:
        _take(stream, responder, early)
    while responder.agreed is None:
        if answer := responder.data_to_send():
            await stream.send_all(answer)
        data = await stream.receive_some(MAX_MESSAGE_BYTES)
        if not data:
            raise StreamResetError("the peer ended the stream before it named a protocol")
        _take(stream, responder, data)


def _take(stream: MuxStream, responder: Responder, data: bytes) -> None:
    """Little is read at once: what else is behind the name stays in the window."""
    if (agreed := responder.receive_data(data)) is not None:
        stream.agree(agreed, responder.data_to_send(), responder.trailing())
