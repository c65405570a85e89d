"""Whether a peer can be dialled at an address: a dial that nothing comes of.

A host has one session to a peer, and new streams take the newest. So a probe is made under an identity of its own: what
it leaves at the other end, for a moment, is a stranger's session, and disturbs nothing.
"""

from collections.abc import Sequence

import trio

from agentmesh.abc import Transport
from agentmesh.runtime.tls import TlsContext
from agentmesh.runtime.upgrade import HANDSHAKE_ERRORS, upgrade_outbound
from agentmesh.types import Address, PeerId


class Prober:
    """Dials addresses, and leaves again.

    Args:
        transports: the first that can dial an address does.
        security: an identity that no host has.
        timeout: seconds for one dial, the handshake included.
    """

    def __init__(self, transports: Sequence[Transport], security: TlsContext, timeout: float) -> None:
        self._transports = transports
        self._security = security
        self._timeout = timeout

    async def probe(self, peer: PeerId, address: Address) -> bool:
        """Whether somebody answers at an address, and proves that it is `peer`.

        Cancellation: safe; no connection is left.
        """
        transport = next((one for one in self._transports if one.can_dial(address)), None)
        if transport is None:
            await trio.lowlevel.checkpoint()
            return False
        try:
            with trio.fail_after(self._timeout):
                async with transport.dial(address) as stream:
                    upgraded = await upgrade_outbound(stream, self._security, peer, address.tls_name)
                    await upgraded.link.aclose()
        except HANDSHAKE_ERRORS:
            return False
        return True
