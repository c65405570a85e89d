"""What would be a statement elsewhere is a text here: in every place of every request, on both databases."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import httpx
import pytest

from agentmesh.credentials import Credential
from agentmesh.identity import Identity
from agentmesh.wire.messages.mesh.v1 import BootstrapEnrollResponse, EnrollmentStatus
from tests.control_plane.asking import AS_ADMIN, JSON, POLICY, PROTOBUF, Asking, Askings, Place, open_askings, places
from tests.control_plane.test_canary import columns_of
from tests.control_plane.test_register import open_site

TEXTS = ["'", '"', "x'); DROP TABLE nodes;--", "%_", "\\", "a\x00b", "é𝔸 :a %s {0}"]
SURROGATE = "\ud800"  # JSON can write it, and nothing can keep it
KEPT = ("/admin/nodes", "/admin/bootstrap-tokens", "/admin/policy")  # where texts that were taken are shown


def forms(asking: Asking, place: Place) -> list[tuple[str, str]]:
    """What is sent: each text alone, and behind what stands there in a good request, a message in protobuf then."""
    spelling = JSON if asking.kind is None else PROTOBUF
    beyond = [(SURROGATE, JSON)] if place.in_body else []
    return [*beyond, *((text, JSON) for text in TEXTS), *((place.now + text, spelling) for text in TEXTS)]


def texts_in(value: object) -> Iterator[str]:
    """Every text in a value of JSON, names too."""
    match value:
        case str():
            yield value
        case list():
            for element in cast(list[object], value):
                yield from texts_in(element)
        case dict():
            for name, inner in cast(dict[str, object], value).items():
                yield name
                yield from texts_in(inner)
        case _:
            pass


def is_taken(response: httpx.Response, spelling: str) -> bool:
    """Whether the request had its way. An enrollment that is rejected is answered with 200."""
    if response.is_success and response.request.url.path == "/enroll" and spelling == PROTOBUF:
        return BootstrapEnrollResponse.parse(response.content).status is not EnrollmentStatus.REJECTED
    return response.is_success and "ENROLLMENT_STATUS_REJECTED" not in response.text


async def shown(askings: Askings) -> set[str]:
    """What the control plane shows of what it was told."""
    answers = [await Asking("GET", path, AS_ADMIN).send(askings.site.mesh.http) for path in KEPT]
    return {text for answer in answers for text in texts_in(answer.json())}


async def test_every_text_is_refused_or_kept_as_it_is(
    tmp_path: Path, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept = set[str]()
    async with open_askings(tmp_path, db_dsn=dsn) as askings:
        mesh, columns = askings.site.mesh, set(await columns_of(dsn))
        for method, path in await askings.operations():
            good = askings.make(method, path)
            for number, place in enumerate(places(good)):
                for text, spelling in forms(good, place):
                    anew = places(askings.make(method, path))[number]
                    response = await anew.put(text).send(mesh.http, spelling)
                    where = (method, path, place.name, text, spelling, response.text)
                    assert response.status_code < 500, where
                    assert "Traceback" not in response.text, where
                    if is_taken(response, spelling):
                        kept.add(place.name)
                        assert text in await shown(askings), where
            await mesh.put_policy(POLICY)
        assert set(await columns_of(dsn)) == columns
    assert {"labels.site", "description", "roles.0.name", "bindings.0.members.0"} <= kept
    assert [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info] == []


async def test_what_a_provider_says_is_no_statement_either(tmp_path: Path, dsn: str) -> None:
    """It is kept as it is, it is in the credential as it is, and a ban is of exactly that."""
    async with open_site(tmp_path, db_dsn=dsn) as site:
        members = dict[str, tuple[Identity, Credential]]()
        for text in TEXTS:
            member = Identity.generate()
            token = site.provider.token(text, groups=["eng", text], roles=[text], email=text, email_verified=True)
            if text.isprintable():
                members[text] = member, await site.registered(member, token)
            else:
                refused = await site.register(member, token)
                assert (refused.status_code, refused.text) == (401, "the token's sub cannot be read\n")
        listed = (await site.mesh.admin("GET", "/nodes")).json()["nodes"]
        assert {node["owner"] for node in listed} == {f"{site.provider.issuer}|{text}" for text in members}
        for text, (_, credential) in members.items():
            assert {kind: set(values) for kind, values in credential.claims.items()} == {
                **dict.fromkeys(("user", "email", "idp_role"), {text}),
                "group": {"eng", text},
            }
        for text, (member, credential) in members.items():
            await site.mesh.ban(member)
            found = {
                node["owner"] for node in (await site.mesh.admin("GET", "/nodes")).json()["nodes"] if node["banned"]
            }
            assert found == {f"{site.provider.issuer}|{text}"}
            assert (await site.refresh(member, credential)).status_code == 403
            await site.mesh.unban(member)
            await site.refreshed(member, credential)
