"""An agent's credential: that of a member, which says by a label whose process it is. Routers take nobody's word."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import attrs

from agentmesh.agent.config import AgentProcessConfig
from agentmesh.agent.folder import hold_folder
from agentmesh.control_plane.errors import RequestRefusedError
from agentmesh.credentials import ROLE_NODE, Credential
from agentmesh.errors import CredentialError
from agentmesh.membership import Enrollment, Membership, StateDir, open_membership
from agentmesh.pool.agent.config import AGENT_LABEL
from agentmesh.transports.proxy import ProxyRules

logger = logging.getLogger(__name__)


def enrollment_of(config: AgentProcessConfig) -> Enrollment:
    """How the process enrolls: as a node, and with the label that makes it one of the agent's."""
    enrollment = config.enrollment
    labels = {**enrollment.labels, AGENT_LABEL: config.agent.id}
    return attrs.evolve(enrollment, role=enrollment.role or ROLE_NODE, labels=labels)


def check_label(credential: Credential, config: AgentProcessConfig) -> None:
    """Raises CredentialError: the credential is not one of this agent's processes; the text says what to do."""
    agent_id, attested = config.agent.id, credential.labels.get(AGENT_LABEL)
    if attested is None:
        raise CredentialError(
            f"the credential lacks the label {AGENT_LABEL}={agent_id}, so no router takes it for this agent: "
            f"{_advice(credential.role)}",
            "denied",
        )
    if attested != agent_id:
        raise CredentialError(
            f"the credential in {config.state_dir} is agent {attested}'s, not {agent_id}'s: each agent has a data "
            "folder of its own",
            "denied",
        )


def _advice(role: str) -> str:
    return (
        f'add "{AGENT_LABEL}=*" to allowed_labels of the role {role} in the mesh\'s policy, then enroll anew, with an '
        "empty data folder and a bootstrap token"
    )


@asynccontextmanager
async def open_standing(
    config: AgentProcessConfig, *, wall_clock: Callable[[], float], proxies: ProxyRules | None
) -> AsyncGenerator[Membership]:
    """The process's membership, resumed or enrolled, with the label.

    Raises:
        CredentialError: the policy does not allow the label; besides what `open_membership` raises.
        StateError, IdentityError, OSError: the state folder.
    """
    state, enrollment = StateDir(config.state_dir), enrollment_of(config)
    opening = open_membership(state.identity(), enrollment, state=state, wall_clock=wall_clock, proxies=proxies)
    async with AsyncExitStack() as stack:
        stack.enter_context(hold_folder(config.state_dir))
        try:
            membership = await stack.enter_async_context(opening)
        except RequestRefusedError as exc:
            if f"label {AGENT_LABEL}=" in str(exc):
                raise CredentialError(f"{exc}: {_advice(enrollment.role)}", "denied") from exc
            raise
        check_label(membership.credential, config)
        yield membership


def watch_label(membership: Membership, config: AgentProcessConfig) -> None:
    """Say so when a renewed credential has lost the label: the policy has changed, and connections will be refused."""

    def look() -> None:
        try:
            check_label(membership.credential, config)
        except CredentialError as exc:
            logger.error("not this agent any more", extra={"reason": exc})

    membership.on_renewed(look)
