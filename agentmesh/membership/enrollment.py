"""How a peer gets into the mesh."""

from collections.abc import Mapping

import attrs


def _without_slash(url: str) -> str:
    return url.rstrip("/")


def without_userinfo(url: str) -> str:
    """`url` as it may be shown: without the name and password that it may hold."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return scheme + separator + authority.rpartition("@")[2] + slash + path


@attrs.frozen(kw_only=True)
class Enrollment:
    """How a peer gets into the mesh.

    Attributes:
        control_plane: its URL.
        token: a bootstrap token; not needed to resume with a saved credential.
        role: what the peer means to be; "" leaves it to the token.
        labels: what the control plane is to attest.
        retry_budget: seconds that a call is tried again for while the control plane does not answer.
    """

    control_plane: str = attrs.field(converter=_without_slash, repr=without_userinfo)
    token: str | None = attrs.field(default=None, repr=False)
    role: str = ""
    labels: Mapping[str, str] = attrs.field(factory=dict[str, str])
    retry_budget: float = 180.0

    @property
    def mesh(self) -> str:
        """Which mesh that is: the control plane's URL as it may be shown and kept."""
        return without_userinfo(self.control_plane)
