"""How a peer gets into the mesh."""

from collections.abc import Mapping
from pathlib import Path

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
        jwt_path: instead, a file with a token of an identity provider; it is read at each registration and renewal.
        role: what the peer means to be; "" leaves it to the token.
        labels: what the control plane is to attest.
        retry_budget: seconds that a call is tried again for while the control plane does not answer.
    Raises:
        ValueError: there are both a token and a jwt_path.
    """

    control_plane: str = attrs.field(converter=_without_slash, repr=without_userinfo)
    token: str | None = attrs.field(default=None, repr=False)
    jwt_path: Path | None = None
    role: str = ""
    labels: Mapping[str, str] = attrs.field(factory=dict[str, str])
    retry_budget: float = 180.0

    def __attrs_post_init__(self) -> None:
        if self.token is not None and self.jwt_path is not None:
            raise ValueError("a peer gets in by a bootstrap token or by an identity provider, not by both")

    @property
    def is_invited(self) -> bool:
        """Whether it says how to get in without a saved credential."""
        return self.token is not None or self.jwt_path is not None

    @property
    def mesh(self) -> str:
        """Which mesh that is: the control plane's URL as it may be shown and kept."""
        return without_userinfo(self.control_plane)
