"""Labels within their rules, and the same fault named every time."""

import pytest

from agentmesh.control_plane.labels import MAX_LABELS, label_fault


def test_good_labels() -> None:
    assert label_fault({}) is None
    assert label_fault({"region": "eu-west 1", "a.b_c-D9": "", "k" * 63: "ü" * 127}) is None


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        ({"": "x"}, "label key ''"),
        ({"a b": "x"}, "label key 'a b'"),
        ({"k" * 64: "x"}, "label key"),
        ({"key\n": "x"}, "label key"),
        ({"k": "v" * 256}, "longer than 255 bytes"),
        ({"k": "ü" * 128}, "longer than 255 bytes"),
        ({"k": "a,b"}, "a comma"),
        ({"k": "a=b"}, "a comma"),
        ({"k": "a\nb"}, "a comma"),
        ({str(n): "" for n in range(MAX_LABELS + 1)}, "more than"),
    ],
)
def test_bad_labels(labels: dict[str, str], fault: str) -> None:
    assert fault in (label_fault(labels) or "")


def test_the_first_fault_by_key_is_named_whatever_the_order() -> None:
    assert label_fault({"z z": "", "b b": ""}) == label_fault({"b b": "", "z z": ""})
    assert "'b b'" in (label_fault({"z z": "", "b b": ""}) or "")
