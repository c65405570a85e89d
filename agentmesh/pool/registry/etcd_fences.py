"""Forgetting, in etcd, the epochs of connections that have ended: the highest becomes their agent's floor."""

from collections.abc import Callable, Sequence

from agentmesh.pool.registry import etcd_keys as keys
from agentmesh.pool.registry.etcd_client import (
    EtcdClient,
    KeyValue,
    delete,
    get,
    get_below,
    put,
    unchanged,
    under_lease,
)
from agentmesh.pool.registry.etcd_keys import AgentKeys

MAX_FORGOTTEN = 50  # in one transaction: etcd takes 128 conditions


class EtcdFences:
    """Args:
    prefix: of all keys of the registry.
    wall_clock: gives seconds since 1970; epochs are as old as it said when they were written.
    """

    def __init__(self, client: EtcdClient, prefix: str, wall_clock: Callable[[], float]) -> None:
        self._client, self._prefix, self._wall_clock = client, prefix, wall_clock

    async def forget_oldest(self, agent: AgentKeys, surplus: int, listed: int) -> None:
        """Forget `surplus` epochs of an agent of which `listed` connections are listed, those first that are oldest."""
        epochs, connections = await self._client.read(
            get_below(agent.epochs, surplus + listed, oldest_first=True), get_below(agent.connections)
        )
        lives = {keys.last(kv.key) for kv in connections.kvs}
        await self._forget(agent, [kv for kv in epochs.kvs if keys.last(kv.key) not in lives][:surplus])

    async def forget_older(self, retention: float) -> int:
        """Forget those of ended connections that were written more than `retention` seconds ago. How many it were."""
        before, forgotten = self._wall_clock() - retention, 0
        agents: dict[str, list[KeyValue]] = {}
        for kv in await self._client.read_all(f"{self._prefix}/agents/", lambda kv: "/connection-epochs/" in kv.key):
            if keys.read_epoch(kv)[1] <= before:
                agents.setdefault(kv.key.removeprefix(f"{self._prefix}/agents/").partition("/")[0], []).append(kv)
        for agent_id, epochs in agents.items():
            agent = AgentKeys(self._prefix, agent_id)
            (connections,) = await self._client.read(get_below(agent.connections))
            lives = {keys.last(kv.key) for kv in connections.kvs}
            forgotten += await self._forget(agent, [kv for kv in epochs if keys.last(kv.key) not in lives])
        return forgotten

    async def _forget(self, agent: AgentKeys, ended: Sequence[KeyValue]) -> int:
        """Forget them, but for batches in which one begins a new life meanwhile. How many were forgotten."""
        forgotten = 0
        for start in range(0, len(ended), MAX_FORGOTTEN):
            batch = ended[start : start + MAX_FORGOTTEN]
            (floor,) = await self._client.read(get(agent.floor))
            highest = max(keys.read_floor(floor.only), *(keys.read_epoch(kv)[0] for kv in batch))
            done = await self._client.write_if(
                [
                    unchanged(agent.floor, floor.only),
                    *(unchanged(kv.key, kv) for kv in batch),
                    *(under_lease(agent.connections + keys.last(kv.key), 0) for kv in batch),
                ],
                put(agent.floor, keys.write_floor(highest)),
                *(delete(kv.key) for kv in batch),
            )
            forgotten += len(batch) if done else 0
        return forgotten
