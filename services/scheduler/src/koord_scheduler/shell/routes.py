"""The scheduler's pages over HTTP. If an instance does not lead, its pages below `/apis` answer with status 503.

`/metrics/resources` has the requests and limits of every pod, as kube-scheduler reports them.

Source: scheduler-core spec, 14
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_limits, spec_requests
from koordcore.protocol.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY
from koordcore.values.invalid import InvalidInput
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.framework.extension_points import PAGES
from koord_scheduler.domain.framework.lifecycle_hooks import NotFound, PageAnswer
from koord_scheduler.domain.loop.node_page import node_page
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.shell.debugging import FLAGS, DecisionLog

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PODS_AT_A_TIME: Final = 200
_ENDED: Final = ("Succeeded", "Failed")
_FAMILIES: Final[tuple[tuple[str, str, Callable[[Pod], Mapping[str, int]]], ...]] = (
    ("kube_pod_resource_request", "Resources requested by pods, by node", spec_requests),
    ("kube_pod_resource_limit", "Resources limit of pods, by node", pod_limits),
)


async def resources_page(state: SchedulerState) -> AsyncIterator[str]:
    """Yield the lines of `/metrics/resources` in pieces, and let other tasks run between them. Finished pods, and pods
    whose amounts are invalid, are left out.
    """
    for name, about, amounts_of in _FAMILIES:
        yield f"# HELP {name} {about}\n# TYPE {name} gauge\n"
        pods = list(state.pods.values())
        for begin in range(0, len(pods), _PODS_AT_A_TIME):
            some = pods[begin : begin + _PODS_AT_A_TIME]
            yield "".join(line for pod in some for line in _lines(name, pod, amounts_of))
            await asyncio.sleep(0)


def _lines(family: str, record: PodRecord, amounts_of: Callable[[Pod], Mapping[str, int]]) -> list[str]:
    pod = record.pod
    if pod is None or pod.status.phase in _ENDED:
        return []
    try:
        amounts = amounts_of(pod)
    except InvalidInput:
        return []
    node = record.bound_node or record.node or pod.spec.node_name
    labels = (
        f'namespace="{record.namespace}",pod="{record.name}",node="{node}",'
        f'scheduler="{pod.spec.scheduler_name}",priority="{record.priority}"'
    )
    return [
        f'{family}{{{labels},resource="{name}",unit="{_unit(name)}"}} {amount / 1000 if name == CPU else amount}\n'
        for name, amount in sorted(amounts.items())
    ]


def _unit(resource: str) -> str:
    if resource == CPU:
        return "cores"
    is_bytes = resource in (MEMORY, EPHEMERAL_STORAGE) or resource.startswith("hugepages-")
    return "bytes" if is_bytes else "integer"


NOT_LEADER: Final = "the instance is not leader"
_PLUGINS: Final = "/apis/v1/plugins"
_Answer = Callable[[Request], Any]


def routes(
    state: SchedulerState,
    *,
    configuration: Mapping[str, object],
    decision_log: DecisionLog,
    is_leader: Callable[[], bool],
) -> list[BaseRoute]:
    """`configuration` is what `/configz` shows. `decision_log` takes the flags of `/debug/flags`."""

    def queue(_: Request) -> object:
        counts = {place.name.lower(): count for place, count in state.queue.counts().items()}
        return {**counts, "outbox": len(state.assumed.outbox), "position": state.log.position}

    def node(request: Request) -> object:
        name = request.path_params["node"]
        return _found(node_page(state, name), f"cannot find node {name}")

    def services(_: Request) -> object:
        return {"GET": sorted(pages)}

    pages: dict[str, _Answer] = {
        "/apis/v1/__services__": services,
        "/apis/v1/nodes/{node}": node,
    }

    for framework in state.frameworks.all():
        for plugin in framework.profile.plugins.at(PAGES):
            for path, answer in plugin.pages().items():
                pages.setdefault(f"{_PLUGINS}/{plugin.name}/{path}", _of_plugin(answer))

    def configz(_: Request) -> object:
        return {"kubescheduler.config.k8s.io": configuration}

    async def resources(_: Request) -> Response:
        return StreamingResponse(resources_page(state), media_type=CONTENT_TYPE)

    async def set_flag(request: Request) -> Response:
        flag, value = request.path_params["flag"], (await request.body()).decode(errors="replace")
        if flag not in FLAGS:
            return JSONResponse({"message": f"no flag {flag}; known: {', '.join(FLAGS)}"}, status_code=404)
        try:
            decision_log.change(flag, value)
        except InvalidInput as error:
            return JSONResponse({"message": error.sentence()}, status_code=400)
        return PlainTextResponse(f"successfully set {flag} to {value.strip()}")

    return [
        Route("/queue", _page(queue, lambda: True), methods=["GET"]),
        Route("/configz", _page(configz, lambda: True), methods=["GET"]),
        Route("/metrics/resources", resources, methods=["GET"]),
        Route("/debug/flags/{flag}", set_flag, methods=["PUT"]),
        *(Route(path, _page(answer, is_leader), methods=["GET"]) for path, answer in pages.items()),
    ]


def _page(answer: _Answer, may_answer: Callable[[], bool]) -> Callable[[Request], Any]:
    async def page(request: Request) -> Response:
        if not may_answer():
            return JSONResponse({"message": NOT_LEADER}, status_code=503)
        try:
            return JSONResponse(answer(request))
        except NotFound as missing:
            return JSONResponse({"message": str(missing)}, status_code=404)

    return page


def _of_plugin(answer: PageAnswer) -> _Answer:
    def asked(request: Request) -> object:
        return _found(answer({**request.query_params, **request.path_params}), f"cannot find {request.url.path}")

    return asked


def _found(found: object | None, otherwise: str) -> object:
    if found is None:
        raise NotFound(otherwise)
    return found
