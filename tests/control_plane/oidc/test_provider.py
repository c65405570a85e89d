"""Finding a provider and its keys over HTTP: retries, caches, rotation, and answers that are none."""

import json
from collections.abc import Callable

import httpx
import pytest
import trio
from starlette.responses import JSONResponse, Response
from trio.testing import MockClock

from agentmesh.control_plane.oidc import provider as module
from agentmesh.control_plane.oidc.provider import KEYS_LIFETIME, MIN_KEYS_AGE, Provider, ProviderError
from agentmesh.control_plane.oidc.tokens import TokenError
from agentmesh.control_plane.oidc.trust import Trust, TrustedIssuer
from agentmesh.control_plane.oidc.verifier import VERIFY_TIMEOUT, TokenVerifier, open_verifier
from tests.control_plane.oidc.provider import AUDIENCE, IdentityProvider, ProviderKey, open_provider
from tests.control_plane.plane import Clock

ISSUER = TrustedIssuer("https://idp.example")
KEYS = [ProviderKey.make("a", "EdDSA"), ProviderKey.make("b", "ES256")]
CONFIGURATION = {"issuer": ISSUER.url, "jwks_uri": f"{ISSUER.url}/jwks"}


class Site:
    """Answers for a provider, and keeps the instants at which it was asked for its configuration."""

    def __init__(self, *troubles: httpx.Response | Exception) -> None:
        self.troubles, self.keys = [*troubles], list(KEYS[:1])
        self.times: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/jwks":
            return httpx.Response(200, json={"keys": [key.public for key in self.keys]})
        self.times.append(trio.current_time())
        if self.troubles:
            trouble = self.troubles.pop(0)
            if isinstance(trouble, Exception):
                raise trouble
            return trouble
        return httpx.Response(200, json=CONFIGURATION)

    def provider(self) -> Provider:
        return Provider(ISSUER, httpx.AsyncClient(transport=httpx.MockTransport(self)))


async def test_discover_provider_with_retry(autojump_clock: MockClock) -> None:
    """Five attempts, with 1, 2, 4 and 8 seconds between them."""
    site = Site(httpx.ConnectError("refused"), httpx.Response(503), httpx.Response(200, content=b"<html>"))
    provider, began = site.provider(), trio.current_time()
    await provider.discover()
    assert [round(at - began) for at in site.times] == [0, 1, 3, 7]
    assert (await provider.keys("a")).key("a") is not None

    lost = Site(*[httpx.Response(500)] * 9)
    began = trio.current_time()
    with pytest.raises(ProviderError, match="its answer is a 500"):
        await lost.provider().discover()
    assert [round(at - began) for at in lost.times] == [0, 1, 3, 7, 15]


async def test_keys_are_read_again_when_a_token_names_another(autojump_clock: MockClock) -> None:
    site = Site()
    provider = site.provider()
    await provider.keys("a")
    site.keys = [KEYS[1]]
    assert (await provider.keys("b")).key("b") is None  # asked just now
    await trio.sleep(MIN_KEYS_AGE)
    assert (await provider.keys("b")).key("b") is not None
    for name in ("x", "y", "z", "a"):
        await provider.keys(name)
    assert len(site.times) == 2
    await trio.sleep(KEYS_LIFETIME)
    await provider.keys("b")
    assert len(site.times) == 3


async def test_many_at_once_ask_once(autojump_clock: MockClock) -> None:
    site = Site()
    provider = site.provider()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(provider.keys, "a")
    assert len(site.times) == 1


async def test_keys_outlive_a_provider_that_is_away(autojump_clock: MockClock) -> None:
    site = Site()
    provider = site.provider()
    await provider.keys("a")
    site.troubles += [httpx.ConnectError("refused") for _ in range(9)]
    await trio.sleep(KEYS_LIFETIME)
    assert (await provider.keys("a")).key("a") is not None


def answer(**document: object) -> httpx.Response:
    return httpx.Response(200, content=json.dumps(document))


@pytest.mark.parametrize(
    ("trouble", "text"),
    [
        (answer(issuer="https://other.example"), "another issuer's"),
        (answer(issuer=ISSUER.url), "has an https:// URL, not 'None'"),
        (answer(issuer=ISSUER.url, jwks_uri="http://idp.example/jwks"), "has an https:// URL"),
        (answer(issuer=ISSUER.url, jwks_uri=f"{ISSUER.url}/other"), "another issuer's|no set of keys|is a"),
        (httpx.Response(200, content=b"[]"), "no JSON object"),
        (httpx.Response(200, content=b"["), "no JSON"),
        (httpx.Response(200, content=b"[" * 100_000), "no JSON"),
        (httpx.Response(302, headers={"Location": "https://elsewhere.example"}), "is a 302"),
    ],
)
async def test_answers_that_are_none(trouble: httpx.Response, text: str) -> None:
    site = Site(trouble)
    with pytest.raises(ProviderError, match=text):
        await site.provider().keys(None)


async def test_an_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", 10)
    with pytest.raises(ProviderError, match="over 10 bytes"):
        await Site().provider().keys(None)


async def test_a_provider_that_does_not_answer_is_not_waited_for(autojump_clock: MockClock) -> None:
    async def never(_: httpx.Request) -> httpx.Response:
        await trio.sleep_forever()
        raise AssertionError

    provider = Provider(ISSUER, httpx.AsyncClient(transport=httpx.MockTransport(never)))
    maker, began = IdentityProvider(Clock(), ISSUER.url), trio.current_time()
    verifier = TokenVerifier(Trust(issuers=(ISSUER,)), [provider], Clock())
    with pytest.raises(ProviderError, match="in time"):
        await verifier.verify(maker.token())
    assert trio.current_time() - began == VERIFY_TIMEOUT


async def verified(provider: IdentityProvider, *tokens: Callable[[], str]) -> list[str]:
    trust = Trust(issuers=(TrustedIssuer.parse(provider.issuer),), audiences=(AUDIENCE,))
    async with open_verifier(trust, provider.clock) as verifier:
        return [(await verifier.verify(token())).subject for token in tokens]


async def test_a_real_provider_on_loopback() -> None:
    async with open_provider(Clock()) as provider:
        provider.keys = [ProviderKey.make(kind, kind) for kind in ("RS256", "ES256", "EdDSA")]
        made = [lambda key=key: provider.token(key.id, key=key) for key in provider.keys]
        assert await verified(provider, *made) == ["RS256", "ES256", "EdDSA"]
        assert provider.asked == ["/.well-known/openid-configuration", "/jwks"]
        provider.documents["/jwks"] = JSONResponse({"keys": "none"})
        with pytest.raises(ProviderError, match="no set of keys"):
            await verified(provider, provider.token)
        provider.documents["/.well-known/openid-configuration"] = Response(status_code=500)
        with pytest.raises(ProviderError, match="is a 500"):
            await verified(provider, provider.token)


async def test_issuers_that_are_not_trusted() -> None:
    async with open_verifier(Trust(), Clock()) as verifier:
        await verifier.discover()
        with pytest.raises(TokenError, match="not trusted here"):
            await verifier.verify(IdentityProvider(Clock(), ISSUER.url).token())
