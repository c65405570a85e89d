"""Which sets of keys a client believes."""

from datetime import UTC, datetime

import httpx
import pytest

from agentmesh.credentials import SigningKey, TrustedKeys
from agentmesh.errors import RemoteProtocolError
from agentmesh.wire.messages.mesh.v1 import KeysResponse
from tests.control_plane.test_client import NOW, Server


def key_set(*keys: SigningKey, signers: tuple[SigningKey, ...] | None = None, at: float = NOW) -> KeysResponse:
    answer = KeysResponse(public_keys=[key.public for key in keys], sign_time=datetime.fromtimestamp(at, UTC))
    signed = bytes(answer)
    answer.signatures = [(key if signers is None or key in signers else other).sign(signed) for key in keys]
    return answer


other = SigningKey.generate()
OLD, NEW = SigningKey.generate(), SigningKey.generate()
TRUSTED = TrustedKeys(frozenset({OLD.public}))


async def test_a_trusted_key_vouches_for_new_ones() -> None:
    async with Server(key_set(OLD, NEW, signers=(OLD,))).client() as client:
        assert await client.keys(TRUSTED) == TrustedKeys(frozenset({OLD.public, NEW.public}))


async def test_without_trust_every_key_has_to_sign() -> None:
    async with Server(key_set(OLD, NEW)).client() as client:
        assert await client.keys() == TrustedKeys(frozenset({OLD.public, NEW.public}))


async def test_what_a_newer_control_plane_says_besides_is_signed_too() -> None:
    said = b"\x22\x05newer"  # a field of number 4
    answer = KeysResponse(public_keys=[OLD.public], sign_time=datetime.fromtimestamp(NOW, UTC))
    signature = OLD.sign(bytes(answer) + said)
    answer.signatures = [signature]
    for sent, is_believed in ((bytes(answer) + said, True), (bytes(answer), False)):
        async with Server(httpx.Response(200, content=sent)).client() as client:
            if is_believed:
                assert await client.keys(TRUSTED) == TRUSTED
            else:
                with pytest.raises(RemoteProtocolError, match="no key that we trust has signed"):
                    await client.keys(TRUSTED)


@pytest.mark.parametrize(
    ("answer", "trusted"),
    [
        (key_set(NEW), TRUSTED),
        (key_set(OLD, NEW, signers=(NEW,)), TRUSTED),
        (key_set(OLD, NEW, signers=(NEW,)), None),
        (key_set(), None),
        (key_set(), TRUSTED),
        (key_set(OLD, at=NOW - 301), TRUSTED),
        (key_set(OLD, at=NOW + 301), TRUSTED),
        (KeysResponse(public_keys=[b"short"], signatures=[b""], sign_time=datetime.fromtimestamp(NOW, UTC)), None),
        (KeysResponse(public_keys=[OLD.public]), TRUSTED),
    ],
)
async def test_key_sets_that_are_not_believed(answer: KeysResponse, trusted: TrustedKeys | None) -> None:
    async with Server(answer).client() as client:
        with pytest.raises(RemoteProtocolError):
            await client.keys(trusted)
