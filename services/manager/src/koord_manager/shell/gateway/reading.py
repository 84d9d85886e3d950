"""Read objects of the API server into the types of the mirror, reduced to what the log keeps.

As in Kubernetes, null counts as absent. The typed decoder reads almost every object. If it finds null where the type
has a value, the object is decoded again without nulls.

Source:
    https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import msgspec
from koordcore.events.envelope import AggregateRef
from koordcore.protocol.objects import ConfigMap, Namespace, Node, Pod, PriorityClass, without_nulls
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.text_limits import check_json

from koord_manager.domain.gateway.mirror import Object, cleaned, cleaned_pod, named_ref
from koord_manager.domain.gateway.resources import Intake, Mirrored
from koord_manager.shell.gateway.api import LIST_SECONDS, ApiResponse, KubernetesApi

T = TypeVar("T")

MODELS: Final[Mapping[str, type[Any]]] = {
    "Pod": Pod,
    "Node": Node,
    "Namespace": Namespace,
    "PriorityClass": PriorityClass,
    "ConfigMap": ConfigMap,
}
"""Kind -> its type. No field of these is of any depth, nor of any type."""


class ListMeta(msgspec.Struct, rename="camel", omit_defaults=True):
    """The field `metadata` of a list: its version, token of the next page or empty, and how many objects follow.

    The first two are opaque texts. The number is an estimate, and absent if the API server does not know it.
    """

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class _Page(msgspec.Struct, Generic[T]):
    metadata: ListMeta
    items: list[T] | None = None


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class Unreadable(NamedTuple):
    namespace: str  # Its namespace, or ""
    name: str  # Its name, or "" if not even its metadata can be decoded
    uid: str
    problem: str  # The decoding error as a sentence

    def __str__(self) -> str:
        path = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{path or 'an object without a name'}: {self.problem}"


class Page(NamedTuple):
    objects: list[Object]  # The decoded objects, reduced by `cleaned`
    version: str  # Version of the list, from which a watch can start
    following: str  # Token of the next page, or empty for the last one
    unreadable: list[Unreadable]  # The objects that could not be decoded and were left out
    remaining: int  # About how many objects follow on later pages, as far as the API server says

    def unreadable_refs(self, resource: Mirrored) -> set[AggregateRef]:
        """Return the aggregates of the objects of a resource that could not be decoded, as far as they have a name.

        If the result is smaller than `unreadable`, it is unknown which objects the others are.
        """
        named = [each for each in self.unreadable if each.name and each.uid]
        return {named_ref(resource, each.namespace, each.name, each.uid) for each in named}


class Change(NamedTuple):
    version: str
    # The object, reduced by `cleaned`; None for a bookmark, and if the object could not be decoded. If it was deleted,
    # and only its names could be decoded, it has no more than these.
    object: Object | None = None
    gone: bool = False  # Whether the object was deleted
    unreadable: Unreadable | None = None  # The object if it could not be decoded, and exists or has no readable name


class WatchEnded(Exception):
    """Raised if the API server ends a watch with an error, for example because the version is too old."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


