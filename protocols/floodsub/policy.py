"""What may pass: decided by whoever builds the host, since floodsub knows no topic by name."""

from collections.abc import Callable

import attrs

from agentmesh.protocols.floodsub.events import Message, Verdict
from agentmesh.types import PeerId


def accept_all(message: Message) -> Verdict:
    """A validator for topics on which a good signature is all that is asked for."""
    return Verdict.ACCEPT


def allow_all(peer: PeerId, topic: str) -> bool:
    """Every leaf may subscribe to everything."""
    return True


def publish_all(peer: PeerId, message: Message) -> bool:
    """Every leaf may publish everything."""
    return True


@attrs.frozen
class Policy:
    """What may pass. All are called in the middle of things, and must neither block nor raise.

    Attributes:
        validate: what to do with a message whose signature is good, and that somebody here wants.
        may_subscribe: whether a leaf may subscribe to a topic. If it may not, nothing of it is sent to the leaf, until
            it may (`Floodsub.recheck`); the protocol has no words to tell it so.
        may_publish: whether a leaf may have sent a message. If it may not, the message goes nowhere; nor are there
            words for that.
    """

    validate: Callable[[Message], Verdict] = accept_all
    may_subscribe: Callable[[PeerId, str], bool] = allow_all
    may_publish: Callable[[PeerId, Message], bool] = publish_all
