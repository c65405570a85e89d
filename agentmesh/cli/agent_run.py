"""`agentmesh agent run`."""

import logging
from functools import partial
from pathlib import Path

import click
import trio

from agentmesh.agent import AgentProcess, AgentProcessConfig, agent_pages, open_agent
from agentmesh.agent.compose import DRAIN_TIMEOUT
from agentmesh.cli.agent_options import agent_options, read_agent
from agentmesh.cli.config_file import config_option_with
from agentmesh.cli.membership import enrollment, membership_options, run_member
from agentmesh.cli.params import data_dir_option, logging_options, metrics_option
from agentmesh.cli.program import STOP_TIMEOUT, run_program
from agentmesh.membership.pages import serve_pages
from agentmesh.pool.agent.access import AccessPolicy, Rule
from agentmesh.pool.agent.config import NOT_OFFERED, AgentConfig, ConfigError, ConnectionsConfig
from agentmesh.pool.agent.serving import ServingLimits
from agentmesh.runtime.nursery import open_background

logger = logging.getLogger(__name__)


@click.command("run")
@config_option_with({"agent": read_agent}, NOT_OFFERED)
@agent_options
@membership_options
@data_dir_option("agent", "the process's key, credential and instance ID")
@metrics_option("/debug/pool")
@logging_options
def command(
    agent_id: str,
    server_url: str,
    instance_id: str,
    connections_min: int,
    connections_max: int,
    connections_high_watermark: int,
    connections_low_watermark: int,
    connections_evaluation_interval: float,
    connections_cooldown: float,
    allow: tuple[Rule, ...],
    access_policy: AccessPolicy | None,
    max_streams: int,
    max_dials: int,
    max_pending_dials: int,
    control_plane: str,
    token: str | None,
    jwt_path: Path | None,
    labels: tuple[tuple[str, str], ...],
    retry_budget: float,
    data_dir: Path,
    metrics_addr: str | None,
) -> None:
    """Run one process of an agent.

    It dials routers, and connects from here what others open by the agent's name, as far as its rules allow. At SIGTERM
    or SIGINT it takes no more, and stops when what is open has ended, after 30 seconds at most; a second signal stops
    it at once. It dials through the proxy that HTTPS_PROXY names, but for what is in NO_PROXY.
    """
    try:
        config = AgentProcessConfig(
            enrollment=enrollment(control_plane, token, jwt_path, labels, retry_budget),
            agent=AgentConfig(
                id=agent_id,
                server_url=server_url,
                instance_id=instance_id,
                connections=ConnectionsConfig(
                    min=connections_min,
                    max=connections_max,
                    high_watermark=connections_high_watermark,
                    low_watermark=connections_low_watermark,
                    evaluation_interval=connections_evaluation_interval,
                    cooldown=connections_cooldown,
                ),
            ),
            state_dir=data_dir,
            access=AccessPolicy((*(access_policy.rules if access_policy else ()), *allow)),
            serving=ServingLimits(max_streams=max_streams, max_dials=max_dials, max_pending_dials=max_pending_dials),
        )
    except ConfigError as exc:
        raise click.UsageError(str(exc), click.get_current_context()) from exc
    run_program(partial(_serve, config, metrics_addr), stop_timeout=STOP_TIMEOUT + DRAIN_TIMEOUT)


async def _serve(config: AgentProcessConfig, metrics_addr: str | None, stop: trio.Event) -> None:
    async def serve(agent: AgentProcess) -> None:
        await nursery.start(pages, agent)
        settings = agent.pool.settings
        logger.info(
            "serving",
            extra={"peer": agent.peer, "agent": settings.agent_id, "instance": settings.instance.instance_id},
        )
        if not any(rule.allow for rule in config.access.rules):
            logger.warning("no rule allows anything: every stream is refused", extra={"see": "--allow"})
        await stop.wait()
        logger.info("stopping", extra={"streams": sum(len(link.opens) for link in agent.pool.links.values())})

    async def pages(agent: AgentProcess, task_status: trio.TaskStatus[None]) -> None:
        """They are there until the process is gone: how it drains is seen."""
        async with serve_pages(agent_pages(agent), metrics_addr) as url:
            if url is not None:
                logger.info("metrics", extra={"url": url})
            task_status.started()
            await trio.sleep_forever()

    async with open_background() as nursery:
        await run_member(open_agent(config), stop, serve)