_LINE = msgspec.json.Decoder(_Line)
_OBJECT = msgspec.json.Decoder(_Object)
_STATUS = msgspec.json.Decoder(_Status)
_RAW_PAGE = msgspec.json.Decoder(_Page[msgspec.Raw])
_ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def _decoded(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    """Return the decoded value. Raise codec.DecodeError for bytes of any wrong kind."""
    try:
        return decoder.decode(body)
    except (UnicodeDecodeError, RecursionError) as error:
        raise codec.DecodeError(str(error)) from error


def _shallow(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    """As `_decoded`, for values that code of ours walks. A deep object is an error of its own."""
    try:
        check_json(body, most_values=len(body))
    except InvalidInput as error:
        raise codec.DecodeError(str(error)) from error
    return _decoded(decoder, body)


class ResourceDecoder:
    def __init__(self, resource: Mirrored) -> None:
        self._resource = resource
        is_typed = resource.intake is Intake.TYPED
        self._model: type[Any] = MODELS[resource.kind] if is_typed else dict[str, Any]
        # The models have no field that nests without end, so nothing deep is built: the check would cost more than the
        # decoding.
        self._checked: Callable[[msgspec.json.Decoder[Any], bytes], Any] = _decoded if is_typed else _shallow
        self._page: msgspec.json.Decoder[_Page[Any]] = msgspec.json.Decoder(_Page[self._model])
        self._one: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self._model)

    def page(self, body: bytes) -> Page:
        """Decode one page of a list.

        Raises:
            codec.DecodeError: The body is not a list.
        """
        try:
            found: _Page[Any] = self._checked(self._page, body)
            reduced = [self._reduced(item) for item in found.items or []]
            return _page(found.metadata, reduced, [])
        except codec.DecodeError:
            raw = _decoded(_RAW_PAGE, body)
        objects: list[Object] = []
        unreadable: list[Unreadable] = []
        for item in raw.items or []:
            try:
                objects.append(self._read(bytes(item)))
            except codec.DecodeError as error:
                unreadable.append(_unreadable(bytes(item), error))
        return _page(raw.metadata, objects, unreadable)

    def line(self, line: bytes) -> Change:
        """Decode one line of a watch.

        Raises:
            WatchEnded: The line is an event of type ERROR.
            codec.DecodeError: The line is not part of a watch.
        """
        event = _decoded(_LINE, line)
        body = bytes(event.object)
        if event.type == "ERROR":
            status = _decoded(_STATUS, body)
            raise WatchEnded(status.code, status.message)
        version = _decoded(_OBJECT, body).metadata.resource_version
        if event.type == "BOOKMARK":
            return Change(version)
        is_gone = event.type == "DELETED"
        try:
            return Change(version, self._read(body), is_gone)
        except codec.DecodeError as error:
            unreadable = _unreadable(body, error)
        if is_gone and unreadable.name and unreadable.uid:
            return Change(version, self._named(unreadable), is_gone)
        return Change(version, unreadable=unreadable)

    def _named(self, unreadable: Unreadable) -> Object:
        """Return an object with only the names of one that could not be decoded."""
        metadata = {"namespace": unreadable.namespace, "name": unreadable.name, "uid": unreadable.uid}
        return self._reduced(codec.convert({"metadata": metadata}, self._model))

    def _read(self, body: bytes) -> Object:
        try:
            found = self._checked(self._one, body)
        except msgspec.ValidationError:
            found = codec.convert(without_nulls(_shallow(_ANYTHING, body)), self._model)
        return self._reduced(found)

    def _reduced(self, found: Any) -> Object:
        """Return the part of an object that enters the log.

        Raises:
            codec.DecodeError: The object has no name, or a field of a storage object has a wrong type.
        """
        if isinstance(found, dict):
            metadata: object = cast("dict[str, Any]", found).get("metadata")
            if not isinstance(metadata, dict) or not cast("dict[str, Any]", metadata).get("name"):
                raise codec.DecodeError("metadata.name: must be set")
        return cleaned(self._resource, cast("Object", found))


def _page(meta: ListMeta, objects: list[Object], unreadable: list[Unreadable]) -> Page:
    remaining = max(0, meta.remaining_item_count or 0)
    return Page(objects, meta.resource_version, meta.continue_, unreadable, remaining)


def read_pod(body: bytes) -> Pod:
    """Decode the pod in the answer to a GET request, reduced to what the log keeps.

    Raises:
        codec.DecodeError: The body is not a pod.
    """
    return cleaned_pod(codec.convert(without_nulls(_shallow(_ANYTHING, body)), Pod))


def _unreadable(body: bytes, error: Exception) -> Unreadable:
    try:
        meta = _decoded(_OBJECT, body).metadata
    except msgspec.DecodeError:
        return Unreadable("", "", "", str(error))
    return Unreadable(meta.namespace, meta.name, meta.uid, str(error))


PAGE: Final = 500
"""Number of objects in one page."""


class RequestRefused(Exception):
    def __init__(self, answer: ApiResponse) -> None:
        super().__init__(f"{answer.status}: {answer.message()}")
        self.answer = answer


def selection(resource: Mirrored) -> dict[str, str]:
    """Return the query parameters that restrict a list or a watch to the objects of a resource."""
    return {"fieldSelector": resource.field_selector} if resource.field_selector else {}


async def list_pages(api: KubernetesApi, resource: Mirrored, size: int = PAGE) -> AsyncIterator[Page]:
    """List all objects of a resource, and yield the pages, which are consistent with each other.

    Args:
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
