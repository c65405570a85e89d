"""A policy in Datalog: facts that go into a member's credential, and the same as rules for whoever serves its calls.

A grant is a fact whose first term is the role that it comes from:

    granted_service_exact(role, type, name)      granted_target_exact(role, kind, value)
    granted_service_set(role, type, {names})     granted_target_set(role, kind, {values})
    granted_service_prefix(role, type, text)     granted_target_prefix(role, kind, text)
    granted_service_suffix(role, type, text)     granted_target_suffix(role, kind, text)
    granted_service_all(role, type)              granted_target_all(role, kind)
    granted_service_all_types(role)              granted_target_all_facts(role)

A service that an `http` entry narrows has `http_granted_service_…` in their place, with one more term that names the
entry, and facts of what the entry takes:

    granted_method(entry, {methods}) or granted_method_any(entry)
    granted_path_exact(entry, {paths}), granted_path_prefix(entry, text) or granted_path_any(entry)

`agentmesh.authorization` has the rules that read them.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from agentmesh.control_plane.policy.errors import PolicyError
from agentmesh.control_plane.policy.model import ADMISSION_ROLES, HttpGrant, Policy, Role
from agentmesh.control_plane.policy.patterns import Form, Glob, MemberPattern, ServicePattern
from agentmesh.facts import Fact

MAX_ROLE_FACTS = 700  # of one role; a credential has room for 900 facts, and labels and claims need some
MAX_RULES = 10_000


def grants(role: Role) -> list[Fact]:
    """The facts that say what a role's holders may do, in an order that depends on the role alone."""
    found = [*_services(role), *_targets(role)]
    for index, grant in enumerate(role.http):
        found += _narrowed(role, grant, f"{role.name}#{index}")
    found += [Fact.of_text(statement.text) for statement in role.custom_datalog if not statement.is_rule]
    return list(dict.fromkeys(found))


def credential_facts(roles: Iterable[Role]) -> list[Fact]:
    """What a credential says of its bearer's roles: their names, but for the one of admission, and their grants."""
    held = sorted(roles, key=lambda role: role.name)
    named = [Fact("role", (role.name,)) for role in held if role.name not in ADMISSION_ROLES]
    return named + [fact for role in held for fact in grants(role)]


def rules(policy: Policy) -> list[str]:
    """What whoever serves calls derives from a caller's credential, one rule a line, so that a grant holds before the
    credential is renewed.
    """
    bound = [
        f"{Fact('role', (binding.role,))} <- {_claim(member)}"
        for binding in policy.bindings
        for member in binding.members
        if binding.role not in ADMISSION_ROLES
    ]
    granted = [f"{fact} <- {Fact('role', (role.name,))}" for role in policy.roles for fact in grants(role)]
    custom = [statement.text for role in policy.roles for statement in role.custom_datalog if statement.is_rule]
    return list(dict.fromkeys([*bound, *granted, *custom]))


def check_budget(policy: Policy) -> None:
    """Raises PolicyError: a role has too many facts for a credential, or all together make too many rules."""
    for index, role in enumerate(policy.roles):
        if (count := len(grants(role))) > MAX_ROLE_FACTS:
            raise PolicyError(f"{count} facts, and a credential has room for {MAX_ROLE_FACTS}", f"roles[{index}]")
    if (count := len(rules(policy))) > MAX_RULES:
        raise PolicyError(f"{count} rules are more than {MAX_RULES}")


def _services(role: Role) -> Iterator[Fact]:
    patterns = role.plain_services
    if any(pattern.type is None for pattern in patterns):
        yield Fact("granted_service_all_types", (role.name,))
    typed = [(pattern.type, pattern.name) for pattern in patterns if pattern.type is not None]
    yield from _forms("granted_service", role.name, typed)


def _targets(role: Role) -> Iterator[Fact]:
    patterns = role.allowed_targets
    if any(pattern.kind is None for pattern in patterns):
        yield Fact("granted_target_all_facts", (role.name,))
    kinds = [(pattern.kind, pattern.value) for pattern in patterns if pattern.kind is not None]
    yield from _forms("granted_target", role.name, kinds)


def _forms(name: str, role: str, patterns: Sequence[tuple[str, Glob]]) -> Iterator[Fact]:
    """One fact a pattern, but all exact ones of a key in one set."""
    for key, group in groupby(sorted(set(patterns), key=_order), key=lambda pattern: pattern[0]):
        globs = [glob for _, glob in group]
        exact = frozenset(glob.text for glob in globs if glob.form is Form.EXACT)
        if len(exact) > 1:
            yield Fact(f"{name}_set", (role, key, exact))
        yield from (_fact(name, role, key, glob) for glob in globs if glob.form is not Form.EXACT or len(exact) == 1)


def _fact(name: str, role: str, key: str, glob: Glob) -> Fact:
    text = () if glob.form is Form.ALL else (glob.text,)
    return Fact(f"{name}_{glob.form.value}", (role, key, *text))


def _narrowed(role: Role, grant: HttpGrant, entry: str) -> Iterator[Fact]:
    plain = _service_fact(role.name, grant.service)
    yield Fact(f"http_{plain.name}", (*plain.terms, entry))
    if grant.methods:
        yield Fact("granted_method", (entry, frozenset(grant.methods)))
    else:
        yield Fact("granted_method_any", (entry,))
    if exact := frozenset(path for path in grant.paths if not path.endswith("*")):
        yield Fact("granted_path_exact", (entry, exact))
    for path in sorted(set(grant.paths) - exact):
        yield Fact("granted_path_prefix", (entry, path.removesuffix("*")))
    if not grant.paths:
        yield Fact("granted_path_any", (entry,))


def _service_fact(role: str, service: ServicePattern) -> Fact:
    if service.type is None:
        return Fact("granted_service_all_types", (role,))
    return _fact("granted_service", role, service.type, service.name)


def _claim(member: MemberPattern) -> str:
    match member:
        case MemberPattern(None, _):
            return "node($anybody)"
        case MemberPattern(str(kind), Glob(Form.EXACT, text)):
            return str(Fact(kind, (text,)))
        case MemberPattern(kind, Glob(Form.PREFIX, text)):
            return f'{kind}($value), $value.starts_with("{text}")'
        case MemberPattern(kind, Glob(_, text)):
            return f'{kind}($value), $value.ends_with("{text}")'


def _order(pattern: tuple[str, Glob]) -> tuple[str, str, str]:
    key, glob = pattern
    return key, glob.form.value, glob.text
