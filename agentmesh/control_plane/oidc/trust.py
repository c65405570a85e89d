"""Whose tokens are believed."""

from typing import Self

import attrs
import httpx

DEFAULT_AUDIENCE = "agentmesh-audience"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@attrs.frozen
class TrustedIssuer:
    """An identity provider that is believed.

    Attributes:
        url: as its tokens name it, to the letter.
        workload: whether it speaks of programs; of people otherwise.
        email_suffix: of programs, what their verified email has to end in; "" for any, or none.
    """

    url: str
    workload: bool = False
    email_suffix: str = ""

    @classmethod
    def parse_workload(cls, text: str) -> Self:
        """`<issuer>` or `<issuer>=<email suffix>`. Raises ValueError when the issuer is no URL."""
        url, _, suffix = text.partition("=")
        check_url(url)
        return cls(url, workload=True, email_suffix=suffix)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError when it is no URL."""
        check_url(text)
        return cls(text)


@attrs.frozen(kw_only=True)
class Trust:
    """Which tokens are believed.

    Attributes:
        issuers: each with another URL.
        audiences: a token is for one of these.
        require_nonce: a token has to name the peer that registers with it as its nonce, so that it is of no use to
            another.
    """

    issuers: tuple[TrustedIssuer, ...] = ()
    audiences: tuple[str, ...] = (DEFAULT_AUDIENCE,)
    require_nonce: bool = False

    def __attrs_post_init__(self) -> None:
        urls = [issuer.url for issuer in self.issuers]
        if len(set(urls)) != len(urls):
            raise ValueError("an issuer is named twice")
        if self.issuers and not self.audiences:
            raise ValueError("without an audience every token of the issuer would do")

    def issuer(self, url: str) -> TrustedIssuer | None:
        return next((issuer for issuer in self.issuers if issuer.url == url), None)


def check_url(text: str, *, insecure: bool = False) -> httpx.URL:
    """A URL that a provider may be reached at: HTTPS, or HTTP on this machine.

    Args:
        insecure: HTTP anywhere will do.
    Raises:
        ValueError: it is none. A bar is refused too: it divides an issuer from its subject.
    """
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as exc:
        raise ValueError(f"not a URL: {text!r}") from exc
    plain = url.scheme == "http" and (insecure or url.host in LOOPBACK)
    if not url.host or "|" in text or not (url.scheme == "https" or plain):
        raise ValueError(f"an issuer has an https:// URL, not {text!r}")
    return url
