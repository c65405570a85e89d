"""What a member is entitled to by the policy: which labels, which facts in its credential. Pure decisions."""

from collections.abc import Mapping

import attrs

from agentmesh.control_plane.policy.compile import credential_facts
from agentmesh.control_plane.policy.model import Policy
from agentmesh.control_plane.records import Owner
from agentmesh.credentials import MAX_MINTED_FACTS
from agentmesh.facts import Fact

OWN_FACTS = 8  # that every credential has at most besides labels and these


@attrs.frozen
class Entitlement:
    """What a credential may say of its bearer.

    Attributes:
        labels: those that one of its roles allows.
        dropped: those that none does, as "key=value", by key.
        facts: what it is known by, its roles, what they grant.
    """

    labels: Mapping[str, str]
    dropped: tuple[str, ...]
    facts: tuple[Fact, ...]

    @property
    def label_refusal(self) -> str | None:
        """Why a peer cannot have all the labels that it asks for: the first that it may not have. None when it can."""
        return f"the policy does not allow the label {self.dropped[0]}" if self.dropped else None

    @property
    def budget_refusal(self) -> str | None:
        """Why a credential cannot say all that, or None."""
        count = len(self.facts) + len(self.labels) + OWN_FACTS
        if count <= MAX_MINTED_FACTS:
            return None
        return f"the policy gives this peer {count} facts, and a credential holds {MAX_MINTED_FACTS}"


def entitle(policy: Policy, admitted_as: str, owner: Owner, labels: Mapping[str, str]) -> Entitlement:
    """What the policy gives a member.

    Args:
        admitted_as: its role of admission.
        owner: what is known of it.
        labels: those that it asks for.
    """
    roles = policy.roles_of(admitted_as, owner.known)
    allowed = {k: v for k, v in sorted(labels.items()) if any(role.allows_label(k, v) for role in roles)}
    dropped = tuple(f"{key}={value}" for key, value in sorted(labels.items()) if key not in allowed)
    claims = [Fact(kind, (value,)) for kind, values in sorted(owner.claims.items()) for value in sorted(values)]
    return Entitlement(allowed, dropped, (*claims, *credential_facts(roles)))
