"""Where a call of the registry can end beside its outcomes.

RegistryError
├── RegistryUnavailableError    the store does not answer: try again later
├── RegistryRefusedError        the store forbids what we ask, or holds what is not ours: an operator's to mend
├── AmbiguousAgentError         two agents whose IDs differ in case only: name it exactly
├── EpochsExhaustedError        there is no higher epoch: another connection ID
└── IdentifierError             the caller passed what no store could keep (also a ValueError): its own fault
"""

from agentmesh.errors import MeshError


class RegistryError(MeshError):
    """A call of the registry failed."""


class RegistryUnavailableError(RegistryError):
    """The store does not answer, or too many others change the same. Try again later.

    Nothing was kept, unless the connection broke while a change was on its way: then nobody knows. To register, renew,
    release or report again is safe.
    """


class RegistryRefusedError(RegistryError):
    """The store forbids what we ask, or what lies in it is of another version or not ours.

    Retrying is no use; the text says what it is.
    """


class AmbiguousAgentError(RegistryError):
    """The ID is that of several agents whose connections are listed, but for its case. Which is meant is not guessed.

    Attributes:
        agent_ids: theirs.
    """

    def __init__(self, agent_ids: tuple[str, ...]) -> None:
        super().__init__(f"agents whose IDs differ in case only: {', '.join(agent_ids)}")
        self.agent_ids = agent_ids


class EpochsExhaustedError(RegistryError):
    """A connection, or its agent, proposed the highest epoch there is, so that none can follow. Nothing changed."""


class IdentifierError(RegistryError, ValueError):
    """An ID, number or list that is not within the bounds of the registry. Nothing was asked of the store."""
