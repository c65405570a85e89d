"""Copying the leases that lie at …/agents/{agent_id} itself. They are only read, and the copies end with them."""

import json
import logging
from collections.abc import Callable

from agentmesh.pool.registry import etcd_keys as keys
from agentmesh.pool.registry.errors import IdentifierError
from agentmesh.pool.registry.etcd_client import EtcdClient, KeyValue, LeaseGoneError, get, put, unchanged
from agentmesh.pool.registry.etcd_keys import AgentKeys
from agentmesh.pool.registry.legacy import Migration, connection_of

logger = logging.getLogger(__name__)

NO_LEASE_TTL = 90  # seconds for a copy of what hangs on no lease


async def migrate(client: EtcdClient, prefix: str, wall_clock: Callable[[], float]) -> Migration:
    """Copy what has not been copied yet.

    Raises:
        RegistryUnavailableError: etcd does not answer. What was copied stays; do it again.
    """
    total, top = Migration(), f"{prefix}/agents/"
    for kv in await client.read_all(top, lambda kv: "/" not in kv.key.removeprefix(top)):
        try:
            total += await _copy(client, prefix, kv, wall_clock())
        except LeaseGoneError:  # it ended while we looked
            continue
        except IdentifierError:
            total += Migration(refused=(keys.last(kv.key),))
    if total != Migration():
        logger.info("legacy leases migrated", extra={"copied": total.copied, "known": total.known})
    if total.refused:
        logger.warning("legacy leases that no registry can keep", extra={"agents": total.refused[:100]})
    return total


async def _copy(client: EtcdClient, prefix: str, kv: KeyValue, now: float) -> Migration:
    try:
        fields = dict(json.loads(kv.value))
    except (TypeError, ValueError):
        raise IdentifierError("no JSON object") from None
    new, fence = connection_of(keys.last(kv.key), str(fields.get("node_id")), fields.get("epoch"))
    agent = AgentKeys(prefix, new.agent_id)
    epoch = agent.epochs + new.connection_id
    floor, known = await client.read(get(agent.floor), get(epoch))
    if known.only is not None:
        return Migration(known=1)
    lease, ttl = (kv.lease, await client.keep_alive(kv.lease)) if kv.lease else await client.grant(NO_LEASE_TTL)
    copied = await client.write_if(
        [unchanged(kv.key, kv), unchanged(epoch, None), unchanged(agent.floor, floor.only)],
        put(epoch, keys.write_epoch(fence.epoch, now)),
        put(agent.connections + new.connection_id, keys.write_connection(new, fence.epoch, ttl, now + ttl), lease),
        put(agent.floor, keys.write_floor(keys.read_floor(floor.only))),
        put(agent.name, b""),
    )
    return Migration(copied=1) if copied else Migration()  # changed meanwhile: the next run sees to it
