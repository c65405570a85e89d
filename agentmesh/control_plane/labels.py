"""Labels: what a member says of itself and the control plane attests, one value for a key."""

import re
from collections.abc import Mapping

MAX_LABELS = 64
MAX_VALUE_BYTES = 255
KEY = re.compile(r"[a-zA-Z0-9_.-]{1,63}")


def label_fault(labels: Mapping[str, str]) -> str | None:
    """What is wrong with the first wrong label, in the order of the keys; None when all are right."""
    if len(labels) > MAX_LABELS:
        return f"more than {MAX_LABELS} labels"
    for key, value in sorted(labels.items()):
        if not KEY.fullmatch(key):
            return f"label key {key[:63]!r}: 1 to 63 of a-z, A-Z, 0-9, '_', '.', '-'"
        if len(value.encode()) > MAX_VALUE_BYTES:
            return f"the value of label {key} is longer than {MAX_VALUE_BYTES} bytes"
        if any(c in ",=" or not c.isprintable() for c in value):
            return f"the value of label {key} holds a comma, an equals sign or a control character"
    return None
