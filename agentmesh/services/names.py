"""Host names of peers, `<label>.peer.mesh`, where the label is a spelling of the peer ID; and of services,
`<name>.<type>.mesh`, whoever serves them.

Host names know no upper case, and a base58 peer ID lives by it, so the canonical label is `PeerId.dns_label`. The other
spellings are taken too, as long as the URL is text: once a URL has been parsed its host is in lower case and a base58
ID is lost.
"""

import re

from agentmesh.errors import AddressError
from agentmesh.services.table import SERVICE_TYPES, ServiceKey
from agentmesh.types import PeerId

MESH = ".mesh"
SUFFIX = ".peer.mesh"
# The patterns by which httpx picks a transport.
MOUNTS = (f"all://*{SUFFIX}", *(f"all://*.{type}{MESH}" for type in sorted(SERVICE_TYPES)))

_HOST = re.compile(
    r"(?P<head>(?:[a-z][a-z0-9+.-]*:)?//(?:[^/?#@]*@)?)(?P<label>[^/?#@:]+)" + re.escape(SUFFIX) + r"(?=[:/?#]|$)", re.I
)
_LOST_BASE58 = re.compile(r"12d3koow[a-z0-9]{44}|qm[a-z0-9]{44}")


def host_name(peer: PeerId) -> str:
    """The host under which HTTP clients of the mesh reach `peer`."""
    return peer.dns_label + SUFFIX


def service_of_host(host: str) -> ServiceKey | None:
    """The service that a host name means; None when it means none. One with capitals in its name has no host name."""
    if not host.lower().endswith(MESH):
        return None
    name, _, type = host.lower().removesuffix(MESH).rpartition(".")
    return ServiceKey(type, name) if name and type in SERVICE_TYPES else None


def canonical_url(url: str) -> str:
    """`url` with its peer ID, if its host is one, spelt so that it survives being parsed."""
    found = _HOST.match(url)
    if found is None:
        return url
    try:
        label = PeerId.parse(found["label"]).dns_label
    except AddressError:
        return url  # peer_of_host says what is wrong with it
    return f"{found['head']}{label}{SUFFIX}{url[found.end() :]}"


def peer_of_host(host: str) -> PeerId:
    """The peer that a host name means.

    Raises:
        AddressError: the host is none of ours, or its label is no peer ID any more.
    """
    label = host.lower().removesuffix(SUFFIX)
    if _LOST_BASE58.fullmatch(label):
        raise AddressError(
            f"{host}: a base58 peer ID does not survive the lower case of host names; "
            "give the URL as text, or write PeerId.dns_label in it"
        )
    return PeerId.parse(label)
