"""Whether a member may call a service of another: decided where the service is, from both credentials and the mesh's
rules. What nothing allows is denied.

A caller's credential carries grants of its roles, each with the role as its first term. A call is allowed when one role
grants both the service and the member that serves it.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import attrs
import biscuit_auth
from biscuit_auth import AuthorizerBuilder, Biscuit, DataLogError

from agentmesh.credentials import CLAIMS, LIMITS, Credential, TrustedKeys, authenticate
from agentmesh.errors import CredentialError, RemoteProtocolError
from agentmesh.facts import Fact

MAX_RULES = 10_000
MAX_DECISIONS = 4096  # that are remembered; deciding takes a third of a millisecond, and more with many facts

# What a grant is worth, for the service, the request and the member it is asked of.
BASELINE = """
    http_method_ok($entry) <- method($method), granted_method($entry, $methods), $methods.contains($method);
    http_method_ok($entry) <- method($method), granted_method_any($entry);
    http_path_ok($entry) <- path($path), granted_path_exact($entry, $paths), $paths.contains($path);
    http_path_ok($entry) <- path($path), granted_path_prefix($entry, $prefix), $path.starts_with($prefix);
    http_path_ok($entry) <- path($path), granted_path_any($entry);
    granted_service_exact($role, $type, $name) <-
        http_granted_service_exact($role, $type, $name, $entry), http_method_ok($entry), http_path_ok($entry);
    granted_service_prefix($role, $type, $text) <-
        http_granted_service_prefix($role, $type, $text, $entry), http_method_ok($entry), http_path_ok($entry);
    granted_service_suffix($role, $type, $text) <-
        http_granted_service_suffix($role, $type, $text, $entry), http_method_ok($entry), http_path_ok($entry);
    granted_service_all($role, $type) <-
        http_granted_service_all($role, $type, $entry), http_method_ok($entry), http_path_ok($entry);
    granted_service_all_types($role) <-
        http_granted_service_all_types($role, $entry), http_method_ok($entry), http_path_ok($entry);

    granted_service($role) <- service($type, $name), granted_service_exact($role, $type, $name);
    granted_service($role) <- service($type, $name), granted_service_set($role, $type, $names), $names.contains($name);
    granted_service($role) <-
        service($type, $name), granted_service_prefix($role, $type, $text), $name.starts_with($text);
    granted_service($role) <-
        service($type, $name), granted_service_suffix($role, $type, $text), $name.ends_with($text);
    granted_service($role) <- service($type, $name), granted_service_all($role, $type);
    granted_service($role) <- service($type, $name), granted_service_all_types($role);

    allow_network_target($role) <- target_fact($kind, $value), granted_target_exact($role, $kind, $value);
    allow_network_target($role) <-
        target_fact($kind, $value), granted_target_set($role, $kind, $values), $values.contains($value);
    allow_network_target($role) <-
        target_fact($kind, $value), granted_target_prefix($role, $kind, $text), $value.starts_with($text);
    allow_network_target($role) <-
        target_fact($kind, $value), granted_target_suffix($role, $kind, $text), $value.ends_with($text);
    allow_network_target($role) <- target_fact($kind, $value), granted_target_all($role, $kind);
    allow_network_target($role) <- target_fact($kind, $value), granted_target_all_facts($role);

    allow if granted_service($role), allow_network_target($role);
    allow if granted_service($role), target_unrestricted(true);
