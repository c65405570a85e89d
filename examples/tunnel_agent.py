"""Lead members of the mesh to a server beside this program, as the agent `greeter`.

agentmesh one                                                             # in a terminal of its own
python examples/tunnel_agent.py http://127.0.0.1:8080 mesh/join-token     # prints the target that it leads to
"""

import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

from agentmesh.agent import AccessPolicy, AgentConfig, AgentProcessConfig, open_agent, rule_of
from agentmesh.membership import Enrollment


async def greet(stream: trio.SocketStream) -> None:
    """A server like any other: it knows of no mesh."""
    async for part in stream:
        await stream.send_all(b"Hello, " + part)


async def main(control_plane: str, token: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(partial(trio.serve_tcp, greet, 0, host="127.0.0.1"))
            target = f"tcp://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            config = AgentProcessConfig(
                enrollment=Enrollment(control_plane=control_plane, token=token),
                agent=AgentConfig(id="greeter"),
                access=AccessPolicy((rule_of(target),)),  # and nothing else
                state_dir=Path(folder),  # one that stays keeps its key, and needs the token once
            )
            async with open_agent(config):
                print(target, flush=True)
                await trio.sleep_forever()


if __name__ == "__main__":
    try:
        trio.run(main, sys.argv[1], Path(sys.argv[2]).read_text().strip())
    except* KeyboardInterrupt:
        pass
