"""The authorities by which servers of the web are believed, read once: that takes 20 ms, and 0.8 MiB to keep."""

import functools
import os
import ssl
from collections.abc import Callable

VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # of OpenSSL: where authorities are, if not in the usual place

Create = Callable[[], ssl.SSLContext]


def shared_trust(create: Create) -> ssl.SSLContext:
    """What `create` makes, the same for all who ask for as long as the environment names the same authorities.

    Nobody may add to it: whoever has a certificate to show makes a context of their own.
    """
    return _made(create, *map(os.environ.get, VARIABLES))


@functools.lru_cache(maxsize=8)
def _made(create: Create, _file: str | None, _folder: str | None) -> ssl.SSLContext:
    return create()
