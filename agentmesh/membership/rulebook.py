"""The mesh's policy as a member knows it: the control plane's rules, followed, and what they say of a call."""

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import NoReturn

import trio

from agentmesh.authorization import Authorizer, Call, MeshRules
from agentmesh.control_plane.errors import ControlPlaneError
from agentmesh.credentials import Credential, TrustedKeys
from agentmesh.errors import CredentialError, RemoteProtocolError
from agentmesh.membership.kept_rules import KeptRules

logger = logging.getLogger(__name__)

RULES_SYNC_INTERVAL = 900.0  # seconds between two looks at the rules, stretched by up to a tenth
RULES_RETRY_INTERVAL = 30.0  # the same when the last look failed
HURRY_JITTER = 2.0  # seconds within which a fleet that was told of a new policy asks for it

GetRules = Callable[[], Awaitable[Sequence[str]]]


class Rulebook:
    """The rules, as they were last read. Until they have been, nothing is allowed; when the control plane is away, the
    last ones hold, over a restart too.

    Args:
        fetch: reads the control plane's rules; may raise ControlPlaneError or RemoteProtocolError.
        rng: spreads the requests of a fleet.
        kept: where the rules outlive the process; None keeps them nowhere.
    """

    def __init__(self, fetch: GetRules, rng: Random, kept: KeptRules | None = None) -> None:
        self._fetch = fetch
        self._rng = rng
        self._rules: MeshRules | None = None
        self._authorizer: Authorizer | None = None
        self._known = trio.Event()
        self._hurried = trio.Event()
        self._synced_at = -math.inf  # on Trio's clock
        self._on_change: list[Callable[[], None]] = []
        self._kept = kept
        self._resume()

    @property
    def is_known(self) -> bool:
        """Whether they have been read."""
        return self._authorizer is not None

    async def wait_known(self) -> None:
        """Until they have been read once."""
        await self._known.wait()

    def hurry(self) -> None:
        """There is a new policy: look soon."""
        self._hurried.set()

    def catch_up(self) -> None:
        """Somebody may have said that there is a new policy, and we did not hear it: look soon, unless we just have."""
        if trio.current_time() - self._synced_at > RULES_RETRY_INTERVAL:
            self.hurry()

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have `callback()` called, synchronously, whenever there are other rules. It must not raise."""
        self._on_change.append(callback)

    def check(self, caller: Credential, provider: Credential | None, call: Call, trusted: TrustedKeys) -> None:
        """As `Authorizer.check`.

        Raises:
            CredentialError: the call is not allowed ("denied"), or the rules are not known yet ("undecided").
        """
        if self._authorizer is None:
            raise CredentialError("the policy of the mesh is not known here yet", "undecided")
        self._authorizer.check(caller, provider, call, trusted)

    async def run(self) -> NoReturn:
        """Follow the control plane's rules, until cancelled."""
        while True:
            self._hurried = trio.Event()
            wait = RULES_SYNC_INTERVAL if await self._sync() else RULES_RETRY_INTERVAL
            with trio.move_on_after(wait * (1 + self._rng.random() / 10)):
                await self._hurried.wait()
                await trio.sleep(HURRY_JITTER * self._rng.random())

    def _resume(self) -> None:
        texts = self._kept.load() if self._kept else None
        if texts is None:
            return
        try:
            self._take(MeshRules(texts))
        except RemoteProtocolError as exc:
            logger.warning("the policy that was kept is none", extra={"reason": exc})

    async def _sync(self) -> bool:
        self._synced_at = trio.current_time()
        try:
            texts = tuple(await self._fetch())
            if self._rules is None or texts != self._rules.texts:
                self._take(MeshRules(texts))
                if self._kept:
                    self._kept.save(texts)
        except (ControlPlaneError, RemoteProtocolError) as exc:
            logger.warning("the policy was not read", extra={"reason": exc, "known": self.is_known})
            return False
        return True

    def _take(self, rules: MeshRules) -> None:
        self._rules, self._authorizer = rules, Authorizer(rules)
        self._known.set()
        for callback in self._on_change:
            callback()
        if rules.texts:
            logger.info("policy", extra={"rules": len(rules.texts)})
        else:
            logger.warning("the mesh has no policy: nobody may call what is served here")
