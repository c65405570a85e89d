"""Secrets are nowhere but where they have to be: not in logs, metrics, errors, nor elsewhere in the database.

The words of the test are the secrets themselves, in every spelling in which a program might let them slip.
"""

import base64
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs
import httpx
import pytest
from sqlalchemy import Connection, MetaData, select, text

from agentmesh.control_plane.config import Config
from agentmesh.control_plane.database import open_database
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.server import open_control_plane
from agentmesh.identity import Identity
from agentmesh.wire.messages.mesh.v1 import BootstrapEnrollRequest, BootstrapEnrollResponse
from tests.control_plane.asking import Asking, open_askings, places
from tests.control_plane.plane import PROTOBUF, Clock, Harness, bearer
from tests.servers.postgres import Postgres

ADMIN_TOKEN = "the admin token, which nobody is to read"
JSON = {"Content-Type": "application/json"}
ADMIN = {"Authorization": f"Bearer {ADMIN_TOKEN}"}


def spellings(secret: bytes) -> set[bytes]:
    """As it is, in hexadecimal, base64 and base32, and as Python shows it."""
    encoded = {base64.b64encode(secret), base64.urlsafe_b64encode(secret), base64.b32encode(secret)}
    shown = {repr(secret)[2:-1].encode(), secret.hex().encode(), secret.hex().upper().encode()}
    return {secret, *shown, *(spelling.rstrip(b"=")[:-1] for spelling in encoded)}


def found(secrets: Mapping[str, bytes], places: Mapping[str, bytes]) -> list[str]:
    """Which secret is in which place."""
    return [
        f"{name} in {place}"
        for name, secret in secrets.items()
        for place, content in places.items()
        if any(spelling in content for spelling in spellings(secret))
    ]


def test_the_canary_sings() -> None:
    secret = bytes(range(200, 232))
    for spelling in spellings(secret):
        assert found({"a key": secret}, {"a log": b"... " + spelling + b" ..."}) == ["a key in a log"]
    assert found({"a key": secret}, {"a log": base64.b64encode(secret)}) == ["a key in a log"]


@attrs.frozen
class Life:
    """What a control plane was told and what it said while the tests looked."""

    secrets: dict[str, bytes]  # that are kept nowhere
    kept: dict[str, bytes]  # that are kept in one column of the database
    errors: bytes
    metrics: bytes


async def live(dsn: str) -> Life:
    """A mesh with all that can go wrong in it."""
    config = Config(
        bind_address="127.0.0.1:0",
        db_dsn=dsn,
        admin_token=ADMIN_TOKEN,
        auto_approve_enrollment=True,
        policy=OPEN_POLICY,
        enroll_burst=1000,
    )
    clock, member = Clock(), Identity.generate()
    async with open_control_plane(config, clock) as plane, httpx.AsyncClient(base_url=plane.url) as http:
        token = await plane.create_token("node", max_usages=2)
        mesh = Harness(plane, http, clock)
        enroll = mesh.enroll_request(member, token)
        response = await http.post("/enroll", content=bytes(enroll), headers=PROTOBUF)
        credential = BootstrapEnrollResponse.parse(response.content).biscuit_token
        refresh = bytes(mesh.refresh_request(member))
        old = plane.authority.signing_key.to_bytes()
        errors = [
            await http.post("/enroll", content=bytes(enroll)[:-3], headers=PROTOBUF),
            await http.post("/enroll", content=bytes(enroll), headers={"Content-Type": "application/json"}),
            await http.post("/enroll", content=f'{{"bootstrap_token": "{token}", "no": 1}}', headers=JSON),
            await http.post("/enroll", content=bytes(BootstrapEnrollRequest(peer_id=token)), headers=PROTOBUF),
            await http.get(f"/{token}", params={"token": token}),
            await http.get("/enroll/status", params={"peer_id": token}),
            await http.post("/refresh", content=refresh, headers={**PROTOBUF, **bearer(credential + b"x")}),
            await http.get("/admin/enrollments", headers={"Authorization": f"Basic {ADMIN_TOKEN}"}),
            await http.delete(f"/admin/bootstrap-tokens/{token}", headers=ADMIN),
            await http.post(
                "/admin/bootstrap-tokens",
                json={"role": "node", "max_usages": 0, "ttl": 1, "description": token},
                headers=ADMIN,
            ),
            await http.post("/admin/revoke", json={"peer_id": token}, headers=ADMIN),
        ]
        assert [error.status_code for error in errors if error.status_code < 400] == []
        await plane.authority.rotate(grace=3600.0)
        new = plane.authority.signing_key.to_bytes()
        metrics = await http.get("/metrics")
        await break_database(dsn)
        failed = await http.post("/enroll", content=bytes(enroll), headers=PROTOBUF)
        assert failed.status_code == 503
        errors.append(failed)
    return Life(
        secrets={
            "the bootstrap token": token.encode(),
            "the admin token": ADMIN_TOKEN.encode(),
            "the member's private key": member.private_key.private_bytes_raw(),
        },
        kept={"the old key": old, "the new key": new, "the credential": credential},
        errors=b"\n".join(repr((error.headers, error.content, error.text)).encode() for error in errors),
        metrics=metrics.content,
    )


