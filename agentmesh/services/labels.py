"""Which labels a caller wants the provider to have: `X-Mesh-Required-Labels: site=a, site=b`, one of them is enough."""

from collections.abc import Iterable, Mapping

LABELS_HEADER = b"x-mesh-required-labels"
MAX_REQUIRED = 32  # pairs in one request

Labels = tuple[tuple[str, str], ...]


def required_labels(headers: Iterable[tuple[bytes, bytes]]) -> Labels:
    """What the headers of a request require; nothing when they do not say.

    Raises:
        ValueError: what they say is no list of key=value.
    """
    texts = [value.decode("latin-1") for name, value in headers if name.lower() == LABELS_HEADER]
    pairs = [text.strip() for text in ",".join(texts).split(",")] if texts else []
    if len(pairs) > MAX_REQUIRED:
        raise ValueError(f"X-Mesh-Required-Labels has more than {MAX_REQUIRED} pairs")
    return tuple(_pair(text) for text in pairs)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(f"X-Mesh-Required-Labels is key=value, key=value: {text!r} is none")
    return key, value


def suffices(has: Mapping[str, str], required: Labels, floor: Mapping[str, str]) -> bool:
    """Whether a provider has one of the labels that its caller requires, and all that its operator does."""
    asked = not required or any(has.get(key) == value for key, value in required)
    return asked and all(has.get(key) == value for key, value in floor.items())
