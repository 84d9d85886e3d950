"""`koord gang`: show gangs (pods that are placed together or not at all) and what each of them waits for."""

from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer
from koordcore.protocol import keys

from koordctl.access.clients import NOT_FOUND, manager, scheduler
from koordctl.completing import kind_words
from koordctl.render.output import Format, Output, console, fail, field, show_document, show_table
from koordctl.render.units import duration_text

_FROM_POD_GROUP: Final = "GangFromPodGroupCrd"
_COLUMNS = ("namespace", "name", "phase", "members", "min", "pending", "waiting", "bound", "what")


def gang(
    name: Annotated[str | None, typer.Argument(help="One gang, with its members.")] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show gangs: how many members are pending, wait at Permit or are bound, and what each gang waits for.

    Examples:

      koord gang

      koord gang training -n team

      koord gang -o json
    """
    name = _own_name(name) if name is not None else None
    lines: list[dict[str, Any]] = scheduler.get("/apis/v1/plugins/Coscheduling/lines")
    found = [line for line in lines if _is_meant(line["id"], namespace, name)]
    if name is not None and not found:
        fail(f"there is no gang {name}" + (f" in namespace {namespace}" if namespace else ""))
    if output in (Format.JSON, Format.YAML):
        if name is not None:
            found = [_view(line["id"]) for line in found]
        show_document(found[0] if name is not None and len(found) == 1 else found, output)
        return
    show_table(_COLUMNS, [_row(line) for line in found], empty="no gangs found")
    if name is not None:
        for line in found:
            _show_members(line["id"])


def _own_name(word: str) -> str:
    """The name in `NAME` or `pg/NAME`. The name of a gang may be any text, so it is not refused for a slash."""
    kind, _, name = word.partition("/")
    return name if name and kind_words().get(kind.lower()) == "PodGroup" else word


def _is_meant(gang_id: str, namespace: str | None, name: str | None) -> bool:
    own_namespace, _, own_name = gang_id.partition("/")
    return namespace in (None, own_namespace) and name in (None, own_name)


def _row(line: dict[str, Any]) -> list[object]:
    namespace, _, name = line["id"].partition("/")
    members = line["pending"] + line["waiting"] + line["bound"]
    counts = [members, line["min_members"], line["pending"], line["waiting"], line["bound"]]
    return [namespace, name, line["phase"] or "-", *counts, line["says"]]


def _view(gang_id: str) -> dict[str, Any]:
    return scheduler.get(f"/apis/v1/plugins/Coscheduling/gang/{quote(gang_id, safe='/')}")


def _show_members(gang_id: str) -> None:
    view = _view(gang_id)
    console.print(
        f"mode {view['mode']}, match policy {view['gangMatchPolicy']}, declared by {_origin(view)},"
        f" wait time {duration_text(view['waitTime'] / 1e9)}, group {', '.join(view['gangGroup'])}",
        soft_wrap=True,
    )
    for what, key in (
        ("bound", "boundChildren"),
        ("waiting", "waitingForBindChildren"),
        ("pending", "pendingChildren"),
    ):
        for member in view[key]:
            console.print(f"  {member}  {what}", soft_wrap=True)


def _origin(view: Mapping[str, Any]) -> str:
    """A phrase that says what declares the gang, for example a label of its pods.

    The scheduler's answer says "annotation" for everything except a PodGroup, so the function looks at a member.
    """
    if view["gangFrom"] == _FROM_POD_GROUP:
        return "its PodGroup"
    for member in view["children"]:
        namespace, _, name = member.partition("/")
        answer = manager.request("GET", f"/v1/objects/Pod/{name}", params={"namespace": namespace})
        if answer.status_code != NOT_FOUND:
            return declared_by(field(manager.decoded(answer), "metadata.labels", {}))
    return "labels or annotations of its pods"


def declared_by(labels: Mapping[str, str]) -> str:
    """What in a member's metadata names its gang; labels take precedence over annotations (protocol spec, 4.1)."""
    by_label = labels.get(keys.POD_GROUP) or labels.get(keys.POD_GROUP_NAME)
    return "labels of its pods" if by_label else "annotations of its pods"
