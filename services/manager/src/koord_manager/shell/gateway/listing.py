"""List all objects of one resource of the API server, page by page.

Source:
    https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from collections.abc import AsyncIterator
from typing import Final

from koord_manager.domain.gateway.resources import Mirrored
from koord_manager.shell.gateway.api import LIST_SECONDS, ApiResponse, KubernetesApi
from koord_manager.shell.gateway.decoding import Page, ResourceDecoder

PAGE: Final = 500
"""Number of objects in one page."""


class RequestRefused(Exception):
    """Raised if the API server answers a list or a watch with an error."""

    def __init__(self, answer: ApiResponse) -> None:
        super().__init__(f"{answer.status}: {answer.message()}")
        self.answer = answer


def selection(resource: Mirrored) -> dict[str, str]:
    """Return the query parameters that restrict a list or a watch to the objects of a resource."""
    return {"fieldSelector": resource.field_selector} if resource.field_selector else {}


async def list_pages(api: KubernetesApi, resource: Mirrored, size: int = PAGE) -> AsyncIterator[Page]:
    """List all objects of a resource, and yield the pages, which are consistent with each other.

    Args:
        api: Client of the API server.
        resource: The resource to list.
        size: Maximum number of objects in one page.

    Raises:
        RequestRefused: The API server answered with an error, for example because the list expired.
        Unreachable: The API server does not answer.
        codec.DecodeError: The answer is not a list.
    """
    decoder = ResourceDecoder(resource)
    parameters = {"limit": str(size), **selection(resource)}
    while True:
        answer = await api.request("GET", resource.path, parameters=parameters, seconds=LIST_SECONDS)
        if not answer.ok:
            raise RequestRefused(answer)
        page = decoder.page(answer.body)
        yield page
        if not page.following:
            return
        parameters["continue"] = page.following
