"""What floodsub allows a peer, and what each number defends against."""

import attrs

from agentmesh.protocols.floodsub.events import Role
from agentmesh.runtime.yamux import Allowance

MIB = 1024 * 1024


@attrs.frozen
class PeerLimits:
    """What one peer may do; beyond one of these it loses its streams. The numbers are a member's."""

    max_messages: Allowance = Allowance(burst=512, per_second=128)
    """RPCs, or the messages in them if those are more."""
    max_bytes: Allowance = Allowance(burst=4_000_000, per_second=500_000)
    """What it sends, all together."""
    max_changes: Allowance = Allowance(burst=1024, per_second=8)
    """Subscriptions and their ends: each may have to be told to every router."""
    max_rejected: Allowance = Allowance(burst=16, per_second=0.1)
    """Messages that are well signed, and that the validator rejects all the same."""
    max_subscriptions: int = 128
    """Topics that it subscribes to at once."""


ROUTER_LIMITS = PeerLimits(  # a router sends what all its members send
    max_messages=Allowance(burst=65536, per_second=16384),
    max_bytes=Allowance(burst=256_000_000, per_second=64_000_000),
    max_changes=Allowance(burst=65536, per_second=1024),
    max_rejected=Allowance(burst=4096, per_second=16),
    max_subscriptions=4096,
)


@attrs.frozen
class FloodsubLimits:
    """The bounds of one host's floodsub."""

    member: PeerLimits = PeerLimits()
    """What a leaf may do."""
    router: PeerLimits = ROUTER_LIMITS
    """What another router may do."""
    max_links: int = 8192
    """Peers that are linked at once."""
    max_topics: int = 4096
    """Topics that somebody subscribes to at once."""
    max_rpc_bytes: int = 256 * 1024
    """The longest RPC that is taken."""
    max_message_bytes: int = 64 * 1024
    """The longest message that is taken, all its fields together."""
    max_outbox_bytes: int = 2 * MIB
    """What may wait for a peer that is slow to take it. Then the peer loses its streams."""
    max_outbox_messages: int = 4096
    """The same, counted in messages."""
    max_seen: int = 65536
    """Messages that are known again; beyond it the oldest are forgotten before their time."""
    seen_ttl: float = 600.0
    """Seconds that a message is known again: twice as long as an event counts as fresh, ahead or behind."""
    send_timeout: float = 30.0
    """Seconds that a peer may take nothing of what is being sent to it."""

    def of(self, role: Role) -> PeerLimits:
        """What a peer of this role may do."""
        return self.router if role is Role.ROUTER else self.member