async def break_database(dsn: str) -> None:
    def rename(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE bootstrap_tokens RENAME TO moved"))

    async with open_database(dsn) as database:
        await database.write(rename)


async def columns_of(dsn: str) -> dict[str, bytes]:
    """All that the database holds, by table and column."""

    def read(connection: Connection) -> dict[str, bytes]:
        tables = MetaData()
        tables.reflect(connection)
        return {
            f"{table.name}.{column.name}": b"\n".join(as_bytes(connection.execute(select(column)).scalars()))
            for table in tables.tables.values()
            for column in table.columns
        }

    async with open_database(dsn) as database:
        return await database.read(read)


def as_bytes(values: Iterable[object]) -> list[bytes]:
    return [value if isinstance(value, bytes) else str(value).encode() for value in values]


async def test_no_secret_is_where_it_need_not_be(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        life = await live(dsn)
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]  # the caller's
    assert "enrolled" in {record.getMessage() for record in ours}
    logs = "\n".join(f"{caplog.handler.format(record)} {vars(record)}" for record in ours)
    said = {"the logs": logs.encode(), "the metrics": life.metrics, "the errors": life.errors}
    assert found(life.secrets | life.kept, said) == []
    columns = await columns_of(dsn)
    assert found(life.secrets, columns) == []
    assert found(life.kept, columns) == [
        "the old key in keyring.private_key",
        "the new key in keyring.private_key",
        "the credential in nodes.biscuit_token",
    ]


async def test_nor_in_the_files_of_the_database(tmp_path: Path, postgres: Postgres) -> None:
    on_sqlite = await live(str(tmp_path / "control-plane.db"))
    files = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    assert found(on_sqlite.secrets, files) == []
    assert found({"the credential": on_sqlite.kept["the credential"]}, files) != []  # it is the right place to look
    on_postgresql = await live(postgres.new_dsn())
    log = {"PostgreSQL's log": (postgres.folder / "log").read_bytes()}
    assert b'relation "bootstrap_tokens" does not exist' in log["PostgreSQL's log"]
    assert found(on_postgresql.secrets | on_postgresql.kept, log) == []


# What is meant for everybody's eyes is named when it is refused: a member's labels, on /info if it is a router.
PUBLIC = ("labels.<key>", "labels.site")


def with_secret(good: Asking, secret: str) -> dict[str, Asking]:
    """The secret in the place of every text in a request; as the name of a field, and in the place of a whole value."""
    found = {place.name: place.put(secret) for place in places(good) if place.name not in PUBLIC}
    if good.body is not None:
        found["a name"] = attrs.evolve(good, body={**good.body, secret: 1}, kind=None)
        found |= {
            f"all of {name}": attrs.evolve(good, body=good.body | {name: [secret]}, kind=None) for name in good.body
        }
    return found


async def test_no_refusal_says_what_it_was_sent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    refused = 0
    with caplog.at_level(logging.DEBUG):
        async with open_askings(tmp_path) as askings:
            secrets = await askings.secrets()
            for method, path in await askings.operations():
                for secret in secrets.values():
                    for name, asking in with_secret(askings.make(method, path), secret).items():
                        for spelling in asking.spellings:
                            response = await asking.send(askings.site.mesh.http, spelling)
                            where = f"the answer to {method} {path} with it as {name}"
                            if response.is_error or path == "/enroll":
                                refused += 1
                                assert found(encoded(secrets), {where: response.content}) == []
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    logs = "\n".join(f"{caplog.handler.format(record)} {vars(record)}" for record in ours)
    assert found(encoded(secrets), {"the logs": logs.encode()}) == []
    assert refused > 100 * len(secrets)


def encoded(secrets: Mapping[str, str]) -> dict[str, bytes]:
    return {name: secret.encode() for name, secret in secrets.items()}
