"""Topics that members talk on, and who may: what the policy says of the service `system://topic.<name>`.

Whoever publishes calls it with the method PUBLISH, whoever subscribes with SUBSCRIBE. It belongs to no member, so that
any role that grants it will do, wherever its holders may go otherwise. Routers decide, each for its own members.
"""

from collections.abc import Callable

from agentmesh.authorization import Call
from agentmesh.credentials import ROLE_ROUTER, Credential
from agentmesh.errors import CredentialError
from agentmesh.events import EVENTS_TOPIC
from agentmesh.membership.membership import Membership
from agentmesh.membership.rulebook import Rulebook
from agentmesh.protocols.floodsub import Floodsub, Message
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.types import PeerId

Admit = Callable[[PeerId, Credential], None]

MESH_TOPICS = "/mesh/"
SUBSCRIBE, PUBLISH = "SUBSCRIBE", "PUBLISH"


def topic_call(topic: str, verb: str) -> Call:
    """What a policy judges.

    Args:
        topic: its name.
        verb: SUBSCRIBE or PUBLISH.
    """
    return Call("system", f"topic.{topic}", verb, "/")


class TopicGate:
    """A router's judgement of what its members say and want to hear.

    Args:
        membership: the router's.
        rules: the mesh's policy.
    """

    def __init__(self, membership: Membership, rules: Rulebook) -> None:
        self._membership = membership
        self._rules = rules
        self._shown: dict[PeerId, Credential] = {}  # by the members that are admitted

    def watch(self, floodsub: Floodsub, admissions: AdmissionBook, admit: Admit) -> Admit:
        """Follow who is admitted, and with what.

        Args:
            floodsub: whose policy asks this gate; it is told when the answers may have changed.
            admissions: whom the router admits.
            admit: lets a peer in, or raises RejectedError.
        Returns:
            What is to be called in the place of `admit`.
        """

        def admit_and_remember(peer: PeerId, credential: Credential) -> None:
            admit(peer, credential)
            if credential.role == ROLE_ROUTER:  # it passes on what others say, which its own gate has judged
                self._shown.pop(peer, None)
            else:
                self._shown[peer] = credential
            floodsub.recheck(peer)

        self._rules.on_change(floodsub.recheck)
        admissions.on_lapse(self._forget)
        return admit_and_remember

    def may_subscribe(self, peer: PeerId, topic: str) -> bool:
        """For floodsub's policy. What the control plane says is for everybody."""
        return topic == EVENTS_TOPIC or self._may(peer, topic, SUBSCRIBE)

    def may_publish(self, peer: PeerId, message: Message) -> bool:
        """For floodsub's policy. A member speaks for itself; what the control plane says is judged by its signature."""
        if message.topics == (EVENTS_TOPIC,):
            return True
        return message.author == peer and all(self._may(peer, topic, PUBLISH) for topic in message.topics)

    def _forget(self, peer: PeerId) -> None:
        self._shown.pop(peer, None)

    def __len__(self) -> int:
        return len(self._shown)

    def _may(self, peer: PeerId, topic: str, verb: str) -> bool:
        credential = self._shown.get(peer)
        if credential is None:
            return False
        try:
            self._rules.check(credential, None, topic_call(topic, verb), self._membership.trusted)
        except CredentialError:
            return False
        return True
