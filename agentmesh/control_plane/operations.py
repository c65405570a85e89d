"""What the HTTP interface can be asked, each with what it takes and answers: routes and their description are made of
the same list, so that neither has what the other lacks.
"""

import enum
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import attrs
import betterproto2
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Schema = Mapping[str, Any]  # JSON Schema of a body that is JSON only
Body = type[betterproto2.Message] | Schema | str  # a message, JSON only, or text of this media type

BODY_FAULTS = (400, 408, 413, 415)


class Door(enum.Enum):
    """What a caller shows."""

    OPEN = "open"
    CHALLENGE = "challenge"  # a proof in headers
    CREDENTIAL = "credential"  # its credential
    MEMBER = "member"  # both
    USER = "user"  # a token of the identity provider, or the admin token
    ADMIN = "admin"  # the admin token


@attrs.frozen
class Parameter:
    """One in the query or in the path."""

    name: str
    description: str
    required: bool = False
    schema: Schema = attrs.field(factory=lambda: {"type": "string"})


@attrs.frozen(kw_only=True)
class Operation:
    """One method of one path.

    Attributes:
        takes: the body that it reads, if any.
        gives: the body of its answer, if any.
        status: of that answer.
        refusals: the other statuses that it answers with, beside those of bodies and the 503 of a database that is
            away.
    """

    method: str
    path: str
    handle: Callable[[Request], Awaitable[Response]]
    summary: str
    door: Door = Door.OPEN
    takes: Body | None = None
    gives: Body | None = None
    status: int = HTTPStatus.OK
    refusals: tuple[int, ...] = ()
    query: tuple[Parameter, ...] = ()
    path_parameters: tuple[Parameter, ...] = ()

    @property
    def statuses(self) -> tuple[int, ...]:
        """All but `status`, in order."""
        of_body = BODY_FAULTS if self.takes is not None else ()
        return tuple(sorted({*self.refusals, *of_body, 503} - {self.status}))

    @property
    def route(self) -> str:
        """Its path, as it is described and counted."""
        return re.sub(r":\w+}", "}", self.path)  # Starlette writes {id:int}


def codes(operations: Sequence[Operation]) -> Mapping[str, set[int]]:
    """The statuses that each route may answer with."""
    found: dict[str, set[int]] = {}
    for operation in operations:
        found.setdefault(operation.route, set()).update((operation.status, *operation.statuses))
    return found


def routes(operations: Sequence[Operation], guards: Mapping[Door, Middleware]) -> list[Route]:
    """The routes of operations; those behind a door that has a guard pass it first."""
    return [
        Route(
            operation.path,
            operation.handle,
            methods=[operation.method],
            middleware=[guards[operation.door]] if operation.door in guards else [],
        )
        for operation in operations
    ]
