"""A provider's public keys, as its JWKS document has them (RFC 7517)."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import attrs
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK
from jwt.exceptions import PyJWTError

ALGORITHMS = ("RS256", "ES256", "EdDSA")
MIN_RSA_BITS = 2048
MAX_KEYS = 100


@attrs.frozen
class ProviderKeys:
    """The keys of one provider that we can use, by their IDs; "" for one that has none."""

    by_id: Mapping[str, PyJWK] = attrs.field(factory=dict[str, PyJWK], repr=False)

    @classmethod
    def parse(cls, document: object) -> "ProviderKeys":
        """The keys in a document. Those that are of another kind than ours, too short or no keys at all are left out.

        Raises:
            ValueError: it is no set of keys.
        """
        listed = cast(dict[str, object], document).get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list):
            raise ValueError("the provider's answer is no set of keys")
        return cls(dict(_usable(cast(list[object], listed)[:MAX_KEYS])))

    def key(self, key_id: str | None) -> PyJWK | None:
        """The key that a token names. One that names none is taken for the only key, if there is one only."""
        if key_id is None:
            return next(iter(self.by_id.values())) if len(self.by_id) == 1 else None
        return self.by_id.get(key_id)


def _usable(listed: list[object]) -> Iterator[tuple[str, PyJWK]]:
    for entry in listed:
        fields = cast(dict[str, Any], entry) if isinstance(entry, dict) else {}
        if fields.get("use", "sig") != "sig":
            continue
        try:
            key = PyJWK.from_dict(fields)
        except PyJWTError:
            continue
        short = isinstance(key.key, RSAPublicKey) and key.key.key_size < MIN_RSA_BITS
        if key.algorithm_name in ALGORITHMS and not short:
            yield str(fields.get("kid", "")), key
