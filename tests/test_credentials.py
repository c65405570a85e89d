"""A credential admits the one peer that it names, for as long as it says, on the word of a trusted key; nobody else."""

import math
import traceback
from collections.abc import Mapping

import attrs
import pytest
from biscuit_auth import Biscuit, BiscuitBuilder, BlockBuilder, KeyPair, PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.credentials import (
    MAX_FACTS,
    MAX_MINTED_FACTS,
    ROLE_NODE,
    ROLE_ROUTER,
    Credential,
    SigningKey,
    TrustedKeys,
    mint,
    verify,
)
from agentmesh.errors import CredentialError
from agentmesh.types import CID_PREFIX, MULTIBASE, PeerId

NOW = 1_774_008_000.0  # noon of 20 March 2026
SEED = bytes(range(32))
KEY = SigningKey.from_bytes(SEED)
TRUSTED = TrustedKeys(frozenset({KEY.public}))
PEER = PeerId.parse("12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq")
OTHER = PeerId.parse("12D3KooWM6CgA9iBFZmcYAHA6A2qvbAxqfkmrYiRQuz3XEsk4Ksv")
ALIAS: str = MULTIBASE.encode("base32", CID_PREFIX + PEER.multihash).decode()

# Minted by KEY for PEER as a router, label zone=a, until NOW.
GOLDEN = bytes.fromhex(
    "12d5020aea010a34313244334b6f6f57427467336161524d6a78776564683833614769556b7753784477555a6b7a754a63666171556d6f37523370"
    "710a0e636c69656e745f706565725f69640a106d6573683a726f6c653a726f757465720a0a65787069726174696f6e0a0572656c61790a13746172"
    "6765745f756e726573747269637465640a056c6162656c0a047a6f6e650a0161180322090a0708181203188008220a0a0808810812031880082209"
    "0a0708061203188208220d0a0b088308120620c0edf4cd0622090a070804120318840822090a0708850812023001220f0a0d088608120318870812"
    "0318880812240800122015ffb4561ef59c1a08d4adfc224c912827707fcd516a32b0aa1c5830427c45961a40b4ea5b7721a772b84416352e69d518"
    "7a4b7737707c65cab1dc93b8626b5069bcf72a28335f2f12bbfa8621f0656473842f03d17f8af7970e16f9f965a109840822220a204c13f103f940"
    "b435e8e859cf12c7601accde9bdad66f5a64e0bd1d0e841c6861"
)
FACTS = 'node({p}); client_peer_id({p}); role("mesh:role:node"); expiration(2026-03-20T12:00:00Z);'

peers = st.binary(min_size=32, max_size=32).map(PeerId.from_ed25519)
labels = st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=8)


def minted(
    key: SigningKey = KEY,
    peer: PeerId = PEER,
    role: str = ROLE_NODE,
    labels: Mapping[str, str] | None = None,
    expires_at: float = NOW,
) -> bytes:
    return mint(key, peer=peer, role=role, labels=labels or {}, expires_at=expires_at)


def check(token: bytes, peer: PeerId = PEER, trusted: TrustedKeys = TRUSTED, now: float = NOW) -> Credential:
    return verify(token, peer=peer, trusted=trusted, now=now)


def parsed(token: bytes) -> tuple[Biscuit, KeyPair]:
    """As biscuit's own tools see it."""
    pair = KeyPair.from_private_key(PrivateKey(f"ed25519-private/{SEED.hex()}"))
    return Biscuit.from_bytes(token, pair.public_key), pair


def signed(source: str, **values: object) -> bytes:
    """A token of any content by the trusted key, as no control plane of ours makes it."""
    _, pair = parsed(GOLDEN)
    return bytes(BiscuitBuilder(source, {"p": str(PEER), **values}).build(pair.private_key).to_bytes())


