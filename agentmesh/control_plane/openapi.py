"""The interface as an OpenAPI document, made of the operations themselves and of the definitions of the messages."""

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, cast

import betterproto2

from agentmesh.control_plane.http import JSON, PROTOBUF
from agentmesh.control_plane.operations import Body, Door, Operation, Parameter
from agentmesh.wire.plain import Field, Kind, fields_of, names_of

TEXT = "text/plain"

_SECURITY: dict[Door, list[dict[str, list[str]]]] = {
    Door.OPEN: [],
    Door.CHALLENGE: [{"challengeTime": [], "challengeSignature": []}],
    Door.CREDENTIAL: [{"credential": []}],
    Door.MEMBER: [{"credential": [], "challengeTime": [], "challengeSignature": []}],
    Door.USER: [{"userToken": []}, {"adminToken": []}],
    Door.ADMIN: [{"adminToken": []}],
}
_SCHEMES = {
    "credential": {"type": "http", "scheme": "bearer", "description": "The caller's credential, in base64."},
    "challengeTime": {"type": "apiKey", "in": "header", "name": "X-Mesh-Challenge-Ts"},
    "challengeSignature": {"type": "apiKey", "in": "header", "name": "X-Mesh-Challenge-Sig"},
    "userToken": {"type": "http", "scheme": "bearer", "description": "A token of the identity provider."},
    "adminToken": {"type": "http", "scheme": "bearer", "description": "The admin token."},
}


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """An OpenAPI 3.0 document of these operations."""
    messages: dict[str, type[betterproto2.Message]] = {}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        for kind in _messages_of(operation):
            _collect(kind, messages)
        paths.setdefault(operation.route, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "agentmesh control plane",
            "version": version("agentmesh"),
            "description": f"Bodies that are messages are {PROTOBUF} or {JSON}, as Content-Type and Accept say.",
        },
        "paths": paths,
        "components": {
            "schemas": {name: _schema_of(kind) for name, kind in sorted(messages.items())},
            "securitySchemes": _SCHEMES,
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    answers: dict[str, Any] = {str(operation.status): _answer(operation)}
    for status in operation.statuses:
        answers[str(status)] = {"description": HTTPStatus(status).phrase, "content": _content(TEXT)}
    found: dict[str, Any] = {"summary": operation.summary, "responses": answers}
    found["security"] = _SECURITY[operation.door]
    if parameters := [*_parameters(operation.path_parameters, "path"), *_parameters(operation.query, "query")]:
        found["parameters"] = parameters
    if operation.takes is not None:
        found["requestBody"] = {"required": True, "content": _content(operation.takes)}
    return found


def _answer(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {"description": HTTPStatus(operation.status).phrase}
    if operation.gives is not None:
        found["content"] = _content(operation.gives)
    return found


def _content(body: Body) -> dict[str, Any]:
    if isinstance(body, str):
        return {body: {"schema": {"type": "string"}}}
    if not isinstance(body, type):
        return {JSON: {"schema": body}}
    reference = {"$ref": f"#/components/schemas/{body.__name__}"}
    return {JSON: {"schema": reference}, PROTOBUF: {"schema": {"type": "string", "format": "binary"}}}


def _parameters(parameters: Sequence[Parameter], place: str) -> Iterator[dict[str, Any]]:
    for parameter in parameters:
        yield {
            "name": parameter.name,
            "in": place,
            "description": parameter.description,
            "required": parameter.required or place == "path",
            "schema": parameter.schema,
        }


def _messages_of(operation: Operation) -> Iterator[type[betterproto2.Message]]:
    for body in (operation.takes, operation.gives):
        if isinstance(body, type):
            yield body


def _collect(kind: type[betterproto2.Message], into: dict[str, type[betterproto2.Message]]) -> None:
    """The message and those within."""
    into[kind.__name__] = kind
    for field in fields_of(kind).values():
        if field.kind is Kind.MESSAGE and cast(Any, field.of).__name__ not in into:
            _collect(cast(Any, field.of), into)


def _schema_of(kind: type[betterproto2.Message]) -> dict[str, Any]:
    properties = {name: _field_schema(field) for name, field in fields_of(kind).items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _field_schema(field: Field) -> dict[str, Any]:
    one = _one_schema(field)
    if field.map:
        return {"type": "object", "additionalProperties": one}
    return {"type": "array", "items": one} if field.repeated else one


def _one_schema(field: Field) -> dict[str, Any]:
    match field.kind:
        case Kind.TEXT:
            return {"type": "string"}
        case Kind.BYTES:
            return {"type": "string", "format": "byte"}
        case Kind.FLAG:
            return {"type": "boolean"}
        case Kind.NUMBER:
            return {"type": "integer", "minimum": field.range[0], "maximum": field.range[1]}
        case Kind.CHOICE:
            return {"type": "string", "enum": list(names_of(cast(Any, field.of)))}
        case Kind.MESSAGE:
            return {"$ref": f"#/components/schemas/{cast(Any, field.of).__name__}"}
        case Kind.INSTANT:
            return {"type": "string", "format": "date-time"}
        case Kind.DURATION:
            return {"type": "string", "pattern": r"^-?\d+(\.\d+)?s$"}
