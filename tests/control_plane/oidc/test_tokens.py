"""What a provider's token says, and what is no token that admits anybody."""

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from jwt.algorithms import RSAAlgorithm

from agentmesh.control_plane.oidc.keys import MAX_KEYS, ProviderKeys
from agentmesh.control_plane.oidc.tokens import MAX_CLAIMS, Said, TokenError, read_token, unverified
from agentmesh.control_plane.oidc.trust import Trust, TrustedIssuer, check_url
from tests.control_plane.oidc.provider import AUDIENCE, IdentityProvider, ProviderKey
from tests.control_plane.plane import Clock

ISSUER = TrustedIssuer("https://idp.example")
CLOCK = Clock()
PROVIDER = IdentityProvider(CLOCK, ISSUER.url, [ProviderKey.make(kind, kind) for kind in ("EdDSA", "ES256", "RS256")])
KEYS = ProviderKeys.parse({"keys": [key.public for key in PROVIDER.keys]})
TRUST = Trust(issuers=(ISSUER,), audiences=(AUDIENCE, "other"))


def read(token: str, issuer: TrustedIssuer = ISSUER, trust: Trust = TRUST, **changes: Any) -> Said:
    arguments: dict[str, Any] = {"keys": KEYS, "now": CLOCK.now, **changes}
    return read_token(token, arguments["keys"], issuer, trust, arguments["now"], arguments.get("nonce"))


@pytest.mark.parametrize("key", PROVIDER.keys, ids=lambda key: key.id)
def test_what_is_said_is_read(key: ProviderKey) -> None:
    claims: dict[str, Any] = {"email": "a@x.y", "email_verified": True}
    claims |= {"groups": ["eng", "ops"], "roles": ["lead"], "aud": ["", "other"]}
    said = read(PROVIDER.token("alice", key=key, **claims))
    assert said == Said(
        ISSUER,
        "alice",
        "a@x.y",
        {
            "user": frozenset({"alice"}),
            "email": frozenset({"a@x.y"}),
            "group": frozenset({"eng", "ops"}),
            "idp_role": frozenset({"lead"}),
        },
        CLOCK.now + 3600,
    )
    assert said.identity == "https://idp.example|alice"


