"""Facts of Datalog as values: what a credential says of its bearer, beyond who that is."""

from collections.abc import Set
from typing import Self

import attrs
import biscuit_auth

Term = str | frozenset[str]


@attrs.frozen
class Fact:
    """`name(term, …)`. A set is not empty."""

    name: str
    terms: tuple[Term, ...]
    _text: str | None = attrs.field(default=None, kw_only=True, repr=False, alias="text")

    @classmethod
    def of_text(cls, text: str) -> Self:
        """A fact that is kept as it was written. Raises biscuit_auth.DataLogError when it is none."""
        return cls(biscuit_auth.Fact(text).name, (), text=text)

    def built(self) -> biscuit_auth.Fact:
        """The same for a builder of biscuit_auth, whatever characters are in it."""
        if self._text is not None:
            return biscuit_auth.Fact(self._text)
        names = [f"t{index}" for index in range(len(self.terms))]
        placeholders = ", ".join(f"{{{name}}}" for name in names)
        values = {
            name: set(term) if isinstance(term, Set) else term for name, term in zip(names, self.terms, strict=True)
        }
        return biscuit_auth.Fact(f"{self.name}({placeholders})", values)

    def __str__(self) -> str:
        """In Datalog, sets in order. Only for terms without quotes and backslashes, as a policy's are."""
        return self._text or f"{self.name}({', '.join(map(_written, self.terms))})"


def _written(term: Term) -> str:
    if isinstance(term, str):
        return f'"{term}"'
    return "{" + ", ".join(f'"{text}"' for text in sorted(term)) + "}"
