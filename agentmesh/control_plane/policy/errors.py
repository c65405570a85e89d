"""What is wrong with a policy."""

from agentmesh.errors import MeshError


class PolicyError(MeshError):
    """The policy is refused as a whole.

    Attributes:
        where: the place in the document, as `roles[2].allowed_services[0]`; "" where the whole is meant.
        what: what is wrong there.
    """

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(f"{where}: {what}" if where else what)
        self.what = what
        self.where = where

    def at(self, where: str) -> "PolicyError":
        """The same fault, seen from one level further out."""
        inner = self.where
        joined = where + inner if inner.startswith("[") or not inner else f"{where}.{inner}"
        return PolicyError(self.what, joined)