class TestMinted:
    def test_golden(self) -> None:
        credential = check(GOLDEN)
        assert credential == Credential(GOLDEN, PEER, ROLE_ROUTER, {"zone": "a"}, NOW)
        assert credential.expires_at == NOW

    def test_a_nodes_facts(self) -> None:
        token, _ = parsed(minted(labels={"zone": "a", "b": "c"}))
        assert token.block_count() == 1
        assert token.block_source(0).splitlines() == [
            f'node("{PEER}");',
            f'client_peer_id("{PEER}");',
            'role("mesh:role:node");',
            "expiration(2026-03-20T12:00:00Z);",
            'label("b", "c");',
            'label("zone", "a");',
        ]

    def test_a_routers_rights(self) -> None:
        source = parsed(minted(role=ROLE_ROUTER))[0].block_source(0)
        assert 'right("relay");' in source
        assert "target_unrestricted(true);" in source
        assert "right" not in parsed(minted())[0].block_source(0)

    @given(peers, st.sampled_from([ROLE_NODE, ROLE_ROUTER]) | st.text(), labels, st.floats(0, 2e11))
    def test_verifies_as_it_was_minted(
        self, peer: PeerId, role: str, labels: Mapping[str, str], expires_at: float
    ) -> None:
        token = minted(peer=peer, role=role, labels=labels, expires_at=expires_at)
        whole = math.floor(expires_at)
        assert check(token, peer, now=whole) == Credential(token, peer, role, labels, whole)

    def test_as_many_labels_as_there_may_be(self) -> None:
        many = {f"label-{n}": 'any " \n value; check if false <- ' for n in range(MAX_MINTED_FACTS - 4)}
        assert check(minted(labels=many)).labels == many
        with pytest.raises(ValueError, match="more than 900 facts"):
            minted(labels={**many, "another": ""})

    @pytest.mark.parametrize("expires_at", [-1.0, 1e12])
    def test_an_instant_that_has_no_date(self, expires_at: float) -> None:
        with pytest.raises(ValueError):
            minted(expires_at=expires_at)

    def test_its_labels_are_not_to_be_changed(self) -> None:
        with pytest.raises(TypeError):
            check(GOLDEN).labels["zone"] = "b"  # type: ignore[index]  # pyright: ignore[reportIndexIssue]

    def test_a_credential_is_a_value(self) -> None:
        assert hash(check(GOLDEN)) == hash(check(GOLDEN))

    def test_its_representation_holds_no_secret(self) -> None:
        shown = repr(check(GOLDEN))
        assert "token" not in shown
        assert str(GOLDEN)[2:40] not in shown
        assert str(PEER) in shown


class TestRefused:
    @pytest.mark.parametrize("after", [0.25, 1.0, 1e9])
    def test_expired(self, after: float) -> None:
        assert check(GOLDEN, now=NOW).expires_at == NOW
        with pytest.raises(CredentialError, match="expired") as caught:
            check(GOLDEN, now=NOW + after)
        assert caught.value.reason == "expired"

    def test_of_another_peer(self) -> None:
        with pytest.raises(CredentialError) as caught:
            check(GOLDEN, peer=OTHER)
        assert caught.value.reason == "wrong_peer"
        assert str(caught.value) == f"a credential of {PEER}, shown by {OTHER}"

    @pytest.mark.parametrize("fact", ["node", "client_peer_id"])
    def test_that_is_half_of_another_peer(self, fact: str) -> None:
        token = signed(FACTS.replace(f"{fact}({{p}})", f"{fact}({{o}})"), o=str(OTHER))
        with pytest.raises(CredentialError) as caught:
            check(token)
        assert caught.value.reason == "wrong_peer"

    @pytest.mark.parametrize(
        "trusted",
        [
            TrustedKeys(),
            TrustedKeys(frozenset({SigningKey.generate().public})),
            TrustedKeys(frozenset({b"", bytes(31), b"\x02" + bytes(31)})),  # none of them is a key
            TRUSTED.without(KEY.public),
        ],
    )
    def test_by_a_key_that_is_not_trusted(self, trusted: TrustedKeys) -> None:
        with pytest.raises(CredentialError) as caught:
            check(GOLDEN, trusted=trusted)
        assert caught.value.reason == "untrusted"

    def test_with_a_block_behind_the_first(self) -> None:
        token, _ = parsed(GOLDEN)
        for block in ("", 'role("mesh:role:admin")', 'check if role("mesh:role:router")'):
            with pytest.raises(CredentialError) as caught:
                check(bytes(token.append(BlockBuilder(block)).to_bytes()))
            assert caught.value.reason == "blocks"

    @pytest.mark.parametrize(
        "source",
        [
            "",
            'client_peer_id({p}); role("r"); expiration(2026-03-20T12:00:00Z);',
            'node({p}); role("r"); expiration(2026-03-20T12:00:00Z);',
            "node({p}); client_peer_id({p}); expiration(2026-03-20T12:00:00Z);",
            'node({p}); client_peer_id({p}); role("r");',
            'node({p}, 1); client_peer_id({p}); role("r"); expiration(2026-03-20T12:00:00Z);',
            FACTS + 'role("mesh:role:router");',
            FACTS + "expiration(2027-03-20T12:00:00Z);",
            FACTS + 'node("another");',
            FACTS + 'label("zone", "a"); label("zone", "b");',
            FACTS.replace("{p}", '"nobody"'),
            FACTS.replace('"mesh:role:node"', '{"mesh:role:node"}'),  # a set of one
            FACTS.replace('"mesh:role:node"', "null"),
            FACTS.replace("2026-03-20T12:00:00Z", "1774008000"),
            FACTS + "check if true;",
            FACTS + 'reject if node("x");',
            FACTS + 'expiration($t) <- role("mesh:role:node"), expiration($t);',
            FACTS + "".join(f"f({n});" for n in range(MAX_FACTS - 3)),
        ],
    )
    def test_with_other_facts_than_it_must_have(self, source: str) -> None:
        with pytest.raises(CredentialError) as caught:
            check(signed(source))
        assert caught.value.reason == "malformed"

    def test_a_rule_that_would_run_for_hours_is_never_run(self) -> None:
        long = "f($a) <- " + ", ".join(f"g(${name}, ${name}2)" for name in "abcdefgh") + ";"
        with pytest.raises(CredentialError) as caught:
            check(signed(FACTS + long + "".join(f"g({n}, {n});" for n in range(100))))
        assert caught.value.reason == "malformed"

    @given(st.binary(max_size=100) | st.binary(max_size=100).map(lambda rest: GOLDEN[:3] + rest))
    def test_any_bytes(self, data: bytes) -> None:
        with pytest.raises(CredentialError) as caught:
            check(data)
        assert caught.value.reason in {"malformed", "untrusted", "blocks"}

    @given(st.integers(0, len(GOLDEN) - 1), st.integers(1, 255))
    def test_one_byte_changed(self, at: int, change: int) -> None:
        """It is refused, or says the same: the algorithm of the next key can be spelt in more than one way."""
        data = bytearray(GOLDEN)
        data[at] ^= change
        try:
            credential = check(bytes(data))
        except CredentialError as refused:
            assert refused.reason in {"malformed", "untrusted", "blocks"}
        else:
            assert attrs.evolve(credential, token=GOLDEN) == check(GOLDEN)

    @given(st.integers(0, len(GOLDEN) - 1))
    def test_cut_short(self, end: int) -> None:
        with pytest.raises(CredentialError):
            check(GOLDEN[:end])

    def test_no_error_holds_anything_of_the_token(self) -> None:
        token = minted(labels={"codename": "heron"})
        for shown, peer, now in ((token, OTHER, NOW), (token, PEER, NOW + 1), (token[:-1], PEER, NOW)):
            with pytest.raises(CredentialError) as caught:
                check(shown, peer, now=now)
            assert "heron" not in "".join(traceback.format_exception(caught.value))


