"""Which labels a caller wants the provider to have: `X-Mesh-Required-Labels: site=a, site=b`, one of them is enough."""

from collections.abc import Iterable, Mapping, Sequence

LABELS_HEADER = b"x-mesh-required-labels"
MAX_REQUIRED = 32  # pairs in one request

Labels = Sequence[tuple[str, str]]


def required_labels(headers: Iterable[tuple[bytes, bytes]]) -> Labels:
    """What the headers of a request require; nothing when they do not say.

    Raises:
        ValueError: what they say is no list of key=value.
    """
    texts = [value.decode("latin-1") for name, value in headers if name.lower() == LABELS_HEADER]
    return pairs_in(",".join(texts)) if texts else ()


def pairs_in(text: str, where: str = "X-Mesh-Required-Labels") -> Labels:
    """The pairs of a list as somebody wrote it: `key=value, key=value`.

    Args:
        where: what it is called in errors.
    Raises:
        ValueError: it is no such list, or too long a one.
    """
    pairs = [pair.strip().partition("=") for pair in text.split(",")]
    if len(pairs) > MAX_REQUIRED:
        raise ValueError(f"{where} has more than {MAX_REQUIRED} pairs")
    for key, equals, value in pairs:
        if not key or not equals:
            raise ValueError(f"{where} is key=value, key=value: {key + equals + value!r} is none")
    return tuple((key, value) for key, _, value in pairs)


def suffices(has: Mapping[str, str], any_of: Labels, all_of: Iterable[tuple[str, str]]) -> bool:
    """Whether a member has one of the labels of a list, unless that is empty, and all of another."""
    asked = not any_of or any(has.get(key) == value for key, value in any_of)
    return asked and all(has.get(key) == value for key, value in all_of)
