"""Ping, `/ipfs/ping/1.0.0`: how long is the way to a peer and back?

    dialer                         listener
      | 32 bytes, chosen at random ->|
      |<- the same 32 bytes          |
      | ... as often as it likes     |
      | end of stream ------------- >| ends its side too

Source: libp2p specification "ping". Two streams a peer may be open at once; one on which nothing comes for a minute is
ended. The keep-alive of a session is yamux's ping and not this one: this one says what a stream feels.
"""

from agentmesh.protocols.ping.driver import ping, protocol
from agentmesh.protocols.ping.wire import PING_ID

__all__ = ["PING_ID", "ping", "protocol"]
