"""What a transport owes the handler of a connection."""

from agentmesh.abc import ByteStream, StreamHandler
from agentmesh.types import Address


async def run_handler(handler: StreamHandler, stream: ByteStream, source: Address | None) -> None:
    """One accepted connection: open for as long as its handler runs."""
    async with stream:
        await handler(stream, source)
