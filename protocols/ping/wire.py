"""A ping is 32 bytes without any framing (libp2p specification "ping")."""

import attrs

from agentmesh.errors import RemoteProtocolError
from agentmesh.types import ProtocolId

PING_ID = ProtocolId("/ipfs/ping/1.0.0")
PING_BYTES = 32
MAX_STREAMS_PER_PEER = 2


@attrs.define
class PingReader:
    """Cuts a byte stream into pings, however it was split."""

    _rest: bytes = b""

    def feed(self, data: bytes) -> bytes:
        """Take bytes; give those of all the pings that are now complete, one behind the other."""
        data = self._rest + data
        whole = len(data) - len(data) % PING_BYTES
        self._rest = data[whole:]
        return data[:whole]

    def finish(self) -> None:
        """Raises RemoteProtocolError when the stream ends inside a ping."""
        if self._rest:
            raise RemoteProtocolError(f"the stream ended {len(self._rest)} bytes into a ping")
