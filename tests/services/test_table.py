import pytest

from agentmesh.services import SERVICE_TYPES, ServiceKey, ServiceTable


def test_a_service_is_there_from_register_to_unregister() -> None:
    table = ServiceTable()
    assert table.register("mcp", "weather", "http://127.0.0.1:8000/mcp") == ServiceKey("mcp", "weather")
    assert table.lookup("mcp", "weather") == "http://127.0.0.1:8000/mcp"
    assert (len(table), [str(key) for key in table]) == (1, ["mcp://weather"])
    assert table.lookup("http", "weather") is None
    table.unregister("mcp", "weather")
    assert table.lookup("mcp", "weather") is None
    assert len(table) == 0
    with pytest.raises(KeyError):
        table.unregister("mcp", "weather")


def test_every_type_is_served() -> None:
    table = ServiceTable()
    for kind in SERVICE_TYPES:
        table.register(kind, "A-b.c_d~1", "https://[::1]:8443")
    assert len(table) == len(SERVICE_TYPES)


@pytest.mark.parametrize(
    ("kind", "name", "target"),
    [
        ("ftp", "a", "http://h"),
        ("", "a", "http://h"),
        ("mcp", "", "http://h"),
        ("mcp", "a/b", "http://h"),
        ("mcp", "..", "http://h"),
        ("mcp", "a b", "http://h"),
        ("mcp", "a*", "http://h"),
        ("mcp", "a" * 129, "http://h"),
        ("mcp", "a", "h:80"),
        ("mcp", "a", "ftp://h"),
        ("mcp", "a", "http://"),
        ("mcp", "a", "http://h/?a=b"),
    ],
)
def test_what_cannot_be_served_is_refused(kind: str, name: str, target: str) -> None:
    with pytest.raises(ValueError, match="service"):
        ServiceTable().register(kind, name, target)


def test_a_service_is_not_replaced_silently() -> None:
    table = ServiceTable()
    table.register("mcp", "a", "http://one")
    with pytest.raises(ValueError, match="already"):
        table.register("mcp", "a", "http://two")
    assert table.lookup("mcp", "a") == "http://one"
