"""What programs of this machine ask of a node, in numbers: of the local API, and of the models behind it."""

from collections import defaultdict
from collections.abc import Mapping

import attrs

from agentmesh.runtime.durations import Durations

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
CODES: Mapping[str, tuple[int, ...]] = {  # by route, what is answered as a rule: there from the start
    "completions": (200, 400, 404, 503),
    "egress": (200, 400, 403, 404, 502, 503),
    "health": (200, 503),
    "mcp": (200, 202, 400, 405),
    "models": (200,),
    "other": (200, 404),
    "service-registry": (200, 400, 503),
}
OTHER_ROUTE = "other"
REJECTIONS = (
    "peer_revoked",
    "provider_backoff",
    "label_mismatch",
    "label_unattested",
    "no_eligible_provider",
    "attempts_exceeded",
)
TOKEN_TYPES = ("prompt", "completion")
MAX_MODELS = 1000  # of providers, that are told apart
MAX_AGENTS = 1000
OTHER = "other"


def _durations() -> Durations:
    return Durations(BOUNDS)


@attrs.define
class ApiFigures:
    """Counts since the node began, but for `in_flight`.

    Attributes:
        in_flight: requests of the local API under way.
        first_byte: by route, how long it took until an answer began.
        whole: by route and status, until it was whole.
        tokens: by provider, model and one of TOKEN_TYPES, what models said that they used.
        rejections: by one of REJECTIONS: completions that were refused, and providers that were passed over.
        retries: completions that another provider was asked for.
        agents: the programs that asked, by User-Agent; at most MAX_AGENTS.
        untracked: requests of others.
    """

    in_flight: int = 0
    first_byte: dict[str, Durations] = attrs.Factory(lambda: {route: _durations() for route in CODES})
    whole: dict[tuple[str, int], Durations] = attrs.Factory(
        lambda: {(route, code): _durations() for route, codes in CODES.items() for code in codes}
    )
    tokens: defaultdict[tuple[str, str, str], int] = attrs.Factory(lambda: defaultdict(int))
    rejections: dict[str, int] = attrs.Factory(lambda: dict.fromkeys(REJECTIONS, 0))
    retries: int = 0
    agents: set[str] = attrs.Factory(set[str])
    untracked: int = 0

    def answered(self, route: str, code: int, seconds: float) -> None:
        """A request was answered, to its end or as far as that came."""
        self.whole.setdefault((route, code), _durations()).add(seconds)

    def asked_by(self, agent: str) -> None:
        """Note which program asks."""
        if agent in self.agents or len(self.agents) < MAX_AGENTS:
            self.agents.add(agent)
        else:
            self.untracked += 1

    def used(self, peer: str, model: str, prompt: int, completion: int) -> None:
        """A model of a provider used so many tokens."""
        known = (peer, model, TOKEN_TYPES[0]) in self.tokens
        if not known and len(self.tokens) >= MAX_MODELS * len(TOKEN_TYPES):
            peer = model = OTHER
        for kind, count in zip(TOKEN_TYPES, (prompt, completion), strict=True):
            self.tokens[peer, model, kind] += count
