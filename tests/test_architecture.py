"""The rules of the house that no linter knows, held by reading the sources.

import-linter (pyproject.toml) holds the direction of the layers; `make lint` runs it. What is here is about single
files: what a machine may import, where an exception may be swallowed, how long a function gets.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE_LINES = 300
MAX_TEST_FILE_LINES = 400  # a table of cases reads well however long it is
MAX_FUNCTION_LINES = 60

# What may be longer, and why. Short, or the limits are wrong.
LONG_FILES: dict[str, str] = {
    "agentmesh/runtime/yamux/machine.py": "one mux: cut in two, the halves would share all their state",
}
LONG_FUNCTIONS: dict[str, str] = {}

# The seams: where whatever a foreign library or a user's callback raises becomes an error of ours, or is reported.
BROAD_EXCEPT: dict[str, str] = {
    "agentmesh/runtime/accept.py": "whatever a protocol's serve raises costs its stream only",
    "agentmesh/services/lifespan.py": "an application that raises at start is served without a lifespan, as ASGI says",
    "agentmesh/types.py": "the multiformats decoders raise whatever their alphabet tables raise",
    "protocols/http/driver.py": "an ASGI application is a stranger's code",
}

IMPURE = {"trio", "anyio", "asyncio", "time", "datetime", "random", "secrets", "socket", "ssl", "threading"}
CORE = {"abc", "certificates", "credentials", "errors", "identity", "runtime", "types", "wire"}
PURE_FILES = {
    *("events.py", "hop.py", "machine.py", "pairing.py", "rendezvous.py", "stop.py", "tickets.py", "wire.py"),
    *("eligible.py", "keys.py", "lookup.py", "placement.py", "store.py"),
    *("beat.py", "close_wire.py", "drains.py", "fields.py", "open_wire.py", "side.py", "values.py"),
    *("charges.py", "forwarding.py", "link.py", "links.py", "seen.py", "signing.py", "topics.py"),
}


def sources(*tops: str) -> list[Path]:
    """The Python files below these folders, real paths only, nothing generated."""
    found = {path for top in tops for path in (ROOT / top).rglob("*.py")}
    return sorted(
        path for path in found if path.resolve() == path and not path.is_relative_to(ROOT / "agentmesh/wire/messages")
    )


LIBRARY = sources("agentmesh", "protocols", "transports")
TESTS = sources("tests")
EVERYTHING = [*LIBRARY, *TESTS, *sources("examples", "benchmarks", ".ci")]
TREES = {path: ast.parse(path.read_text(), str(path)) for path in EVERYTHING}
PROTOCOLS = [path for path in LIBRARY if path.is_relative_to(ROOT / "protocols")]
PURE = [path for path in PROTOCOLS if path.name in PURE_FILES] + [
    path
    for path in LIBRARY
    if path.is_relative_to(ROOT / "agentmesh/runtime/yamux") or path == ROOT / "agentmesh/runtime/multistream.py"
]


def named(path: Path, node: ast.stmt | ast.expr | ast.ExceptHandler | None = None) -> str:
    return f"{path.relative_to(ROOT)}{f':{node.lineno}' if node else ''}"


def imports(tree: ast.AST) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """Each imported module, by its whole name; `from a import b` counts as a.b, since b may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def dotted(node: ast.expr) -> str:
    """`time.sleep` of an expression that is a name with attributes, "" of any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def raises_again(handler: ast.ExceptHandler) -> bool:
    """Whether the handler only looks on: its last word is a bare `raise`."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def uses(paths: list[Path], forbidden: Callable[[str], bool]) -> list[str]:
    """Where one of these files names something that it must not name."""
    return [
        f"{named(path, node)} {dotted(node)}"
        for path in paths
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.Name | ast.Attribute) and forbidden(dotted(node))
    ]


def test_machines_do_no_io_and_read_no_clock() -> None:
    assert [
        f"{named(path, node)} imports {module}"
        for path in PURE
        for node, module in imports(TREES[path])
        if module.partition(".")[0] in IMPURE
    ] == []


def test_a_machine_never_awaits() -> None:
    waiting = ast.Await | ast.AsyncFor | ast.AsyncWith | ast.AsyncFunctionDef
    assert [named(path) for path in PURE for node in ast.walk(TREES[path]) if isinstance(node, waiting)] == []


