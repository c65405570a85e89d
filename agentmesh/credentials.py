"""Credentials: what the control plane says of a peer, in a Biscuit token that it signs (biscuitsec.org, format 3).

A credential is a list of facts in one block. It is honoured only over a secure channel whose peer it names, so a copy
is of no use to anybody else.
"""

import collections
import datetime
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import attrs
import biscuit_auth
from biscuit_auth import Biscuit, BiscuitBuilder, Rule
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agentmesh.errors import AddressError, CredentialError, RemoteProtocolError
from agentmesh.facts import Fact
from agentmesh.types import PeerId
from agentmesh.wire.codec import split

ROLE_NODE = "mesh:role:node"
ROLE_ROUTER = "mesh:role:router"
ROLES = {"node": ROLE_NODE, "router": ROLE_ROUTER}  # as people call them
ROLE_PREFIX = "mesh:role:"  # of the roles that a peer is admitted in; all others are a policy's
CLAIMS = ("email", "group", "idp_role", "user")  # what an identity provider says of a bearer

MAX_FACTS = 1000  # what a verifier takes
MAX_MINTED_FACTS = 900
MAX_ITERATIONS = 100
MAX_VERIFY_TIME = datetime.timedelta(seconds=1)

BIND = "node({peer}); client_peer_id({peer}); role({role}); expiration({expiration});"
ROUTER_RIGHTS = 'right("relay"); target_unrestricted(true);'

_NODE, _CLIENT, _ROLE, _EXPIRATION = (  # the type is asked for, because there are terms that biscuit_auth panics on
    Rule(f'found($x) <- {name}($x), $x.type() == "{kind}"')
    for name, kind in (("node", "string"), ("client_peer_id", "string"), ("role", "string"), ("expiration", "date"))
)
_LABEL = Rule('found($k, $v) <- label($k, $v), $k.type() == "string", $v.type() == "string"')
_CLAIM = Rule("found($k, $x) <- claim($k, $x)")
_CLAIMS = "".join(f'claim("{kind}", $x) <- {kind}($x), $x.type() == "string"; ' for kind in CLAIMS)

_AUTHORITY, _BLOCKS = 2, 3  # of a token: its signed blocks
_BLOCK = 1  # of a signed block
_FACTS, _RULES, _CHECKS = 4, 5, 6  # of a block

_untyped: Any = biscuit_auth  # its stubs leave out algorithms and limits
LIMITS: Any = _untyped.AuthorizerBuilder().limits()
LIMITS.max_facts, LIMITS.max_iterations, LIMITS.max_time = MAX_FACTS, MAX_ITERATIONS, MAX_VERIFY_TIME


@attrs.frozen
class Credential:
    """What a token says of its bearer, once it is verified.

    Attributes:
        token: the credential itself. It is kept out of `repr`, and belongs in no log.
        role: what the peer was admitted as.
        expires_at: UTC, whole seconds since 1970; honoured up to and including it.
        roles: what a policy gives it besides.
        claims: what an identity provider says of it, values by kind, one of CLAIMS.
    """

    token: bytes = attrs.field(repr=False)
    peer: PeerId
    role: str
    labels: Mapping[str, str] = attrs.field(hash=False)
    expires_at: float
    roles: frozenset[str] = frozenset()
    claims: Mapping[str, frozenset[str]] = attrs.field(factory=dict[str, frozenset[str]], hash=False)


