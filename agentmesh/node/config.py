"""Every setting of a node, with its unit and default."""

from collections.abc import Mapping
from pathlib import Path

import attrs
from attrs import validators

from agentmesh.membership import Enrollment
from agentmesh.node.reachability import Reachability
from agentmesh.runtime.config import ConnectionLimits, HostConfig
from agentmesh.types import Address

NODE_CONNECTIONS = ConnectionLimits(high_watermark=400, low_watermark=100)


@attrs.frozen(kw_only=True)
class NodeConfig:
    """Settings of one node. ValueError when one of them is out of range."""

    enrollment: Enrollment
    """How it gets into the mesh."""
    state_dir: Path | None = None
    """Where its key and credential are kept; None makes a new identity that ends with the process."""
    listen: tuple[Address, ...] = ()
    """Where it listens itself. A node behind a NAT has nothing here: its routers make it reachable."""
    reachability: Reachability = attrs.field(default=Reachability.PRIVATE, converter=Reachability)
    """What it makes of these: "private" tells them as they are, "auto" those at which its routers reach it. With "auto"
    it also dials others directly, where they say that they can be.
    """
    routers: int = attrs.field(default=2, validator=validators.ge(1))
    """How many routers it is attached to; every router when there are fewer."""
    router_selector: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """What a router must be attested for the node to attach to it, every pair of it."""
    router_prefer: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """What puts a router before others, the more pairs of it the sooner; among equals the one with more room."""
    require_labels: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """What every member must be attested that this node calls over HTTP, every pair of it."""
    monitor_interval: float = attrs.field(default=60.0, validator=validators.gt(0))
    """Seconds between two looks at the control plane's list while routers are missing; the first come sooner."""
    ready_timeout: float = attrs.field(default=10.0, validator=validators.ge(0))
    """Seconds that opening waits for a first router. Without one the node goes on trying, and calls answer 503."""
    idle_timeout: float = attrs.field(default=300.0, validator=validators.gt(0))
    """Seconds without a stream after which a session is closed that a call was made over; infinite for never. Those to
    the routers that it is attached to stay.
    """
    data_path: bool = True
    """Whether circuits may have TCP connections of their own, where routers and the other ends have them too."""
    host: HostConfig = HostConfig(connections=NODE_CONNECTIONS)
    """Sessions and connections."""
