import hashlib

import pytest

from agentmesh.protocols.directory.keys import is_key, peer_key, service_key
from agentmesh.types import PeerId

PEER = PeerId.from_ed25519(bytes(range(32)))

# Pinned: members of different versions, and of other implementations, have to find each other.
GOLDEN = [
    (service_key("mcp"), "mesh:service:mcp", "12203596347e46704c3456c4606b279fc679c531d929d6739f2f9c5194a54e352c37"),
    (
        service_key("mcp", "calc"),
        "mesh:service:mcp:calc",
        "1220e8769a49b5cab8fda86f16935ddd073a36aac47aabc4750fd58837e4165ff314",
    ),
    (
        service_key("egress", "api.github.com"),
        "mesh:service:egress:api.github.com",
        "1220d08ed6f5cbb8346ba3baa62bb9eb9b83dbbaa61d120976c90a02de354028611f",
    ),
    (
        service_key("inference", "llm:8b"),
        "mesh:service:inference:llm:8b",
        "12204db2ee55d1d85670388a30a63685d1df993e0c7d16f5750d873ebdfa520b5736",
    ),
    (peer_key(PEER), f"mesh:peer:{PEER}", "1220dd19442b5e072a4237fd5b95f0d3b5af5a58b0f703038f864b5a31e7cc790110"),
]


@pytest.mark.parametrize(("key", "name", "golden"), GOLDEN)
def test_a_key_is_the_multihash_of_its_name(key: bytes, name: str, golden: str) -> None:
    assert key == bytes.fromhex("1220") + hashlib.sha256(name.encode()).digest()
    assert key.hex() == golden
    assert is_key(key)


@pytest.mark.parametrize(("type", "name"), [("", None), ("mcp", ""), ("a:b", None), ("a:b", "c")])
def test_two_services_never_share_a_key(type: str, name: str | None) -> None:
    """A type with a colon would be a type and a name."""
    with pytest.raises(ValueError, match="no service"):
        service_key(type, name)


@pytest.mark.parametrize(
    "data", [b"", bytes(34), b"\x12\x20" + bytes(31), b"\x12\x20" + bytes(33), b"\x12\x21" + bytes(32)]
)
def test_other_bytes_are_no_key(data: bytes) -> None:
    assert not is_key(data)
