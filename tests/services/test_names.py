import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import AddressError
from agentmesh.services import canonical_url, host_name, peer_of_host
from agentmesh.types import PeerId

PEERS = st.binary(min_size=32, max_size=32).map(PeerId.from_ed25519)
PEER = PeerId.from_ed25519(bytes(range(32)))
HOST = host_name(PEER)


@given(PEERS)
def test_a_host_name_names_its_peer(peer: PeerId) -> None:
    assert peer_of_host(host_name(peer)) == peer
    assert peer_of_host(host_name(peer).upper()) == peer
    assert max(map(len, host_name(peer).split("."))) <= 63


@given(PEERS)
def test_base58_in_a_url_becomes_the_host_name(peer: PeerId) -> None:
    assert canonical_url(f"http://{peer}.peer.mesh/mcp/x") == f"http://{host_name(peer)}/mcp/x"


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        (f"HTTP://{PEER}.Peer.Mesh", f"HTTP://{HOST}"),
        (f"http://user:pw@{PEER}.peer.mesh:80/{PEER}.peer.mesh?a#b", f"http://user:pw@{HOST}:80/{PEER}.peer.mesh?a#b"),
        (f"//{PEER}.peer.mesh/a", f"//{HOST}/a"),
        (f"http://{HOST}/a", f"http://{HOST}/a"),
    ],
)
def test_only_the_host_changes(url: str, canonical: str) -> None:
    assert canonical_url(url) == canonical


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/mcp/x",
        f"{PEER}.peer.mesh",
        "https://example.org/",
        f"http://{PEER}.peer.mesh.example.org/",
        f"http://example.org/?at=http://{PEER}.peer.mesh",
        "http://nobody.peer.mesh/",
    ],
)
def test_other_urls_stay_as_they_are(url: str) -> None:
    assert canonical_url(url) == url


def test_a_base58_id_that_lost_its_upper_case_is_told_so() -> None:
    with pytest.raises(AddressError, match="dns_label"):
        peer_of_host(f"{PEER}.peer.mesh".lower())


@pytest.mark.parametrize("host", ["nobody.peer.mesh", ".peer.mesh", f"x.{HOST}", "example.org"])
def test_other_hosts_are_no_peers(host: str) -> None:
    with pytest.raises(AddressError):
        peer_of_host(host)