@pytest.mark.parametrize("verified", [None, False, "true", 1])
def test_an_address_that_nobody_verified_is_none(verified: object) -> None:
    said = read(PROVIDER.token(email="root@x.y", email_verified=verified))
    assert (said.email, "email" in said.claims) == ("", False)


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"iss": "https://other.example"}, "another issuer's"),
    ({"iss": None}, "another issuer's"),
    ({"aud": "somebody else"}, "another audience"),
    ({"aud": None}, "another audience"),
    ({"aud": [5, {"other": 1}]}, "another audience"),
    ({"exp": None}, "no exp"),
    ({"exp": "later"}, "no exp"),
    ({"exp": True}, "no exp"),
    ({"exp": 1e300}, "no exp"),
    ({"iat": None}, "no iat"),
    ({"exp": CLOCK.ms // 1000 - 61}, "has expired"),
    ({"iat": CLOCK.ms // 1000 + 61}, "not good yet"),
    ({"nbf": CLOCK.ms // 1000 + 61}, "not good yet"),
    ({"nbf": "never"}, "no nbf"),
    ({"sub": ""}, "sub cannot be read"),
    ({"sub": 5}, "sub cannot be read"),
    ({"sub": "a\x00b"}, "sub cannot be read"),
    ({"sub": "x" * 256}, "sub cannot be read"),
    ({"groups": "eng"}, "groups cannot be read"),
    ({"groups": ["eng", 5]}, "groups cannot be read"),
    ({"roles": {"a": 1}}, "roles cannot be read"),
    ({"email": 5, "email_verified": True}, "email cannot be read"),
    ({"groups": [f"g{n}" for n in range(MAX_CLAIMS)], "roles": ["r"]}, f"more than {MAX_CLAIMS} groups and roles"),
]


@pytest.mark.parametrize(("claims", "text"), FAULTS)
def test_tokens_that_admit_nobody(claims: dict[str, Any], text: str) -> None:
    with pytest.raises(TokenError, match=text):
        read(PROVIDER.token(**({"sub": "alice"} | claims)))


@pytest.mark.parametrize(("name", "by"), [("exp", -59), ("iat", 59), ("nbf", 59)])
def test_a_clock_that_is_a_little_off_is_forgiven(name: str, by: int) -> None:
    assert read(PROVIDER.token(**{name: CLOCK.ms // 1000 + by})).subject == "alice"


def test_a_nonce_binds_a_token_to_a_peer() -> None:
    strict = Trust(issuers=(ISSUER,), require_nonce=True)
    token = PROVIDER.token(nonce="12D3KooW")
    assert read(token, trust=strict, nonce="12D3KooW").subject == "alice"
    assert read(token, nonce="another").subject == "alice"  # it need not
    assert read(token, trust=strict, nonce=None).subject == "alice"  # of a token that registers nobody
    for other in (token, PROVIDER.token()):
        with pytest.raises(TokenError, match="nonce is not the peer ID"):
            read(other, trust=strict, nonce="another")


def test_programs_are_named_by_whom_they_run_as() -> None:
    issuer = TrustedIssuer.parse_workload("https://idp.example=@project.example")
    assert read(PROVIDER.token(email="ci@project.example", email_verified=True), issuer).issuer.workload
    others: list[dict[str, Any]] = [{}, {"email": "ci@project.example"}]
    for claims in (*others, {"email": "ci@elsewhere.example", "email_verified": True}):
        with pytest.raises(TokenError, match="not trusted to name"):
            read(PROVIDER.token(**claims), issuer)


def segments(header: object, claims: object, signature: bytes = b"") -> str:
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


@pytest.mark.parametrize(
    "token",
    ["", "a.b", "a.b.c", "ä.b.c", "." * 20_000, segments([], {}), segments({"alg": "EdDSA"}, [])]
    + [segments({"alg": "none"}, {"iss": ISSUER.url}), segments({"alg": "HS256"}, {}), segments({"alg": 5}, {})],
)
def test_what_is_no_token(token: str) -> None:
    with pytest.raises(TokenError):
        read(token)


def test_signatures_are_of_the_issuers_keys() -> None:
    stranger = ProviderKey.make("EdDSA", "EdDSA")
    with pytest.raises(TokenError, match="not signed by its issuer"):
        read(PROVIDER.token(key=stranger))
    with pytest.raises(TokenError, match="no such key"):
        read(PROVIDER.token(key=ProviderKey.make("another", "EdDSA")))
    with pytest.raises(TokenError, match="not signed"):  # a key of one kind, a signature of another
        read(PROVIDER.token(key=ProviderKey("ES256", "EdDSA", stranger.private)))
    forged = jwt.encode({"iss": ISSUER.url}, "x" * 32, algorithm="HS256", headers={"kid": "EdDSA"})
    with pytest.raises(TokenError, match="is signed with RS256, ES256, EdDSA"):
        read(forged)


@settings(max_examples=100, deadline=None)
@given(st.integers(0), st.binary(min_size=1, max_size=3))
def test_damaged_tokens_raise_nothing_else(where: int, with_what: bytes) -> None:
    token = PROVIDER.token()
    at = where % len(token)
    damaged = token[:at] + with_what.decode("latin-1") + token[at + 1 :]
    try:
        said = read(damaged)
    except TokenError:
        return
    assert said.subject == "alice"  # the last character of a signature has bits that say nothing


@given(st.text(max_size=60))
def test_any_text_is_a_token_or_a_token_error(text: str) -> None:
    with pytest.raises(TokenError):
        unverified(text)


def test_keys_that_are_of_no_use_are_left_out() -> None:
    weak: Any = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key(), as_dict=True)
    good = PROVIDER.keys[0].public
    listed = [
        *(5, None, {}, {"kty": "oct", "k": "AAAA", "kid": "a"}, {"kty": "RSA", "kid": "b"}, {**weak, "kid": "c"}),
        {**good, "use": "enc", "kid": "d"},
        good,
    ]
    assert set(ProviderKeys.parse({"keys": listed}).by_id) == {"EdDSA"}
    many = [{**good, "kid": f"k{n}"} for n in range(MAX_KEYS + 1)]
    assert len(ProviderKeys.parse({"keys": many}).by_id) == MAX_KEYS
    nothing: list[object] = []
    for document in (None, nothing, {"keys": 5}, {"key": nothing}):
        with pytest.raises(ValueError, match="no set of keys"):
            ProviderKeys.parse(document)


def test_a_token_without_a_key_id_is_taken_for_the_only_key() -> None:
    token = jwt.encode({"iss": ISSUER.url}, PROVIDER.keys[0].private, algorithm="EdDSA")
    only = ProviderKeys.parse({"keys": [{k: v for k, v in PROVIDER.keys[0].public.items() if k != "kid"}]})
    with pytest.raises(TokenError, match="another audience"):
        read(token, keys=only)
    with pytest.raises(TokenError, match="no such key"):
        read(token)


@pytest.mark.parametrize(
    "url", ["https://idp.example", "https://idp.example/realms/x", "http://127.0.0.1:8080", "http://localhost"]
)
def test_issuers(url: str) -> None:
    assert TrustedIssuer.parse(url).url == url


@pytest.mark.parametrize(
    "url", ["", "idp.example", "http://idp.example", "ftp://x", "https://a|b", "https://", "https://x:y"]
)
def test_what_is_no_issuer(url: str) -> None:
    with pytest.raises(ValueError, match="issuer|URL"):
        TrustedIssuer.parse(url)
    if url.startswith("http://"):
        assert check_url(url, insecure=True).host


def test_trust_is_sound_in_itself() -> None:
    with pytest.raises(ValueError, match="named twice"):
        Trust(issuers=(ISSUER, TrustedIssuer.parse_workload("https://idp.example=@x")))
    with pytest.raises(ValueError, match="without an audience"):
        Trust(issuers=(ISSUER,), audiences=())
    assert TRUST.issuer("https://other.example") is None
    assert TRUST.issuer(ISSUER.url) is ISSUER