@attrs.frozen
class SigningKey:
    """A key of the control plane. Its `repr` holds no secret.

    Attributes:
        public: 32 raw bytes, for TrustedKeys.
    """

    private_key: Ed25519PrivateKey = attrs.field(repr=False, eq=False)
    public: bytes = attrs.field(
        init=False,
        repr=bytes.hex,
        default=attrs.Factory(lambda self: self.private_key.public_key().public_bytes_raw(), takes_self=True),
    )

    @classmethod
    def generate(cls) -> Self:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote. Raises ValueError when it is not 32 bytes."""
        return cls(Ed25519PrivateKey.from_private_bytes(data))

    def to_bytes(self) -> bytes:
        """The 32 bytes to keep: a secret."""
        return self.private_key.private_bytes_raw()

    @property
    def key_id(self) -> str:
        """A short name of the key, for people and logs."""
        return self.public[:8].hex()

    def sign(self, data: bytes) -> bytes:
        return self.private_key.sign(data)


@attrs.frozen
class TrustedKeys:
    """The public keys whose credentials are honoured, 32 raw bytes each; any of them will do."""

    keys: frozenset[bytes] = frozenset()

    def add(self, *keys: bytes) -> "TrustedKeys":
        return TrustedKeys(self.keys.union(keys))

    def without(self, *keys: bytes) -> "TrustedKeys":
        return TrustedKeys(self.keys.difference(keys))


def mint(
    key: SigningKey,
    *,
    peer: PeerId,
    role: str,
    labels: Mapping[str, str],
    expires_at: float,
    facts: Sequence[Fact] = (),
) -> bytes:
    """Make the credential of a peer.

    Args:
        key: who vouches for it.
        role: ROLE_NODE, ROLE_ROUTER or another; a router may relay and reach every target.
        labels: what it attests besides.
        expires_at: UTC, seconds since 1970; a fraction is cut off.
        facts: what else there is to say: roles, claims, grants.
    Raises:
        ValueError: that is more than verifiers take, or an instant that has no date.
    """
    expiration = datetime.datetime.fromtimestamp(math.floor(expires_at), datetime.UTC)
    source = BIND + ROUTER_RIGHTS if role == ROLE_ROUTER else BIND
    if source.count(";") + len(labels) + len(facts) > MAX_MINTED_FACTS:
        raise ValueError(f"a credential of more than {MAX_MINTED_FACTS} facts")
    builder = BiscuitBuilder(source, {"peer": str(peer), "role": role, "expiration": expiration})
    for name, value in sorted(labels.items()):
        builder.add_fact(Fact("label", (name, value)).built())
    for fact in facts:
        builder.add_fact(fact.built())
    root = _untyped.PrivateKey.from_bytes(key.to_bytes(), _untyped.Algorithm.Ed25519)
    return bytes(builder.build(root).to_bytes())


def verify(token: bytes, *, peer: PeerId, trusted: TrustedKeys, now: float) -> Credential:
    """Decide whether a credential admits its bearer.

    Args:
        peer: who the secure channel has proved the bearer to be.
        now: UTC, seconds since 1970.
    Raises:
        CredentialError: it does not; `reason` says why: "malformed", "blocks", "untrusted", "wrong_peer" or "expired".
            The text holds nothing of the token but the peer ID in it.
    """
    _check_shape(token)
    verified = authenticate(token, trusted)
    try:
        credential = _read(token, peer, verified)
    except (biscuit_auth.AuthorizationError, AddressError):
        raise CredentialError("a credential with facts that cannot be read", "malformed") from None
    if now > credential.expires_at:
        raise CredentialError(f"the credential of {peer} expired {now - credential.expires_at:.0f} s ago", "expired")
    return credential


def bearer_of(token: bytes, trusted: TrustedKeys) -> PeerId:
    """The peer that a credential names. Whoever shows it has yet to prove to be that peer, and `verify` to be asked.

    Raises:
        CredentialError: it names none, or no trusted key has signed it.
    """
    _check_shape(token)
    try:
        return PeerId.parse(_only(_authorizer(authenticate(token, trusted)), _NODE))
    except (biscuit_auth.AuthorizationError, AddressError):
        raise CredentialError("a credential with facts that cannot be read", "malformed") from None


def _check_shape(token: bytes) -> None:
    """Hold a token to one block with facts only, before any of it is evaluated.

    The limits of the Datalog engine are looked at between rules: one rule or check with a long body runs for hours.
    """
    try:
        blocks = _values(_BLOCKS, token)
        authority = [block for signed in _values(_AUTHORITY, token) for block in _values(_BLOCK, signed)]
        counts = collections.Counter(number for block in authority for number, _, _ in split(block))
    except RemoteProtocolError:
        raise CredentialError("not a credential", "malformed") from None
    if counts[_FACTS] > MAX_FACTS or counts[_RULES] or counts[_CHECKS]:
        raise CredentialError("a credential with rules or checks, or too many facts", "malformed")
    if blocks:
        raise CredentialError("a credential with blocks behind its first", "blocks")


def _values(number: int, data: bytes) -> list[bytes]:
    return [value for found, _, value in split(data) if found == number]


def authenticate(token: bytes, trusted: TrustedKeys) -> Biscuit:
    """The token, if one of the keys has signed it; who may bear it, and until when, is another question.

    Raises:
        CredentialError: none has; "untrusted".
    """
    for key in trusted.keys:
        try:
            return Biscuit.from_bytes(token, _untyped.PublicKey.from_bytes(key, _untyped.Algorithm.Ed25519))
        except (biscuit_auth.BiscuitValidationError, ValueError):  # another key signed it, or this is no key
            continue
    raise CredentialError("no trusted key has signed the credential", "untrusted")


def _authorizer(verified: Biscuit) -> biscuit_auth.Authorizer:
    builder = _untyped.AuthorizerBuilder(_CLAIMS)
    builder.set_limits(LIMITS)
    authorizer: biscuit_auth.Authorizer = builder.build(verified)
    return authorizer


def _read(token: bytes, peer: PeerId, verified: Biscuit) -> Credential:
    authorizer = _authorizer(verified)
    for binding in (_NODE, _CLIENT):
        named = PeerId.parse(_only(authorizer, binding))
        if named != peer:
            raise CredentialError(f"a credential of {named}, shown by {peer}", "wrong_peer")
    labels = sorted(fact.terms for fact in authorizer.query(_LABEL))
    if len(dict(labels)) != len(labels):
        raise CredentialError("a credential with two values for one label", "malformed")
    role, others = _roles(authorizer)
    expires_at = _only(authorizer, _EXPIRATION).timestamp()
    return Credential(token, peer, role, MappingProxyType(dict(labels)), expires_at, others, _claims(authorizer))


def _roles(authorizer: biscuit_auth.Authorizer) -> tuple[str, frozenset[str]]:
    """The role that the peer was admitted in, and the others."""
    found = frozenset(str(fact.terms[0]) for fact in authorizer.query(_ROLE))
    admitted = found if len(found) == 1 else {role for role in found if role.startswith(ROLE_PREFIX)}
    if len(admitted) != 1:
        raise CredentialError("a credential without a role, or admitted in two", "malformed")
    return next(iter(admitted)), found - admitted


def _claims(authorizer: biscuit_auth.Authorizer) -> Mapping[str, frozenset[str]]:
    found = collections.defaultdict[str, set[str]](set)
    for fact in authorizer.query(_CLAIM):
        kind, value = fact.terms
        found[kind].add(value)
    return MappingProxyType({kind: frozenset(values) for kind, values in found.items()})


def _only(authorizer: biscuit_auth.Authorizer, rule: Rule) -> Any:
    found = authorizer.query(rule)
    if len(found) != 1:
        raise CredentialError("a credential that lacks a fact, or has two that disagree", "malformed")
    return found[0].terms[0]
