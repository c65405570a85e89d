"""The identity providers together."""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import httpx
import trio

from agentmesh.control_plane.oidc.provider import Provider, ProviderError
from agentmesh.control_plane.oidc.tokens import Said, TokenError, read_token, unverified
from agentmesh.control_plane.oidc.trust import Trust

logger = logging.getLogger(__name__)

VERIFY_TIMEOUT = 10.0  # seconds, the provider's answers included
CONNECT_TIMEOUT = 5.0


class TokenVerifier:
    """Says what providers say.

    Args:
        providers: those of `trust`.
        wall_clock: gives the seconds since 1970.
    """

    def __init__(self, trust: Trust, providers: Sequence[Provider], wall_clock: Callable[[], float]) -> None:
        self.trust = trust
        self._wall_clock = wall_clock
        self._providers = {provider.issuer.url: provider for provider in providers}

    async def verify(self, token: str, nonce: str | None = None) -> Said:
        """What a token says.

        Args:
            nonce: what it has to name, if tokens have to; None for one that need not.
        Raises:
            TokenError: it admits nobody.
            ProviderError: its issuer does not answer in time.
        """
        claimed = unverified(token)
        provider = self._providers.get(claimed.issuer)
        if provider is None:
            raise TokenError("the token is of an issuer that is not trusted here")
        try:
            with trio.fail_after(VERIFY_TIMEOUT):
                keys = await provider.keys(claimed.key_id)
        except trio.TooSlowError as exc:
            raise ProviderError(f"the identity provider {claimed.issuer} does not answer in time") from exc
        return read_token(token, keys, provider.issuer, self.trust, self._wall_clock(), nonce)

    async def discover(self) -> None:
        """Find all providers. One that does not answer is looked for again when a token of it comes."""
        async with trio.open_nursery() as nursery:
            for provider in self._providers.values():
                nursery.start_soon(_discover, provider)


async def _discover(provider: Provider) -> None:
    try:
        await provider.discover()
    except ProviderError as exc:
        logger.error("identity provider not found", extra={"reason": exc})


@asynccontextmanager
async def open_verifier(
    trust: Trust, wall_clock: Callable[[], float], *, insecure: bool = False
) -> AsyncGenerator[TokenVerifier]:
    """A verifier with connections of its own.

    Args:
        insecure: certificates are not verified, and HTTP will do.
    """
    if not trust.issuers:  # loading the system's certificates for nobody takes a while
        yield TokenVerifier(trust, (), wall_clock)
        return
    timeout = httpx.Timeout(VERIFY_TIMEOUT, connect=CONNECT_TIMEOUT)
    async with httpx.AsyncClient(timeout=timeout, verify=not insecure) as http:
        providers = [Provider(issuer, http, insecure=insecure) for issuer in trust.issuers]
        yield TokenVerifier(trust, providers, wall_clock)
