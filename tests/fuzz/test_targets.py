"""Every entrance for strangers' bytes, with seeds, with seeds that were damaged, and with what a fuzzer once found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.testing.strategies import damaged
from tests.fuzz.targets import TARGETS

EXAMPLES: dict[str, tuple[bytes, ...]] = {  # what `python -m tests.fuzz` found, by target
    "http": (b"\xffHEAD +http/x/ HTTP/1.1\r\nHost: h\r\n\r\n",),  # a refusal with a body, where HEAD has none
    "address": (bytes.fromhex("2a3a50000001"),),  # a zone without a name: text that did not read back
}


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_seeds_and_findings_raise_only_what_blames_the_sender(name: str) -> None:
    target = TARGETS[name]
    for data in (*target.seeds, *EXAMPLES.get(name, ()), b"", b"\x00", b"\xff" * 40):
        target(data)


@pytest.mark.parametrize("name", sorted(TARGETS))
@given(data=st.data())
def test_damaged_seeds_raise_only_what_blames_the_sender(name: str, data: st.DataObject) -> None:
    target = TARGETS[name]
    target(data.draw(damaged(st.sampled_from(target.seeds)) | st.binary(max_size=200)))


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_seeds_mean_something(name: str) -> None:
    """A seed that the target refuses at once teaches a fuzzer nothing."""
    target = TARGETS[name]
    accepted = 0
    for seed in target.seeds:
        try:
            target.run(seed)
        except target.allowed:
            continue
        accepted += 1
    assert accepted or name in {"multistream", "relay", "auth", "pool"}  # one seed is for one of several machines
