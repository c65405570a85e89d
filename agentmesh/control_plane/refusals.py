"""How the control plane says no to one request."""

from http import HTTPStatus

from agentmesh.errors import MeshError


class RefusedError(MeshError):
    """The request is refused. Its text goes to the caller, so it holds nothing that the caller may not know.

    Attributes:
        status: of the HTTP answer.
        retry_after: seconds that the caller is asked to wait, or None.
    """

    def __init__(self, status: HTTPStatus, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


def bad_request(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.BAD_REQUEST, message)


def unauthorized(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.UNAUTHORIZED, message)


def forbidden(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.FORBIDDEN, message)


def not_found(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.NOT_FOUND, message)


def too_many_requests(message: str, retry_after: int) -> RefusedError:
    """`retry_after`: seconds that the caller is asked to wait."""
    return RefusedError(HTTPStatus.TOO_MANY_REQUESTS, message, retry_after)


def unavailable(message: str, retry_after: int) -> RefusedError:
    """Of something that we need and that does not answer. `retry_after`: as above."""
    return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, message, retry_after)
