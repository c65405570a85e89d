"""A policy: who has which role, and what a role may do. Whatever it does not grant is denied.

Roles add up: a member may do what any one of its roles grants. A role's services, targets and HTTP narrowing belong
together, so that no two roles give more than each of them by itself.
"""

import re
from collections.abc import Mapping

import attrs

from agentmesh.authorization import Call
from agentmesh.control_plane.policy.errors import PolicyError
from agentmesh.control_plane.policy.patterns import (
    LabelPattern,
    MemberPattern,
    ServicePattern,
    TargetPattern,
    value_fault,
)
from agentmesh.control_plane.policy.statements import CustomStatement
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER

RESERVED = "mesh:role:"
ADMISSION_ROLES = (ROLE_NODE, ROLE_ROUTER)  # every member has exactly one: what it enrolled as
MAX_ROLES = 1000
MAX_PATH_CHARACTERS = 1024

_METHOD = re.compile(r"[A-Z]{1,20}")

Claims = Mapping[str, frozenset[str]]  # what is known of a member, values by kind: user, email, group, idp_role, node


@attrs.frozen
class HttpGrant:
    """Narrows one of its role's services to some methods and paths of HTTP; an empty list is any.

    Attributes:
        paths: as the service sees them; one that ends in `/*` is everything below.
    """

    service: ServicePattern
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        if not self.methods and not self.paths:
            raise PolicyError("neither methods nor paths: this narrows nothing")
        for index, method in enumerate(self.methods):
            if not _METHOD.fullmatch(method):
                raise PolicyError("a method is a word in capitals", f"methods[{index}]")
        for index, path in enumerate(self.paths):
            if fault := _path_fault(path):
                raise PolicyError(fault, f"paths[{index}]")

    def matches(self, method: str, path: str) -> bool:
        return self._takes_method(method) and self._takes_path(path)

    def _takes_method(self, method: str) -> bool:
        return not self.methods or method in self.methods

    def _takes_path(self, path: str) -> bool:
        return not self.paths or any(
            path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern for pattern in self.paths
        )


@attrs.frozen
class Role:
    """What its holders may do."""

    name: str
    allowed_services: tuple[ServicePattern, ...] = ()
    allowed_targets: tuple[TargetPattern, ...] = ()
    allowed_labels: tuple[LabelPattern, ...] = ()
    custom_datalog: tuple[CustomStatement, ...] = ()
    http: tuple[HttpGrant, ...] = ()

    def __attrs_post_init__(self) -> None:
        if fault := value_fault(self.name):
            raise PolicyError(fault, "name")
        if self.name.startswith(RESERVED) and self.name not in ADMISSION_ROLES:
            raise PolicyError(f"{RESERVED}… is for {' and '.join(ADMISSION_ROLES)}", "name")
        for index, grant in enumerate(self.http):
            if grant.service not in self.allowed_services:
                raise PolicyError("this is not among allowed_services", f"http[{index}].service")

    @property
    def plain_services(self) -> tuple[ServicePattern, ...]:
        """Those that no `http` entry narrows, each once."""
        narrowed = {grant.service for grant in self.http}
        return tuple(dict.fromkeys(service for service in self.allowed_services if service not in narrowed))

    def allows_label(self, key: str, value: str) -> bool:
        return any(pattern.matches(key, value) for pattern in self.allowed_labels)

    def allows_target(self, target: Claims) -> bool:
        """Whether its holders may call the member of whom this is known."""
        kinds = [(kind, value) for kind, values in target.items() for value in values]
        return any(pattern.matches(kind, value) for pattern in self.allowed_targets for kind, value in kinds)

    def allows_service(self, call: Call) -> bool:
        """Whether its holders may call the service, as they do."""
        if any(pattern.matches(call.type, call.name) for pattern in self.plain_services):
            return True
        return any(
            call.method is not None
            and call.path is not None
            and grant.service.matches(call.type, call.name)
            and grant.matches(call.method, call.path)
            for grant in self.http
        )


@attrs.frozen
class Binding:
    """Gives a role to its members."""

    role: str
    members: tuple[MemberPattern, ...]

    def __attrs_post_init__(self) -> None:
        if not self.members:
            raise PolicyError("a binding has at least one member", "members")
        if self.role == ROLE_ROUTER and any(member.kind is None for member in self.members):
            raise PolicyError(
                "not everybody can be a router: routers are named one by one, or by what they claim", "members"
            )


@attrs.frozen
class Policy:
    """The policy of a mesh, sound in itself. An empty one grants nothing."""

    roles: tuple[Role, ...] = ()
    bindings: tuple[Binding, ...] = ()
    _by_name: Mapping[str, Role] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        by_name = {role.name: role for role in self.roles}
        if len(self.roles) > MAX_ROLES:
            raise PolicyError(f"more than {MAX_ROLES} roles", "roles")
        seen = set[str]()
        for index, role in enumerate(self.roles):
            if role.name in seen:
                raise PolicyError("there is another role of that name", f"roles[{index}].name")
            seen.add(role.name)
        for index, binding in enumerate(self.bindings):
            if binding.role not in by_name:
                raise PolicyError("there is no such role", f"bindings[{index}].role")
        object.__setattr__(self, "_by_name", by_name)

    def role(self, name: str) -> Role | None:
        return self._by_name.get(name)

    def bound(self, claims: Claims) -> tuple[str, ...]:
        """The names of the roles that the bindings give somebody of whom this is known, admission roles too."""
        found = (b.role for b in self.bindings if any(member.matches(claims) for member in b.members))
        return tuple(dict.fromkeys(found))

    def roles_of(self, admitted_as: str, claims: Claims) -> tuple[Role, ...]:
        """The roles of a member, by name: the one that it was admitted as, and those that the bindings give it.

        Args:
            admitted_as: one of ADMISSION_ROLES. No binding gives a second: a node does not become a router by what it
                claims after it is in.
            claims: what is known of it.
        """
        names = {admitted_as, *(name for name in self.bound(claims) if name not in ADMISSION_ROLES)}
        return tuple(role for name in sorted(names) if (role := self.role(name)) is not None)

    def allows(self, admitted_as: str, claims: Claims, target: Claims, call: Call) -> bool:
        """Whether a member may make a call. Routers reach every member, and there only what their roles grant.

        Args:
            admitted_as: as in `roles_of`.
            claims: what is known of the member that calls.
            target: what is known of the member that serves.
            call: what it asks for.
        """
        return any(
            role.allows_service(call) and (admitted_as == ROLE_ROUTER or role.allows_target(target))
            for role in self.roles_of(admitted_as, claims)
        )


def _path_fault(path: str) -> str | None:
    if fault := value_fault(path) if len(path) <= MAX_PATH_CHARACTERS else "too long":
        return fault
    bare = path.removesuffix("*")
    if not path.startswith("/") or "*" in bare or "?" in path or "#" in path:
        return "a path begins with '/', has no query, and a '*' only as its last part"
    if bare != path and not bare.endswith("/"):
        return "a '*' stands behind a '/'"
    if {".", ".."} & set(path.split("/")):
        return "this has a dot segment, which no request has"
    return None
