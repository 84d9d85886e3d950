// Configuration: ConfigMaps in force, problems in newer versions, and each change: when, by whom, which lines.
import { get, objects } from "../api.js";
import { fill, h, trace } from "../dom.js";
import { grouped, moment } from "../format.js";
import { lineDiff } from "../linediff.js";

const HISTORY = 100;

export async function configurationView(root, { at, signal }) {
  const { found, shown } = await objects("config", at, signal);
  const position = at ? shown.position : null;
  const histories = await Promise.all(found.map((entry) => get("/api/events", { kind: "config", id: entry.id, bodies: "true", limit: HISTORY, before: position === null ? null : position + 1 }, signal)));
  const open = new Set([...root.querySelectorAll("details[open]")].map((each) => each.dataset.key));
  fill(root, h("div", { class: "stack" }, h("h1", { class: "visually-hidden" }, "Configuration"),
    found.length === 0 && h("section", { class: "panel" }, h("p", { class: "empty" }, "There is no ConfigMap that configures Koordstream.")),
    found.map((entry, index) => panel(entry, histories[index].events, open))));
  return shown;
}

/** Namespace and name of a ConfigMap from its id. */
export const configName = (id) => id.split("=").map((part) => part.replaceAll("_", ".")).join("/");

function panel(entry, events, open) {
  const { state } = entry;
  const name = configName(entry.id);
  const rejected = Object.entries(state?.rejected ?? {});
  const warnings = Object.entries(state?.warnings ?? {});
  return h("section", { class: "panel config", "aria-label": name },
    h("div", { class: "bar" }, h("h2", {}, name),
      h("span", { class: `phase ${rejected.length ? "pending" : state?.object ? "running" : "gone"}` }, rejected.length ? "newest version refused" : state?.object ? "in force" : "deleted"),
      state?.accepted_seq && h("span", { class: "note" }, `since position ${grouped(state.accepted_seq)}`)),
    rejected.map(([key, reason]) => h("p", { class: "error" }, h("b", {}, `${key}: `), reason)),
    warnings.map(([key, text]) => h("p", { class: "note" }, h("b", {}, `${key}: `), text)),
    Object.entries(state?.object?.data ?? {}).map(([key, text]) => details(`${entry.id} ${key}`, open, key, h("pre", { class: "diff" }, pretty(text)))),
    h("h3", { class: "note" }, "Changes"),
    events.length === 0 ? h("p", { class: "empty" }, "Its changes are no longer in the log.") : h("ol", { class: "life" }, changes(entry.id, events, open)));
}

/** The data that a fact brings, null if it brings none. */
const dataOf = (event) => ({ ConfigAccepted: event.body?.object?.data ?? {}, ConfigRejected: event.body?.data })[event.type] ?? null;

/** Facts of one ConfigMap, newest first, each with the lines that differ from the version in force before. */
function changes(id, events, open) {
  return events.map((event, index) => {
    const data = dataOf(event);
    const before = events.slice(index + 1).find((each) => each.type === "ConfigAccepted")?.body.object.data ?? {};
    const keys = data === null ? [] : [...new Set([...(event.type === "ConfigAccepted" ? Object.keys(before) : []), ...Object.keys(data)])].filter((key) => before[key] !== data[key]);
    return h("li", { class: event.type.includes("Deleted") ? "step-deleted" : event.type.includes("Rejected") ? "step-unschedulable" : "step-placed" },
      h("div", { class: "head" }, h("span", { class: "step" }, event.summary || event.type), h("span", { class: "when" }, `${moment(event.occurred_at)} · position ${grouped(event.seq)}`)),
      h("div", { class: "who" }, h("span", {}, `by ${event.actor}`), event.causation_id && h("span", { title: "koord audit --requests names who sent it" }, "request ", h("code", {}, event.causation_id)), event.trace_id && trace(event.trace_id)),
      keys.map((key) => details(`${id} ${event.seq} ${key}`, open, `${key}: what changed`, h("pre", { class: "diff" },
        lineDiff(pretty(before[key] ?? ""), pretty(data[key] ?? "")).map(([kind, line]) => h("div", { class: kind }, `${{ added: "+", removed: "−", same: " " }[kind]} ${line}`))))));
  });
}

function details(key, open, title, ...children) {
  return h("details", { "data-key": key, open: open.has(key) }, h("summary", {}, title), children);
}

/** JSON in two-space form, other text as it is. */
function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}
