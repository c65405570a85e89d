"""A protocol is listed before its host exists; this is where it finds the host later."""

import trio

from agentmesh.runtime.host import Host


class Binding:
    """A host to be, and then the host."""

    def __init__(self) -> None:
        self._bound = trio.Event()
        self._host: Host

    def bind(self, host: Host) -> None:
        self._host = host
        self._bound.set()

    async def wait_host(self) -> Host:
        """The host, once it is open. Streams may come in the moment before a protocol's `run` is called."""
        await self._bound.wait()
        return self._host

    @property
    def host(self) -> Host:
        """The host, for those who run after `wait_host`."""
        return self._host
