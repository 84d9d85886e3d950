"""What the scheduler shows of itself over HTTP; a copy that does not lead answers 503 on `/apis`.

source    scheduler-core spec, 14
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from koordcore.values.invalid import InvalidInput
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from koord_scheduler.domain.controllers.node_page import node_page
from koord_scheduler.domain.framework.lifecycle_hooks import Answer
from koord_scheduler.domain.gang.summary import gang_line, gang_view, gang_views
from koord_scheduler.domain.loadaware.debugging import describe_node
from koord_scheduler.domain.plugins.resources.load_aware_scheduling import LoadAwareScheduling
from koord_scheduler.domain.quota.status.reports import QuotaReports
from koord_scheduler.domain.state.state import SchedulerState
from koord_scheduler.shell.debugging import FLAGS, DecisionLog
from koord_scheduler.shell.pod_resources import CONTENT_TYPE, resources_page

NOT_LEADER: Final = "the instance is not leader"
_PLUGINS: Final = "/apis/v1/plugins"
_Answer = Callable[[Request], Any]


class Missing(Exception):
    """What is asked for does not exist."""


def routes(
    state: SchedulerState,
    *,
    configuration: Mapping[str, object],
    decision_log: DecisionLog,
    is_leader: Callable[[], bool],
) -> list[BaseRoute]:
    """All pages.

    configuration    what `/configz` shows
    """
    quotas = QuotaReports(state.cluster.quotas)
    gangs = state.cluster.gangs

    def queue(_: Request) -> object:
        counts = {place.name.lower(): count for place, count in state.queue.counts().items()}
        return {**counts, "outbox": len(state.assumed.outbox), "position": state.log.position}

    def node(request: Request) -> object:
        name = request.path_params["node"]
        return _found(node_page(state, name), f"cannot find node {name}")

    def load(request: Request) -> object:
        row = state.nodes.row(request.path_params["node"])
        plugins = [each for each in state.cluster.node_followers if isinstance(each, LoadAwareScheduling)]
        if row is None or not plugins:
            return {}
        return describe_node(plugins[0].load.node_load(row), plugins[0].load.args)

    def gang(request: Request) -> object:
        gang_id = f"{request.path_params['namespace']}/{request.path_params['name']}"
        return _found(gang_view(gangs, gang_id), f"cannot find gang {gang_id}")

    def gang_lines(_: Request) -> object:
        lines = (gang_line(gangs, gang_id) for gang_id in sorted(gangs.roster.gangs))
        return [msgspec.to_builtins(line) for line in lines if line is not None]

    def quota(request: Request) -> object:
        name = request.path_params["name"]
        if name not in state.cluster.quotas.forest.nodes:
            raise Missing(f"cannot find quota {name}")
        return quotas.document(name, include_pods=_asks_for_pods(request))

    def quota_documents(request: Request) -> object:
        return quotas.documents(request.query_params.get("tree", ""), include_pods=_asks_for_pods(request))

    def quota_trees(request: Request) -> object:
        return _quota_trees(state, request.query_params.get("tree"))

    def services(_: Request) -> object:
        return {"GET": sorted(pages)}

    pages: dict[str, _Answer] = {
        "/apis/v1/__services__": services,
        "/apis/v1/nodes/{node}": node,
        f"{_PLUGINS}/LoadAwareScheduling/node/{{node}}": load,
        f"{_PLUGINS}/Coscheduling/gang/{{namespace}}/{{name}}": gang,
        f"{_PLUGINS}/Coscheduling/gangs": lambda _: gang_views(gangs),
        f"{_PLUGINS}/Coscheduling/lines": gang_lines,
        f"{_PLUGINS}/ElasticQuota/quotas/{{name}}": quota,
        f"{_PLUGINS}/ElasticQuota/quotas": quota_documents,
        f"{_PLUGINS}/ElasticQuota/trees": quota_trees,
    }

    for framework in state.frameworks.all():
        for plugin in framework.profile.pages:
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
        except Missing as missing:
            return JSONResponse({"message": str(missing)}, status_code=404)

    return page


def _of_plugin(answer: Answer) -> _Answer:
    def asked(request: Request) -> object:
        return _found(answer({**request.query_params, **request.path_params}), f"cannot find {request.url.path}")

    return asked


def _asks_for_pods(request: Request) -> bool:
    return request.query_params.get("includePods", "").lower() in ("true", "1")


def _quota_trees(state: SchedulerState, only: str | None) -> dict[str, list[object]]:
    reports = QuotaReports(state.cluster.quotas)
    trees = sorted(state.cluster.quotas.forest.roots) if only is None else [only]
    return {tree: [msgspec.to_builtins(each) for each in reports.explain_tree(tree)] for tree in trees}


def _found(found: object | None, otherwise: str) -> object:
    if found is None:
        raise Missing(otherwise)
    return found
