"""What an identity provider's token says (RFC 7519, OpenID Connect Core 1.0 section 2), once it is verified. Pure."""

import binascii
import json
from collections.abc import Mapping
from typing import Any, cast

import attrs
import jwt
from jwt.exceptions import PyJWTError

from agentmesh.control_plane.oidc.keys import ALGORITHMS, ProviderKeys
from agentmesh.control_plane.oidc.trust import Trust, TrustedIssuer
from agentmesh.errors import MeshError

MAX_TOKEN_CHARACTERS = 16 * 1024
MAX_VALUE_CHARACTERS = 255
MAX_CLAIMS = 100  # groups and roles; a credential carries each
CLOCK_SKEW = 60.0  # seconds that a provider's clock may be off

_SIGNATURE_ONLY: Any = {
    f"verify_{name}": name == "signature" for name in ("signature", "exp", "nbf", "iat", "aud", "iss", "sub", "jti")
}


class TokenError(MeshError):
    """The token admits nobody. The text says why, and holds nothing of the token."""


@attrs.frozen
class Unverified:
    """What a token says of who made it, before that is known to be true."""

    issuer: str
    key_id: str | None


@attrs.frozen
class Said:
    """What a provider says of somebody.

    Attributes:
        claims: values by kind: user, email, group, idp_role.
        expires_at: wall-clock seconds.
    """

    issuer: TrustedIssuer
    subject: str
    email: str  # verified; "" when there is none
    claims: Mapping[str, frozenset[str]]
    expires_at: float

    @property
    def identity(self) -> str:
        """Who that is, among all providers."""
        return f"{self.issuer.url}|{self.subject}"


def unverified(token: str) -> Unverified:
    """Whose token it claims to be. Raises TokenError: it is no token."""
    if len(token) > MAX_TOKEN_CHARACTERS or not token.isascii():
        raise TokenError("not a token")
    try:
        header: Mapping[str, object] = jwt.get_unverified_header(token)
        body = token.split(".")[1]
        claims: object = json.loads(binascii.a2b_base64(body.translate(_STANDARD) + "=" * (-len(body) % 4)))
    except (PyJWTError, ValueError, RecursionError, IndexError):
        raise TokenError("not a token") from None
    key_id, issuer = header.get("kid"), cast(dict[str, object], claims).get("iss") if isinstance(claims, dict) else None
    if header.get("alg") not in ALGORITHMS:
        raise TokenError(f"a token is signed with {', '.join(ALGORITHMS)}")
    return Unverified(issuer if isinstance(issuer, str) else "", key_id if isinstance(key_id, str) else None)


def read_token(
    token: str, keys: ProviderKeys, issuer: TrustedIssuer, trust: Trust, now: float, nonce: str | None
) -> Said:
    """Verify a token, and read it.

    Args:
        keys: of the issuer.
        now: wall-clock seconds.
        nonce: what the token has to name, if tokens have to; None for one that need not.
    Raises:
        TokenError: it is not the issuer's, not for us, not of now, or says what cannot be read.
    """
    key = keys.key(unverified(token).key_id)
    if key is None:
        raise TokenError("the issuer has no such key")
    try:
        claims: Mapping[str, object] = jwt.decode(token, key, algorithms=list(ALGORITHMS), options=_SIGNATURE_ONLY)
    except PyJWTError:
        raise TokenError("the token is not signed by its issuer") from None
    if claims.get("iss") != issuer.url:
        raise TokenError("the token is another issuer's")
    _check_audience(claims.get("aud"), trust)
    expires_at = _check_times(claims, now)
    if trust.require_nonce and nonce is not None and claims.get("nonce") != nonce:
        raise TokenError("the token's nonce is not the peer ID")
    return _said(claims, issuer, expires_at)


def _check_audience(found: object, trust: Trust) -> None:
    named = cast(list[object], found) if isinstance(found, list) else [found]
    if not any(audience in named for audience in trust.audiences):
        raise TokenError("the token is for another audience")


def _check_times(claims: Mapping[str, object], now: float) -> float:
    expires_at, issued_at = _number(claims, "exp"), _number(claims, "iat")
    if expires_at + CLOCK_SKEW <= now:
        raise TokenError("the token has expired")
    if issued_at - CLOCK_SKEW > now or ("nbf" in claims and _number(claims, "nbf") - CLOCK_SKEW > now):
        raise TokenError("the token is not good yet")
    return expires_at


def _said(claims: Mapping[str, object], issuer: TrustedIssuer, expires_at: float) -> Said:
    subject = _text(claims.get("sub"), "sub")
    # Whoever has not shown that an address is theirs could give any.
    email = _text(claims["email"], "email") if "email" in claims and claims.get("email_verified") is True else ""
    if issuer.email_suffix and not email.endswith(issuer.email_suffix):
        raise TokenError("the token is of somebody whom this issuer is not trusted to name")
    groups, roles = _texts(claims, "groups"), _texts(claims, "roles")
    if len(groups) + len(roles) > MAX_CLAIMS:
        raise TokenError(f"the token has more than {MAX_CLAIMS} groups and roles")
    known = {"user": {subject}, "email": {email} - {""}, "group": groups, "idp_role": roles}
    return Said(issuer, subject, email, {kind: frozenset(found) for kind, found in known.items() if found}, expires_at)


def _number(claims: Mapping[str, object], name: str) -> float:
    found = claims.get(name)
    if not isinstance(found, int | float) or isinstance(found, bool) or not 0 <= found < 1e11:
        raise TokenError(f"the token has no {name}")
    return float(found)


def _texts(claims: Mapping[str, object], name: str) -> set[str]:
    found = claims.get(name, [])
    if not isinstance(found, list):
        raise TokenError(f"the token's {name} cannot be read")
    return {_text(value, name) for value in cast(list[object], found)}


def _text(found: object, name: str) -> str:
    if not isinstance(found, str) or not 0 < len(found) <= MAX_VALUE_CHARACTERS or not found.isprintable():
        raise TokenError(f"the token's {name} cannot be read")
    return found


_STANDARD = str.maketrans("-_", "+/")
