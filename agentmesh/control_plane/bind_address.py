"""Where a server is told to listen: a host and a port, as text."""


def parse_bind_address(text: str) -> tuple[str, int]:
    """Host and port of "0.0.0.0:8080", "[::1]:8080" or "localhost:0".

    Raises:
        ValueError: it is not host:port.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"not host:port: {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)
