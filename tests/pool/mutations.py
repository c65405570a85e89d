"""Faults put into the pool on purpose, one at a time: each has to make the tests named with it fail.

    python -m tests.pool.mutations            all of them
    python -m tests.pool.mutations M5 M13     some

A fault is put into a copy of the sources, never into the sources. It is no test itself: it tests the tests, and takes
minutes.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parent.parent.parent
COPIED = ("agentmesh", "protocols", "transports", "tests", "pyproject.toml")
LONGEST_RUN = 600  # seconds


@attrs.frozen
class Mutation:
    """One fault.

    Attributes:
        says: what it is.
        file: where.
        old, new: what stands there, exactly once, and what is put in its place.
        tests: that have to notice.
    """

    says: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


TABLE, MODEL = "tests/pool/router/test_table.py", "tests/pool/router/test_table_model.py"
CONTROLLER, CONTROLLERS = "tests/pool/agent/test_controller.py", "tests/pool/agent/test_controller_model.py"
SELECTION, POOL = "tests/pool/router/test_selection.py", "tests/pool/test_pool.py"
RELAY, RELAYS = "tests/pool/test_relay.py", "tests/pool/test_relay_model.py"
FLOW, INGRESS = "tests/pool/test_flow.py", "tests/pool/router/test_ingress.py"

MUTATIONS = {
    "M1": Mutation(
        "an equal epoch passes for a higher one",
        "agentmesh/pool/router/table.py",
        "        if claim.epoch <= self._fence(",
        "        if claim.epoch < self._fence(",
        (TABLE, MODEL),
    ),
    "M1b": Mutation(
        "and so does one that the registry gave",
        "agentmesh/pool/router/table.py",
        "        if epoch <= self._fence(",
        "        if epoch < self._fence(",
        (TABLE, MODEL),
    ),
    "M2": Mutation(
        "a connection is taken out by its name, whoever has it now",
        "agentmesh/pool/router/table.py",
        "pool.by_id.get(connection.connection_id) is not connection:",
        "connection.connection_id not in pool.by_id:",
        (TABLE, MODEL),
    ),
    "M3": Mutation(
        "credit goes back for what nobody has read yet",
        "agentmesh/runtime/yamux/flow.py",
        "        due = self.size - self.credit - self.buffered\n",
        "        due = self.size - self.credit\n",
        ("tests/runtime/yamux/test_flow.py",),
    ),
    "M4": Mutation(
        "a place is taken some time after the choice",
        "agentmesh/pool/router/connection.py",
        "        self.leases.add(lease)\n        return lease",
        "        return lease",
        (SELECTION,),
    ),
    "M5": Mutation(
        "the connection that goes is the one with the last name",
        "agentmesh/pool/agent/scaler.py",
        "min(slots, key=lambda slot: (slot.report.active_streams if slot.report else 0, -slot.number))",
        "max(slots, key=lambda slot: slot.connection_id)",
        (CONTROLLER,),
    ),
    "M6": Mutation(
        "there is no cooldown",
        "agentmesh/pool/agent/scaler.py",
        "        if now < self._scaled_at + config.cooldown:",
        "        if now < self._scaled_at:",
        (CONTROLLER, CONTROLLERS),
    ),
    "M6b": Mutation(
        "a connection that lets more bytes leave has not helped while queues stay full",
        "agentmesh/pool/agent/scaling.py",
        "before < MIN_WAIT or waits_less or more_leaves\n",
        "before < MIN_WAIT or waits_less\n",
        ("tests/pool/agent/test_scaling.py",),
    ),
    "M7": Mutation(
        "a stream for one life of a connection is opened on another",
        "agentmesh/pool/router/opening.py",
        "connection is None or connection.epoch != key.epoch:",
        "connection is None:",
        (POOL,),
    ),
    "M7b": Mutation(
        "what another router asks for is opened on any connection",
        "agentmesh/pool/router/opening.py",
        "        others = [one for one in pool.connections if one is not connection]",
        "        others = list[Connection]()",
        (RELAYS,),
    ),
    "M7c": Mutation(
        "a connection that is not here is looked for at other routers",
        "agentmesh/pool/router/serving.py",
        "await self._opener.open_on(key, request), self.relayed)",
        "await self._ingress.open(request.agent_id, request), self.relayed)",
        (RELAYS,),
    ),
    "M7d": Mutation(
        "a stream is relayed, and relayed again",
        "agentmesh/pool/router/ingress.py",
        "            if opening.stream is not None:\n                return opening.stream\n",
        "            if opening.stream is not None and fresh:\n                return opening.stream\n",
        (RELAYS,),
    ),
    "M7e": Mutation(
        "what was refused for being old is asked for in the same way again",
        "agentmesh/pool/router/ingress.py",
        "if one.key not in attempts.elsewhere], request)",
        "], request)",
        (INGRESS,),
    ),
    "M7f": Mutation(
        "connections that leave use up what an open may try at other routers",
        "agentmesh/pool/router/ingress.py",
        "            fresh = opening.result != RETURNED\n",
        "            fresh = True\n",
        (INGRESS,),
    ),
    "M7g": Mutation(
        "an agent of another router is judged by the name that a client has for it",
        "agentmesh/pool/router/ingress.py",
        "pool.agent_id if pool else await self._spelt(agent)",
        "pool.agent_id if pool else agent",
        (INGRESS,),
    ),
    "M8": Mutation(
        "a frame counts as one, however long",
        "agentmesh/runtime/yamux/flow.py",
        "        self.credit -= size\n",
        "        self.credit -= 1\n",
        ("tests/runtime/yamux/test_flow.py",),
    ),
    "M11": Mutation(
        "every connection is in perfect health",
        "agentmesh/pool/router/score.py",
        "    return 100 - 100 * lost // (4 * MAX_PENALTY)",
        "    return 100",
        ("tests/pool/router/test_score.py",),
    ),
    "M12": Mutation(
        "nobody asks how long ago a connection was heard of",
        "agentmesh/pool/router/selection.py",
        "    if now - connection.heard_at > limits.fresh_timeout:\n        return WhyNot.STALE\n",
        "",
        (SELECTION,),
    ),
    "M13": Mutation(
        "a connection can be too many and too few at once",
        "agentmesh/pool/agent/scaler.py",
        "            slot.low = slot.low + 1 if is_low and not wanted else 0",
        "            slot.low = slot.low + 1 if is_low else 0",
        (CONTROLLER, CONTROLLERS),
    ),
    "M15": Mutation(
        "a second dial has the ID of the first",
        "agentmesh/pool/agent/controller.py",
        "                slot.connection_id = self._make_id()",
        '                slot.connection_id = f"conn-{slot.number}"',
        (CONTROLLER, CONTROLLERS),
    ),
    "M16": Mutation(
        "what is not open is counted down as well",
        "agentmesh/pool/router/table.py",
        "        if not self._tokens[token_id]:\n            del self._tokens[token_id]",
        "        self._tokens[token_id] -= 1",
        (TABLE, MODEL),
    ),
    "M17": Mutation(
        "whoever is told to go closes at once",
        "agentmesh/pool/agent/controller.py",
        "        slot.step(Input.DRAIN)\n        slot.at = now + min(timeout, DRAIN_TIMEOUT)\n",
        "        self._end(slot, CloseReason.DRAINED)\n",
        (CONTROLLER, POOL),
    ),
    "M17b": Mutation(
        "the end of one way is the end of both",
        "agentmesh/pool/copying.py",
        "                ways[way] = True\n",
        "                ways[way] = True\n                nursery.cancel_scope.cancel()\n",
        (FLOW, RELAY),
    ),
    "M17c": Mutation(
        "a stream that broke is closed as one that ended",
        "agentmesh/pool/copying.py",
        "    if copied.is_whole:\n",
        "    if copied is not None:\n",
        (RELAY,),
    ),
    "M18": Mutation(
        "what the router takes at most is not heard",
        "agentmesh/pool/agent/controller.py",
        "        return max(min([self.config.max, *allowed]), 1)",
        "        return self.config.max",
        (CONTROLLER, CONTROLLERS),
    ),
}


def survives(mutation: Mutation) -> bool:
    """Whether the tests pass in spite of the fault. Raises ValueError when it has no place in the sources any more."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for item in COPIED:
            source, target = ROOT / item, copy / item
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        path = copy / mutation.file
        text = path.read_text()
        if text.count(mutation.old) != 1:
            raise ValueError(f"{mutation.file} has {text.count(mutation.old)} places for: {mutation.says}")
        path.write_text(text.replace(mutation.old, mutation.new))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutation.tests]
        environment = {"PYTHONPATH": str(copy), "PATH": "/usr/bin:/bin", "HOME": str(copy)}
        run = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=LONGEST_RUN, check=False)
        if run.returncode not in (0, 1):
            raise ValueError(run.stdout.decode()[-2000:] + run.stderr.decode()[-2000:])
        return run.returncode == 0


def main(wanted: Sequence[str]) -> int:
    """Try faults. Returns how many the tests did not notice."""
    unnoticed = 0
    for name in wanted or list(MUTATIONS):
        mutation = MUTATIONS[name]
        survived = survives(mutation)
        unnoticed += survived
        print(f"{name:4} {'NOT NOTICED' if survived else 'noticed':12} {mutation.says}", flush=True)
    return unnoticed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
