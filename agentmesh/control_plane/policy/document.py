"""A policy as a document: plain values as JSON and YAML have them. Every field that is not known is a fault.

{"roles": [{"name": "developer", "allowed_services": ["mcp://build.*"], "allowed_targets": ["group:ci"],
            "allowed_labels": ["team=*"], "custom_datalog": [],
            "http": [{"service": "mcp://build.*", "methods": ["POST"], "paths": ["/mcp"]}]}],
 "bindings": [{"role": "developer", "members": ["group:engineering"]}]}
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

from agentmesh.control_plane.policy.errors import PolicyError
from agentmesh.control_plane.policy.model import Binding, HttpGrant, Policy, Role
from agentmesh.control_plane.policy.patterns import LabelPattern, MemberPattern, ServicePattern, TargetPattern
from agentmesh.control_plane.policy.statements import CustomStatement
from agentmesh.wire.plain import unknown_field

T = TypeVar("T")

_POLICY = ("roles", "bindings")
_ROLE = ("name", "allowed_services", "allowed_targets", "allowed_labels", "custom_datalog", "http")
_HTTP = ("service", "methods", "paths")
_BINDING = ("role", "members")


def parse_policy(document: object) -> Policy:
    """Read a policy. Raises PolicyError, which says where and what."""
    fields = _fields(document, _POLICY)
    roles = _each(fields, "roles", _role)
    return Policy(roles, _each(fields, "bindings", _binding))


def policy_document(policy: Policy) -> dict[str, Any]:
    """The policy as plain values; `parse_policy` gives the same policy again. What is empty is left out."""
    roles = [
        _full(
            name=role.name,
            allowed_services=[str(pattern) for pattern in role.allowed_services],
            allowed_targets=[str(pattern) for pattern in role.allowed_targets],
            allowed_labels=[str(pattern) for pattern in role.allowed_labels],
            custom_datalog=[str(statement) for statement in role.custom_datalog],
            http=[
                _full(service=str(grant.service), methods=list(grant.methods), paths=list(grant.paths))
                for grant in role.http
            ],
        )
        for role in policy.roles
    ]
    bindings = [{"role": binding.role, "members": [str(m) for m in binding.members]} for binding in policy.bindings]
    return {"roles": roles, "bindings": bindings}


def _role(value: object) -> Role:
    fields = _fields(value, _ROLE)
    return Role(
        name=_text(fields.get("name"), "name"),
        allowed_services=_each(fields, "allowed_services", _of_text(ServicePattern.parse)),
        allowed_targets=_each(fields, "allowed_targets", _of_text(TargetPattern.parse)),
        allowed_labels=_each(fields, "allowed_labels", _of_text(LabelPattern.parse)),
        custom_datalog=_each(fields, "custom_datalog", _of_text(CustomStatement.parse)),
        http=_each(fields, "http", _http),
    )


def _http(value: object) -> HttpGrant:
    fields = _fields(value, _HTTP)
    service = _text(fields.get("service"), "service")
    methods, paths = _each(fields, "methods", _of_text(str)), _each(fields, "paths", _of_text(str))
    return HttpGrant(_at("service", partial(ServicePattern.parse, service)), methods, paths)


def _binding(value: object) -> Binding:
    fields = _fields(value, _BINDING)
    return Binding(_text(fields.get("role"), "role"), _each(fields, "members", _of_text(MemberPattern.parse)))


def _fields(value: object, known: tuple[str, ...]) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise PolicyError(f"an object with {', '.join(known)} is needed")
    fields = cast(dict[object, object], value)
    for name in sorted(map(str, fields)):
        if name not in known:
            raise PolicyError(unknown_field(name, known))
    return cast(dict[str, object], fields)


def _each(fields: Mapping[str, object], name: str, read: Callable[[object], T]) -> tuple[T, ...]:
    values = fields.get(name, [])
    if not isinstance(values, list):
        raise PolicyError("a list is needed", name)
    found = enumerate(cast(list[object], values))
    return tuple(_at(f"{name}[{index}]", partial(read, value)) for index, value in found)


def _of_text(parse: Callable[[str], T]) -> Callable[[object], T]:
    return lambda value: parse(_text(value))


def _text(value: object, where: str = "") -> str:
    if not isinstance(value, str):
        raise PolicyError("a text is needed", where)
    return value


def _at(where: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except PolicyError as exc:
        raise exc.at(where) from None


def _full(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value != []}
