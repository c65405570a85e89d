"""Open a tunnel through an agent: `tunnel_agent.py` prints the target.

python examples/tunnel_client.py http://127.0.0.1:8080 mesh/join-token tcp://127.0.0.1:40123
"""

import sys
from pathlib import Path

import trio

import agentmesh
from agentmesh.abc import Stream
from agentmesh.node import TunnelError


async def open_tunnel(node: agentmesh.Node, target: str) -> Stream:
    """Tried again for as long as that may help: an agent that has just been started is not connected yet."""
    while True:
        try:
            return await node.open_tunnel("greeter", target)
        except TunnelError as exc:
            if not exc.retryable:
                raise
            await trio.sleep(exc.retry_after or 1.0)


async def main(control_plane: str, token: str, target: str) -> None:
    async with agentmesh.open_node(control_plane, token) as node, await open_tunnel(node, target) as stream:
        await stream.send_all(b"world")
        await stream.send_eof()  # our way alone: the answer comes the other
        print(b"".join([part async for part in stream]).decode())


if __name__ == "__main__":
    trio.run(main, sys.argv[1], Path(sys.argv[2]).read_text().strip(), sys.argv[3])
