"""Topics that members talk on, and who may: what the policy says of the service `system://topic.<name>`.

Whoever publishes calls it with the method PUBLISH, whoever subscribes with SUBSCRIBE. It belongs to no member, so that
any role that grants it will do, wherever its holders may go otherwise. Routers decide, each for its own members.
"""

from agentmesh.authorization import Call
from agentmesh.credentials import Credential
from agentmesh.errors import CredentialError
from agentmesh.events import EVENTS_TOPIC
from agentmesh.membership.membership import Membership
from agentmesh.membership.rulebook import Rulebook
from agentmesh.membership.shown import Admit, ShownCredentials
from agentmesh.protocols.floodsub import Floodsub, Message
from agentmesh.types import PeerId

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
        shown: what its members have shown.
    """

    def __init__(self, membership: Membership, rules: Rulebook, shown: ShownCredentials) -> None:
        self._membership = membership
        self._rules = rules
        self._shown = shown

    def watch(self, floodsub: Floodsub) -> Admit:
        """Have floodsub ask this gate, and ask again when the answers may have changed.

        Returns:
            What is to be called in the place of `shown.admit`.
        """

        def admit_and_recheck(peer: PeerId, credential: Credential) -> None:
            self._shown.admit(peer, credential)
            floodsub.recheck(peer)

        self._rules.on_change(floodsub.recheck)
        return admit_and_recheck

    def may_subscribe(self, peer: PeerId, topic: str) -> bool:
        """For floodsub's policy. What the control plane says is for everybody."""
        return topic == EVENTS_TOPIC or self._may(peer, topic, SUBSCRIBE)

    def may_publish(self, peer: PeerId, message: Message) -> bool:
        """For floodsub's policy. A member speaks for itself; what the control plane says is judged by its signature."""
        if message.topics == (EVENTS_TOPIC,):
            return True
        return message.author == peer and all(self._may(peer, topic, PUBLISH) for topic in message.topics)

    def _may(self, peer: PeerId, topic: str, verb: str) -> bool:
        credential = self._shown.get(peer)
        if credential is None:
            return False
        try:
            self._rules.check(credential, None, topic_call(topic, verb), self._membership.trusted)
        except CredentialError:
            return False
        return True
