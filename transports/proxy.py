"""Which outbound proxy leads to a target, if any: `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`.

Every transport over TCP asks its proxy for a tunnel by CONNECT, whatever it then speaks in it, and `HTTPS_PROXY` is the
variable for that. The variables are read once, when the transport is made.
"""

import base64
import ipaddress
import os
import re
import ssl
import urllib.request
from typing import Self
from urllib.parse import SplitResult, unquote, urlsplit

import attrs

from agentmesh.errors import AddressError
from agentmesh.transports.proxy_bypass import LOOPBACK, Bypass

PORTS = {"http": 80, "https": 443}  # where a proxy is whose URL does not say
HINT = "; write http://user:password@host:port, and percent-encode what is special in the password"


@attrs.frozen
class Proxy:
    """An HTTP proxy that takes CONNECT. Its text and its repr are without the credentials.

    Attributes:
        host: a name or an IP address.
        port: where it listens.
        tls: how to verify it, when it is reached by TLS; None when in clear text.
        credentials: user and password, for Basic.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = attrs.field(default=None, repr=False)
    credentials: tuple[str, str] | None = attrs.field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str, *, tls: ssl.SSLContext | None = None) -> Self:
        """`http://user:password@host:port` or `https://…`; without a scheme it is http, without a port 80 or 443.

        Args:
            tls: how to verify an https proxy; by the system's roots if it is None.
        Raises:
            AddressError: not the URL of such a proxy. The text does not repeat it: it may hold a password.
        """
        parts, host, port, credentials = _split(url.strip())
        if parts.scheme not in PORTS:
            raise AddressError(f"a proxy is reached by http or https, not by {parts.scheme}")
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise AddressError(f"the URL of a proxy has no path{HINT}")
        if credentials and ":" in credentials[0]:
            raise AddressError("the name of a proxy's user has no colon")
        context = (tls or _client_context()) if parts.scheme == "https" else None
        return cls(host, PORTS[parts.scheme] if port is None else port, context, credentials)

    @property
    def authorization(self) -> str | None:
        """The value of Proxy-Authorization (RFC 7617), if there is something to show."""
        if self.credentials is None:
            return None
        return "Basic " + base64.b64encode(":".join(self.credentials).encode()).decode()

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}"


@attrs.frozen
class ProxyRules:
    """What is reached through which proxy.

    Attributes:
        proxy: for all targets but those of `bypass`; None: everything is reached directly.
        bypass: what is reached directly in spite of it; this machine itself, if nothing is said.
    """

    proxy: Proxy | None = None
    bypass: Bypass = Bypass.parse(LOOPBACK)

    @classmethod
    def parse(cls, url: str, no_proxy: str = "") -> Self:
        """The proxy of a URL, for all targets but this machine itself and those that `no_proxy` lists.

        Raises:
            AddressError: as `Proxy.parse`.
        """
        return cls(Proxy.parse(url), Bypass.parse(f"{LOOPBACK},{no_proxy}"))

    @classmethod
    def from_environment(cls, scheme: str = "https") -> Self:
        """What `<scheme>_PROXY`, or else `ALL_PROXY`, and `NO_PROXY` say; in lower case they come first.

        Raises:
            AddressError: the variable that it names is not the URL of a proxy.
        """
        found = urllib.request.getproxies()  # as httpx and requests have it
        key, no_proxy = scheme if scheme in found else "all", found.get("no", "")
        if key not in found or Bypass.parse(no_proxy).everything:
            return cls()
        try:
            return cls.parse(found[key], no_proxy)
        except AddressError as exc:
            raise AddressError(f"{_variable(key)}: {exc}") from None

    def proxy_for(self, host: str, port: int) -> Proxy | None:
        """The proxy that leads to a target; None when it is reached directly."""
        return None if self.proxy is None or self.bypass.holds(host, port) else self.proxy


DIRECT = ProxyRules()  # no proxy, whatever the environment says


def _split(url: str) -> tuple[SplitResult, str, int | None, tuple[str, str] | None]:
    """The URL, and of its authority the host, the port and the credentials."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port, user = parts.hostname or "", parts.port, parts.username
        password = unquote(parts.password or "", errors="strict")
        credentials = None if user is None else (unquote(user, errors="strict"), password)
    except ValueError:
        raise AddressError(f"not the URL of a proxy{HINT}") from None
    if not _is_host(host) or port == 0:
        raise AddressError(f"not the URL of a proxy: it names no host, or a port that is none{HINT}")
    return parts, host, port, credentials


def _is_host(text: str) -> bool:
    if re.fullmatch(r"[\w.-]+", text):
        return True
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _variable(key: str) -> str:
    """How the variable is spelt that `getproxies` has read."""
    lower = f"{key}_proxy"
    return lower if os.environ.get(lower) else lower.upper()
