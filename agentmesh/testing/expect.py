"""Assertions that hold under `python -O` as well, and say in plain words what was expected."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast


def expect(holds: bool, otherwise: str) -> None:
    """Raises AssertionError(otherwise) if it does not hold."""
    if not holds:
        raise AssertionError(otherwise)


@contextmanager
def expect_error(*kinds: type[BaseException], when: str) -> Generator[None]:
    """A block that has to raise one of `kinds`, bare or as the only exception of a group."""
    names = " or ".join(kind.__name__ for kind in kinds)
    try:
        yield
    except kinds:
        return
    except BaseExceptionGroup as group:
        if isinstance(sole(group), kinds):
            return
        raise
    raise AssertionError(f"no {names} {when}")


def sole(error: BaseException) -> BaseException:
    """The exception inside groups of one, or `error` itself."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return sole(group.exceptions[0]) if len(group.exceptions) == 1 else group


class annotated:
    """A block whose exception gets a note saying what was being done."""

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(self._doing)
