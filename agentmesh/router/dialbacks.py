"""A router's dial-backs: whether a member can be dialled at the address that its session comes from."""

from collections.abc import Callable, Sequence

from agentmesh.abc import Transport
from agentmesh.identity import Identity
from agentmesh.protocols.dialback import DialBack, ip_of
from agentmesh.router.config import RouterConfig
from agentmesh.runtime.probe import Prober
from agentmesh.runtime.tls import TlsContext


def make_dial_back(
    config: RouterConfig, transports: Sequence[Transport], security: Callable[[Identity], TlsContext]
) -> DialBack:
    """Dials by the router's transports, under an identity that is nobody's.

    Members are dialled at the loopback only where the router itself is reached there and nowhere else.
    """
    prober = Prober(transports, security(Identity.generate()), config.host.handshake_timeout)
    own = [ip_of(address) for address in config.external_addresses or config.listen]
    local = bool(own) and all(ip is not None and ip.is_loopback for ip in own)
    return DialBack(prober.probe, loopback=local)
