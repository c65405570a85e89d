"""Hypothesis strategies for policies, and for who asks what of whom. The words are few, so that grants meet calls."""

from hypothesis import strategies as st

from agentmesh.authorization import Call
from agentmesh.control_plane.policy.errors import PolicyError
from agentmesh.control_plane.policy.model import ADMISSION_ROLES, Binding, Claims, HttpGrant, Policy, Role
from agentmesh.control_plane.policy.patterns import (
    EVERYBODY,
    TARGET_KINDS,
    LabelPattern,
    MemberPattern,
    ServicePattern,
    TargetPattern,
)
from agentmesh.credentials import CLAIMS
from agentmesh.types import PeerId

PEERS = tuple(PeerId.from_ed25519(bytes([n]) * 32) for n in range(3))
TYPES = ("mcp", "http")
ROLES = (*ADMISSION_ROLES, "dev", "ops", "mesh:elsewhere")
WORDS = ("a", "b", "a.b", "b.a", "a.a.b")
METHODS = ("GET", "POST")
PATHS = ("/", "/a", "/a/", "/a/b", "/b")

words = st.sampled_from(WORDS)
service_names = words | words.map("{}.*".format) | words.map("*.{}".format) | st.just("*")
services = st.one_of(st.just("*"), st.builds("{}://{}".format, st.sampled_from(TYPES), service_names)).map(
    ServicePattern.parse
)
globs = words | words.map("{}*".format) | words.map("*{}".format)
nodes = st.sampled_from(PEERS).map(str)
claim_kinds = st.sampled_from(CLAIMS)
targets = st.one_of(
    st.just("*"),
    nodes,
    nodes.map("node:{}".format),
    st.builds("{}:{}".format, claim_kinds, globs),
    st.sampled_from(TARGET_KINDS).map("{}:*".format),
).map(TargetPattern.parse)
members = st.one_of(st.just(EVERYBODY), nodes.map("node:{}".format), st.builds("{}:{}".format, claim_kinds, globs)).map(
    MemberPattern.parse
)
labels = st.one_of(st.just("*"), words.map("{}=*".format), st.builds("{}={}".format, words, words)).map(
    LabelPattern.parse
)
paths = st.sampled_from(PATHS) | st.sampled_from(("/*", "/a/*"))


@st.composite
def roles(draw: st.DrawFn, name: str) -> Role:
    allowed = tuple(draw(st.lists(services, max_size=4)))
    entries = list[HttpGrant]()
    for service in draw(st.lists(st.sampled_from(allowed), max_size=2)) if allowed else []:
        wanted = draw(st.tuples(st.lists(st.sampled_from(METHODS), max_size=2), st.lists(paths, max_size=3)))
        if any(wanted):
            entries.append(HttpGrant(service, tuple(wanted[0]), tuple(wanted[1])))
    return Role(
        name,
        allowed,
        tuple(draw(st.lists(targets, max_size=4))),
        tuple(draw(st.lists(labels, max_size=3))),
        http=tuple(entries),
    )


@st.composite
def bindings(draw: st.DrawFn, role: str) -> Binding:
    try:
        return Binding(role, tuple(draw(st.lists(members, min_size=1, max_size=3))))
    except PolicyError:  # everybody as a router
        return Binding(role, (MemberPattern.parse("group:a"),))


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    names = draw(st.lists(st.sampled_from(ROLES), unique=True))
    bound = draw(st.lists(st.sampled_from(names), max_size=4)) if names else []
    return Policy(tuple(draw(roles(name)) for name in names), tuple(draw(bindings(name)) for name in bound))


@st.composite
def claims(draw: st.DrawFn, peer: PeerId) -> Claims:
    """What is known of one of PEERS."""
    said = draw(st.dictionaries(claim_kinds, st.frozensets(words, min_size=1, max_size=2), max_size=2))
    return {**said, "node": frozenset({str(peer)})}


calls = st.builds(Call, st.sampled_from(TYPES), words) | st.builds(
    Call, st.sampled_from(TYPES), words, st.sampled_from(METHODS), st.sampled_from(PATHS)
)
