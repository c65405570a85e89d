"""Who is given which messages: by how we take part, and by where a message comes from.

Members are leaves: what one publishes goes to the routers that it holds, and they pass it on to their members and to
each other. Nobody is given a message twice over one link, nor the one who sent or wrote it.
"""

import enum

from agentmesh.protocols.floodsub.events import Role


class Source(enum.Enum):
    """Where a message comes from."""

    SELF = "us"
    LEAF = "a leaf"
    ROUTER = "a router"


class Reach(enum.Enum):
    """Which of the links of a role a message goes to."""

    NONE = "none"
    SUBSCRIBED = "those that subscribe"
    ALL = "all"


_NONE, _SUBS, _ALL = Reach
# fmt: off
ROWS: dict[tuple[Role, Source], tuple[Reach, ...]] = {
    # we, and the source           leaves routers
    (Role.LEAF, Source.SELF):     (_NONE, _ALL),
    (Role.LEAF, Source.LEAF):     (_NONE, _NONE),
    (Role.LEAF, Source.ROUTER):   (_NONE, _NONE),
    (Role.ROUTER, Source.SELF):   (_SUBS, _SUBS),
    (Role.ROUTER, Source.LEAF):   (_SUBS, _SUBS),
    (Role.ROUTER, Source.ROUTER): (_SUBS, _SUBS),
}
# fmt: on
REACHES = {  # of each source, which roles are given everything, and which what they subscribe to
    key: tuple(frozenset(role for role, one in zip(Role, row, strict=True) if one is reach) for reach in (_ALL, _SUBS))
    for key, row in ROWS.items()
}
SOURCES = {Role.LEAF: Source.LEAF, Role.ROUTER: Source.ROUTER}
