"""Assertions that hold under `python -O` as well, and say in plain words what was expected."""

from collections.abc import Sequence
from typing import cast


def expect(holds: bool, otherwise: str) -> None:
    """Raises AssertionError(otherwise) if it does not hold."""
    if not holds:
        raise AssertionError(otherwise)


class expect_error:
    """A block that has to raise one of `kinds`; they may come in groups, unless they have to be bare.

    Raises:
        AssertionError: it raises nothing, or a group.
        Whatever else the block raises.
    """

    def __init__(self, *kinds: type[BaseException], when: str, bare: bool = False) -> None:
        self._kinds = kinds
        self._bare = bare
        self._wanted = f"{' or '.join(kind.__name__ for kind in kinds)} {when}"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        expect(error is not None, f"no {self._wanted}")
        found = error is not None and all(isinstance(leaf, self._kinds) for leaf in leaves(error))
        expect(not (found and self._bare and isinstance(error, BaseExceptionGroup)), f"{self._wanted} comes in a group")
        return found


class annotated:
    """A block whose exception gets a note saying what was being done."""

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(self._doing)


def leaves(error: BaseException) -> Sequence[BaseException]:
    """The exceptions inside groups, however deep; `error` alone when it is no group."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for inner in group.exceptions for leaf in leaves(inner)]