class TestAccepted:
    def test_whichever_trusted_key_signed(self) -> None:
        older, newer = SigningKey.generate(), SigningKey.generate()
        trusted = TRUSTED.add(older.public, newer.public)
        for key in (KEY, older, newer):
            assert check(minted(key), trusted=trusted).peer == PEER
        with pytest.raises(CredentialError):
            check(minted(older), trusted=trusted.without(older.public))

    def test_another_spelling_of_the_peer(self) -> None:
        assert check(signed(FACTS, p=ALIAS)).peer == PEER

    def test_facts_that_say_more(self) -> None:
        more = (
            'user("u"); granted_service_set({"mcp"}); right("relay"); label("a", 1); label({1}, "x"); label("k", "v");'
        )
        assert check(signed(FACTS + more)).labels == {"k": "v"}

    def test_as_many_facts_as_there_may_be(self) -> None:
        assert check(signed(FACTS + "".join(f"f({n});" for n in range(MAX_FACTS - 4)))).peer == PEER


class TestKeys:
    def test_golden_key(self) -> None:
        assert KEY.public.hex() == "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
        assert KEY.key_id == "03a107bff3ce10be"
        assert KEY.to_bytes() == SEED

    @given(st.binary(min_size=32, max_size=32))
    def test_keys_round_trip(self, seed: bytes) -> None:
        key = SigningKey.from_bytes(seed)
        assert SigningKey.from_bytes(key.to_bytes()) == key
        Ed25519PublicKey.from_public_bytes(key.public).verify(key.sign(b"data"), b"data")

    @pytest.mark.parametrize("length", [0, 31, 33])
    def test_a_key_has_32_bytes(self, length: int) -> None:
        with pytest.raises(ValueError):
            SigningKey.from_bytes(bytes(length))

    def test_its_representation_holds_no_secret(self) -> None:
        assert SEED.hex() not in repr(KEY)
        assert KEY.public.hex() in repr(KEY)

    def test_the_trusted_keys_are_a_value(self) -> None:
        more = TRUSTED.add(b"k" * 32)
        assert more != TRUSTED
        assert more.without(b"k" * 32) == TRUSTED
        assert TRUSTED.add() == TRUSTED
        assert TRUSTED.without(b"absent") == TRUSTED
        assert len({TRUSTED, TrustedKeys(frozenset({KEY.public}))}) == 1
