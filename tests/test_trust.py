"""Authorities are read once, and all clients that are told nothing else believe them."""

import ssl
from typing import Any

import pytest

from agentmesh.services.client import HTTPX
from agentmesh.services.client2 import HTTPX2
from agentmesh.services.client_parts import Library
from agentmesh.trust import VARIABLES, shared_trust

LIBRARIES = pytest.mark.parametrize("library", [HTTPX, HTTPX2], ids=["httpx", "httpx2"])


@pytest.mark.parametrize("variable", VARIABLES)
def test_authorities_are_read_once_for_each_place_that_the_environment_names(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[ssl.SSLContext]()

    def create() -> ssl.SSLContext:
        made.append(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        return made[-1]

    monkeypatch.delenv(variable, raising=False)
    usual = shared_trust(create)
    assert shared_trust(create) is usual
    monkeypatch.setenv(variable, "elsewhere")
    assert shared_trust(create) is shared_trust(create) is made[1]
    monkeypatch.delenv(variable)
    assert shared_trust(create) is usual
    assert len(made) == 2


@LIBRARIES
def test_clients_that_are_told_nothing_share_what_their_library_believes(library: Library) -> None:
    options = library.trusting({"timeout": 3.0})
    assert options["timeout"] == 3.0
    context = options["verify"]
    assert isinstance(context, ssl.SSLContext)
    assert library.trusting({})["verify"] is context
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.get_ca_certs()


@LIBRARIES
@pytest.mark.parametrize("told", [{"verify": False}, {"cert": "mine.pem"}, {"trust_env": False}], ids=str)
def test_clients_that_are_told_make_their_own(library: Library, told: dict[str, Any]) -> None:
    assert library.trusting(told) == told