@pytest.mark.parametrize("path", PROTOCOLS, ids=named)
def test_a_protocol_knows_only_itself_and_the_core(path: Path) -> None:
    itself = ("agentmesh", *path.relative_to(ROOT).parts[:2])
    for _, module in imports(TREES[path]):
        parts = tuple(module.split("."))
        if parts[0] == "agentmesh":
            assert parts[:3] == itself or (len(parts) > 1 and parts[1] in CORE), f"{named(path)} imports {module}"


@pytest.mark.parametrize(
    ("folder", "strangers"),
    [
        ("transports", {"protocols", "services", "node", "router", "control_plane", "one", "cli", "testing"}),
        ("agentmesh/runtime", {"protocols", "transports", "testing", "services"}),
        ("agentmesh/testing", {"protocols", "services", "node", "router", "control_plane", "one", "cli"}),
        ("agentmesh/wire", {"runtime", "protocols", "transports", "identity", "credentials", "certificates"}),
    ],
)
def test_a_layer_does_not_look_up(folder: str, strangers: set[str]) -> None:
    assert [
        f"{named(path, node)} imports {module}"
        for path in LIBRARY
        if path.is_relative_to(ROOT / folder)
        for node, module in imports(TREES[path])
        if module.startswith("agentmesh.") and module.split(".")[1] in strangers
    ] == []


def test_nothing_that_runs_needs_the_test_kit() -> None:
    assert [
        f"{named(path, node)} imports {module}"
        for path in LIBRARY
        if not path.is_relative_to(ROOT / "agentmesh/testing")
        for node, module in imports(TREES[path])
        if module.startswith("agentmesh.testing")
    ] == []


def test_every_import_is_at_the_top() -> None:
    assert [
        f"{named(path, node)} imports {module}"
        for path in EVERYTHING
        for function in functions(TREES[path])
        for node, module in imports(function)
    ] == []


def test_exceptions_are_caught_by_name() -> None:
    found = {
        named(path): named(path, node)
        for path in LIBRARY
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or dotted(node.type) in {"Exception", "BaseException"})
        and not raises_again(node)
    }
    assert sorted(set(found) - set(BROAD_EXCEPT)) == [], found
    assert sorted(set(BROAD_EXCEPT) - set(found)) == [], "listed, but catches nothing broadly any more"


def test_no_probing_and_no_orphan_tasks() -> None:
    probes = {"hasattr", "trio.lowlevel.spawn_system_task"}
    assert uses(LIBRARY, probes.__contains__) == []


def test_files_are_short() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in EVERYTHING}
    limits = {path: MAX_FILE_LINES if path in LIBRARY else MAX_TEST_FILE_LINES for path in EVERYTHING}
    long = {named(path): lines for path, lines in lengths.items() if lines > limits[path]}
    assert {name: lines for name, lines in long.items() if name not in LONG_FILES} == {}


def test_functions_are_short() -> None:
    lengths = {
        f"{named(path)}::{function.name}": (function.end_lineno or 0) - function.lineno + 1
        for path in EVERYTHING
        for function in functions(TREES[path])
    }
    assert {
        name: lines for name, lines in lengths.items() if lines > MAX_FUNCTION_LINES and name not in LONG_FUNCTIONS
    } == {}


def test_nothing_is_left_for_later() -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "X" + "XX")
    assert [named(path) for path in EVERYTHING if any(mark in path.read_text() for mark in marks)] == []


def test_tests_neither_sleep_nor_mock_nor_look_away() -> None:
    """A test that sleeps is slow and flaky, one with mocks tests the mocks, a skipped one tests nothing."""
    evasions = {"time.sleep", "pytest.skip", "pytest.importorskip", "pytest.xfail", "pytest.mark.skip"}
    evasions |= {"pytest.mark.skipif", "pytest.mark.xfail", "Mock", "MagicMock", "AsyncMock"}
    assert uses(TESTS, lambda name: name in evasions or name.startswith("unittest.mock")) == []
    assert [
        f"{named(path, node)} imports {module}"
        for path in TESTS
        for node, module in imports(TREES[path])
        if module.startswith(("unittest", "mock."))
    ] == []
