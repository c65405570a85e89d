"""Datalog that an operator writes: one fact or one rule, about nothing that only the control plane may say."""

import re
from typing import Self

import attrs
from biscuit_auth import AuthorizerBuilder, DataLogError, Fact, Rule

from agentmesh.control_plane.policy.errors import PolicyError

MAX_STATEMENT_CHARACTERS = 512
MAX_CALLS = 4  # predicates and functions in a rule's body: the engine looks at its limits between rules, not within

# What a credential, a call or a verifier says. Whoever could add to these would be somebody else.
OWN_FACTS = frozenset(
    {
        *("node", "client_peer_id", "role", "expiration", "label", "right", "user", "email", "group", "idp_role"),
        *("service", "connection_peer_id", "method", "path", "host", "port", "time", "target_fact"),
        *("target_unrestricted", "granted_service", "allow_network_target", "http_method_ok", "http_path_ok"),
    }
)

_HEAD = re.compile(r"([A-Za-z][A-Za-z0-9_:]*)\(")
# Whose word is good is not a policy's to say; and the parser of keys panics on one that is too short.
_NOT_OURS = re.compile(r"trusting|extern|ed25519|secp256r1|\\")


@attrs.frozen
class CustomStatement:
    """One fact, said of every holder of its role, or one rule.

    Attributes:
        text: without the semicolon at its end.
    """

    text: str
    is_rule: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises PolicyError: it is neither a fact nor a rule, or speaks for the control plane."""
        bare = text.strip().removesuffix(";").rstrip()
        head = _HEAD.match(bare)
        if len(bare) > MAX_STATEMENT_CHARACTERS:
            raise PolicyError(f"a statement is at most {MAX_STATEMENT_CHARACTERS} characters long")
        if head is None or not bare.isprintable() or _NOT_OURS.search(bare):
            raise PolicyError("this is neither a fact nor a rule of Datalog")
        if head[1] in OWN_FACTS:
            raise PolicyError(f"{head[1]} is what the control plane or a verifier says, not a policy")
        is_rule = not _is_fact(bare)
        if is_rule and not _is_rule(bare):
            raise PolicyError("this is neither a fact nor a rule of Datalog")
        if is_rule and bare.count("(") - 1 > MAX_CALLS:
            raise PolicyError(f"a rule's body has at most {MAX_CALLS} predicates and functions")
        return cls(bare, is_rule)

    def __str__(self) -> str:
        return f"{self.text};"


def _is_fact(text: str) -> bool:
    try:
        AuthorizerBuilder().add_fact(Fact(text))  # which refuses a parameter that is not bound
    except DataLogError:
        return False
    return True


def _is_rule(text: str) -> bool:
    try:
        AuthorizerBuilder().add_rule(Rule(text))
    except DataLogError:
        return False
    return True