"""

# Rules of these forms are looked up. `role` and who somebody is can be derived by no others.
_RULE = re.compile(
    r'(?P<head>(?P<name>\w+)\((?:"(?P<value>[^"\\]*)")?[^$]*\)) <- (?P<kind>role|node|user|email|group|idp_role)'
    r'\((?:"(?P<exact>[^"\\]*)"\)|\$anybody\)|\$value\), \$value\.(?P<form>starts|ends)_with\("(?P<text>[^"\\]*)"\))'
)
_IDENTITY = frozenset({"role", "node", "client_peer_id", "label", *CLAIMS})


UNRESTRICTED = biscuit_auth.Fact("target_unrestricted(true)")

Claim = tuple[str, str]  # a kind and a value: what a credential says that its bearer is


@attrs.frozen
class Derived:
    """What a rule says of whoever its body is true of. `role`: the same, if it is a role."""

    fact: biscuit_auth.Fact = attrs.field(eq=False)
    role: Claim | None


@attrs.frozen
class Call:
    """What is asked for.

    Attributes:
        method: of the HTTP request; None when the call is none.
        path: as the service sees it, percent signs as they were sent, without a query.
    """

    type: str
    name: str
    method: str | None = None
    path: str | None = None


class MeshRules:
    """The rules that the control plane serves, made quick to apply.

    Nearly all of them say that whoever has one fact has another, as `role("a") <- user("b")`. These are looked up;
    only the rest goes to the Datalog engine, to which ten thousand rules would be a quarter of a second for each call.

    Raises:
        RemoteProtocolError: one of them is no rule, or makes somebody somebody else, or they are too many. Rules of
            which one is missing are not the policy that somebody wrote, so none of them holds then.
    """

    def __init__(self, texts: Sequence[str] = ()) -> None:
        if len(texts) > MAX_RULES:
            raise RemoteProtocolError(f"more than {MAX_RULES} rules")
        self.texts = tuple(texts)
        self._exact = defaultdict[Claim, list[Derived]](list)
        self._wide: list[tuple[str, Callable[[str], bool], Derived]] = []
        self._rest = AuthorizerBuilder(BASELINE)
        for text in texts:
            try:
                self._add(text)
            except DataLogError as exc:
                raise RemoteProtocolError("the control plane serves something that is no rule") from exc

    def builder(self, credential: Credential) -> AuthorizerBuilder:
        """An authorizer with all that the rules say of the bearer of a credential."""
        builder: Any = AuthorizerBuilder()  # its stubs take something else for `merge`
        builder.merge(self._rest)
        for fact in self._said_of(credential):
            builder.add_fact(fact)
        return cast(AuthorizerBuilder, builder)

    def _add(self, text: str) -> None:
        found = _RULE.fullmatch(text)
        head = text.partition("(")[0].strip()
        if head in _IDENTITY and (found is None or head != "role"):
            raise RemoteProtocolError("the control plane serves a rule that makes somebody somebody else")
        if found is None:
            self._rest.add_rule(biscuit_auth.Rule(text))
            return
        role = found["value"] if found["name"] == "role" else None
        derived = Derived(biscuit_auth.Fact(found["head"]), None if role is None else ("role", role))
        if found["exact"] is not None:
            self._exact[found["kind"], found["exact"]].append(derived)
        else:
            self._wide.append((found["kind"], _matcher(found["form"], found["text"]), derived))

    def _said_of(self, credential: Credential) -> Iterator[biscuit_auth.Fact]:
        waiting = [*identity(credential), ("role", credential.role), *(("role", r) for r in credential.roles)]
        seen = set(waiting)
        while waiting:
            claim = waiting.pop()
            for derived in self._following(claim):
                yield derived.fact
                if derived.role is not None and derived.role not in seen:
                    seen.add(derived.role)
                    waiting.append(derived.role)

    def _following(self, claim: "Claim") -> Iterator["Derived"]:
        yield from self._exact.get(claim, ())
        yield from (derived for kind, matches, derived in self._wide if kind == claim[0] and matches(claim[1]))


class Authorizer:
    """Decides about calls of one member's services.

    Args:
        rules: the mesh's, as they are known when it is made.
    """

    def __init__(self, rules: MeshRules) -> None:
        self._rules = rules
        self._decisions: dict[tuple[bytes, bytes | None, Call], bool] = {}

    def check(self, caller: Credential, provider: Credential | None, call: Call, trusted: TrustedKeys) -> None:
        """Return if the call is allowed. Only the first of its kind costs an evaluation.

        Args:
            caller: verified, just now.
            provider: our own; None when what is called belongs to the mesh as a whole, and to no member.
            trusted: keys, one of which signed the caller's credential.
        Raises:
            CredentialError: it is not; "denied".
        """
        # Whoever may call a service in any way may call it in this one: there is nothing that forbids. So a service
        # whose grant is not narrowed is one decision, however many paths are asked for.
        plain = Call(call.type, call.name)
        if self._allows(caller, provider, plain, trusted) or self._allows(caller, provider, call, trusted):
            return
        if not self._rules.texts:
            raise CredentialError("the mesh has no policy, so that nobody may call anything", "denied")
        raise CredentialError(f"no role of {caller.peer} grants this call of {call.type}://{call.name} here", "denied")

    def _allows(self, caller: Credential, provider: Credential | None, call: Call, trusted: TrustedKeys) -> bool:
        key = (caller.token, None if provider is None else provider.token, call)
        allowed = self._decisions.pop(key, None)
        if allowed is None:
            allowed = self._decide(caller, provider, call, trusted)
            if len(self._decisions) >= MAX_DECISIONS:
                del self._decisions[next(iter(self._decisions))]
        self._decisions[key] = allowed
        return allowed

    def _decide(self, caller: Credential, provider: Credential | None, call: Call, trusted: TrustedKeys) -> bool:
        builder: Any = self._rules.builder(caller)
        for fact in _facts_of(call, caller, provider):
            builder.add_fact(fact.built())
        if provider is None:
            builder.add_fact(UNRESTRICTED)
        builder.set_limits(LIMITS)
        token: Biscuit = authenticate(caller.token, trusted)
        try:
            builder.build(token).authorize()
        except biscuit_auth.AuthorizationError:
            return False
        return True


def identity(credential: Credential) -> list[Claim]:
    """Who the bearer is, as targets and bindings name it: its peer ID, and what an identity provider says of it."""
    claims: Mapping[str, Iterable[str]] = credential.claims
    return [
        ("node", str(credential.peer)),
        *((kind, value) for kind, found in claims.items() for value in sorted(found)),
    ]


def _matcher(form: str | None, text: str) -> Callable[[str], bool]:
    """Of a wildcard; of anybody when `form` is None."""
    match form:
        case "starts":
            return lambda value: value.startswith(text)
        case "ends":
            return lambda value: value.endswith(text)
        case _:
            return lambda value: True


def _facts_of(call: Call, caller: Credential, provider: Credential | None) -> Iterator[Fact]:
    yield Fact("service", (call.type, call.name))
    yield Fact("connection_peer_id", (str(caller.peer),))
    if call.method is not None:
        yield Fact("method", (call.method,))
    if call.path is not None:
        yield Fact("path", (call.path,))
    for kind, value in identity(provider) if provider is not None else ():
        yield Fact("target_fact", (kind, value))
