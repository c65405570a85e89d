"""The answers that the mesh gives itself, on either side. A service's own never carry the X-Mesh-Error header."""

import attrs

from agentmesh.protocols.http import ERROR_HEADER, Send


@attrs.frozen
class Answer:
    """Says why in one word (the X-Mesh-Error header, "" for none) and in a sentence (the body, plain text)."""

    status: int
    error: str
    text: str
    challenge: str = "X-Mesh-Biscuit"  # of a 401: what is to be shown

    @property
    def body(self) -> bytes:
        return f"{self.text}\n".encode()

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(self.body)).encode("ascii")),
        ]
        if self.error:
            headers.append((ERROR_HEADER, self.error.encode("ascii")))
        if self.status == 401:
            headers.append((b"www-authenticate", self.challenge.encode("ascii")))
        return headers

    async def send(self, send: Send) -> None:
        """Give this answer to a request, over ASGI."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})
