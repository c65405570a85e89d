"""One identity provider over HTTP (OpenID Connect Discovery 1.0): where its keys are, and which."""

import json
import logging
import math
from http import HTTPStatus
from typing import Any, cast

import httpx
import trio

from agentmesh.control_plane.oidc.keys import ProviderKeys
from agentmesh.control_plane.oidc.trust import TrustedIssuer, check_url
from agentmesh.errors import MeshError

logger = logging.getLogger(__name__)

DISCOVERY_PATH = "/.well-known/openid-configuration"
DISCOVERY_WAITS = (1.0, 2.0, 4.0, 8.0)  # seconds between five attempts
MAX_DOCUMENT_BYTES = 512 * 1024
KEYS_LIFETIME = 3600.0  # seconds until keys are read anew
MIN_KEYS_AGE = 30.0  # seconds; however many tokens name keys that are not there, we ask no more often


class ProviderError(MeshError):
    """The provider does not answer, or not as a provider does. Try again later."""


class Provider:
    """The keys of one provider, as they were last read.

    Args:
        insecure: documents may come over HTTP.
    """

    def __init__(self, issuer: TrustedIssuer, http: httpx.AsyncClient, *, insecure: bool = False) -> None:
        self.issuer = issuer
        self._http, self._insecure = http, insecure
        self._turn = trio.Lock()
        self._keys, self._read_at = ProviderKeys(), -math.inf

    async def keys(self, key_id: str | None) -> ProviderKeys:
        """Its keys, with the one that a token names if it has it.

        Raises:
            ProviderError: it does not answer, and we have none.
        """
        if self._may_do(key_id):
            return self._keys
        async with self._turn:
            if not self._may_do(key_id):
                await self._read()
        return self._keys

    async def discover(self) -> None:
        """Read its keys for the first time, trying five times. Raises ProviderError."""
        for wait in (*DISCOVERY_WAITS, None):
            try:
                await self.keys(None)
                return
            except ProviderError as exc:
                if wait is None:
                    raise
                logger.warning("identity provider not reached", extra={"issuer": self.issuer.url, "reason": exc})
                await trio.sleep(wait)

    def _may_do(self, key_id: str | None) -> bool:
        """Whether the keys that we have are good enough for a token."""
        age = trio.current_time() - self._read_at
        known = key_id is None or self._keys.key(key_id) is not None
        return age < (KEYS_LIFETIME if known else MIN_KEYS_AGE)

    async def _read(self) -> None:
        try:
            document = await self._document(self.issuer.url.rstrip("/") + DISCOVERY_PATH)
            if document.get("issuer") != self.issuer.url:
                raise ProviderError("its configuration is another issuer's")
            where = str(check_url(str(document.get("jwks_uri")), insecure=self._insecure))
            self._keys = ProviderKeys.parse(await self._document(where))
        except (ProviderError, ValueError) as exc:
            if not self._keys.by_id:
                raise ProviderError(f"the identity provider {self.issuer.url} does not answer: {exc}") from exc
            logger.warning("identity provider's keys not read", extra={"issuer": self.issuer.url, "reason": exc})
        self._read_at = trio.current_time()

    async def _document(self, url: str) -> dict[str, Any]:
        try:
            body = await self._get(url)
            found: object = json.loads(body)
        except httpx.HTTPError as exc:
            raise ProviderError(str(exc) or type(exc).__name__) from exc
        except (ValueError, RecursionError) as exc:
            raise ProviderError("its answer is no JSON") from exc
        if not isinstance(found, dict):
            raise ProviderError("its answer is no JSON object")
        return cast(dict[str, Any], found)

    async def _get(self, url: str) -> bytes:
        body = bytearray()
        async with self._http.stream("GET", url, headers={"Accept": "application/json"}) as response:
            if response.status_code != HTTPStatus.OK:
                raise ProviderError(f"its answer is a {response.status_code}")
            with trio.CancelScope() as scope:
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > MAX_DOCUMENT_BYTES:
                        scope.cancel()  # and no exception: the iterators below are to be unwound from the innermost out
        if len(body) > MAX_DOCUMENT_BYTES:
            raise ProviderError(f"its answer is over {MAX_DOCUMENT_BYTES} bytes")
        return bytes(body)
