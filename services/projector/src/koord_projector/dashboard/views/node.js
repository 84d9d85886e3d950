// One node: its hardware and who holds it, what is requested, used and reclaimed, how that was computed, how best effort was held back, who is on it.
import { get } from "../api.js";
import { Chart } from "../chart.js";
import { fill, h, linkTo } from "../dom.js";
import { HardwarePanel } from "../hardware.js";
import { bytes, cores, duration, grouped, moment, percent, share } from "../format.js";
import { statusChips, taintsOf } from "../nodestatus.js";

export async function nodeView(root, { parameters, at, signal, go }) {
  const path = `/api/nodes/${encodeURIComponent(parameters[0])}`;
  const answer = await get(path, { at }, signal);
  const { hardware } = await get(`${path}/hardware`, { at: at && answer.moment.position }, signal);
  const { node } = answer;
  if (!root.kept) {
    const page = { head: h("div", { class: "title" }), state: h("div", { class: "state-lines" }), gauges: h("div", { class: "gauge" }), terms: h("div", {}), history: h("div", {}), protection: h("div", {}), pods: h("div", {}) };
    page.hardware = new HardwarePanel();
    page.unknown = h("p", { class: "empty" });
    page.chart = new Chart({ height: 260, format: (value) => cores(value) });
    page.close = () => page.chart.close();
    page.repaint = () => page.chart.repaint();
    fill(root, h("div", { class: "stack" }, h("div", {}, page.head, page.state), page.hardware.element,
      h("div", { class: "columns" },
        h("div", { class: "stack", css: { "align-content": "start" } },
          h("section", { class: "panel" }, h("h2", {}, "Resources"), page.gauges),
          h("section", { class: "panel" }, h("h2", {}, "Why so much is reclaimed"), page.terms)),
        h("div", { class: "stack", css: { "align-content": "start" } },
          h("section", { class: "panel" }, h("h2", {}, "Load and protection ", h("span", { class: "note" }, "cores; lines across mark evictions, disturbances and the agent's writes")), page.unknown, page.chart.element),
          h("section", { class: "panel" }, h("h2", {}, "Quota of best effort"), page.history),
          h("section", { class: "panel" }, h("h2", {}, "Evictions, disturbances, knobs"), page.protection))),
      h("section", { class: "panel" }, h("h2", {}, "Pods"), page.pods)));
    root.kept = page;
  }
  const page = root.kept;
  fill(page.head, h("h1", {}, node.name), h("span", { class: "states", role: "status" }, statusChips(node)),
    node.host && h("span", { class: "badge" }, `${node.host} agent`),
    h("span", { class: "note" }, node.reported_at ? `reported ${moment(node.reported_at)}` : "no report yet"));
  fill(page.state, stateLines(node, answer.object, at));
  page.hardware.show(hardware, { at, go });
  fill(page.gauges, gauges(node));
  fill(page.terms, overcommit(answer.overcommit));
  fill(page.history, suppression(answer.suppression));
  fill(page.protection, protection(answer.protection));
  fill(page.pods, podTable(answer.pods, at, go));
  page.chart.element.hidden = answer.usage.length < 2;
  page.unknown.hidden = !page.chart.element.hidden;
  page.unknown.textContent = answer.usage.length === 1 ? "The agent sent one report; a line needs two." : "The agent has sent no report up to this moment.";
  if (answer.usage.length > 1) {
    const times = answer.usage.map((point) => new Date(point.reported_at).getTime() / 1000);
    page.chart.show(times, [
      { label: "allocatable", color: "c6", values: times.map(() => node.cpu_milli), width: 1.5, dash: [5, 4] },
      { label: "used", color: "c2", values: answer.usage.map((point) => point.cpu_used), fill: true },
      { label: "latency-sensitive", color: "c1", values: answer.usage.map((point) => point.cpu_used - point.be_cpu_used - point.system_cpu_used) },
      { label: "best effort", color: "c3", values: answer.usage.map((point) => point.be_cpu_used), fill: true },
      { label: "best-effort quota", color: "c4", values: quotaOver(times, answer.suppression), width: 1.5, dash: [3, 3], stepped: true },
    ], marks(answer.protection));
  }
  return answer.moment;
}

// Taints, conditions that are bad with their reasons, the drain that closed it, zone and kind.
function stateLines(node, object, at) {
  const taints = taintsOf(node);
  const drain = taints.map((taint) => /^drain\.descheduler\.koordinator\.sh\/drain-node=([^:]*)/.exec(taint)?.[1]).find((name) => name !== undefined);
  const bad = node.conditions.split(" ").filter(Boolean).map((name) => (name === "NotReady" ? "Ready" : name));
  const conditions = (object?.status?.conditions ?? []).filter((each) => bad.includes(each.type)).map((each) => `${each.type} is ${each.status}${each.reason ? ` (${each.reason})` : ""}`);
  const labels = object?.metadata?.labels ?? {};
  const line = (name, ...value) => h("span", {}, h("span", { class: "note" }, `${name} `), value);
  return [
    conditions.length > 0 && line("conditions", conditions.join(", ")),
    drain !== undefined && line("drain", linkTo("/descheduling", at, drain)),
    taints.length > 0 && line("taints", taints.map((taint) => h("code", { class: "taint" }, taint))),
    labels["topology.kubernetes.io/zone"] && line("zone", labels["topology.kubernetes.io/zone"]),
    labels["node.kubernetes.io/instance-type"] && line("kind", labels["node.kubernetes.io/instance-type"]),
    object && h("details", {}, h("summary", { class: "note" }, `${Object.keys(labels).length} labels`),
      h("dl", { class: "facts" }, Object.entries(labels).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))),
  ];
}

function gauges(node) {
  const row = (label, part, whole, show, tint) => whole > 0 && [
    h("span", {}, label),
    h("span", { class: "lane" }, h("i", { css: { width: `${Math.min(100, share(part ?? 0, whole) * 100)}%`, background: `var(--${tint})` } })),
    h("span", { class: "right" }, part === null ? "no report" : `${show(part)} of ${show(whole)} (${percent(share(part, whole))})`),
  ];
  const held = node.reservations > 0; // what Reservations hold and no pod takes is a part of what is requested
  return [
    row("CPU requested", node.cpu_requested, node.cpu_milli, cores, "c1"),
    held && row("of it unused reserved", node.cpu_unused_reserved, node.cpu_milli, cores, "c5"), row("CPU used", node.cpu_used, node.cpu_milli, cores, "c2"),
    row("CPU reclaimed", node.batch_cpu, node.cpu_milli, cores, "c3"), row("of it taken", node.batch_cpu_requested, node.batch_cpu, cores, "c3"),
    row("memory requested", node.memory_requested, node.memory_bytes, bytes, "c1"),
    held && row("of it unused reserved", node.memory_unused_reserved, node.memory_bytes, bytes, "c5"), row("memory used", node.memory_used, node.memory_bytes, bytes, "c2"),
    row("memory reclaimed", node.batch_memory, node.memory_bytes, bytes, "c3"), row("GPUs", node.gpus_requested, node.gpus, grouped, "c4"),
    held && row("of it unused reserved", node.gpus_unused_reserved, node.gpus, grouped, "c5"),
  ];
}

// batch = capacity - margin - max(system, reserved) - used by high priority, drawn as what each term leaves.
function overcommit(events) {
  const [newest] = events;
  const last = events.find((event) => Object.keys(event.body.terms ?? {}).length > 0);
  if (!last) return h("p", { class: "empty" }, "Nothing is reclaimed on this node.");
  const isWithdrawn = newest.body.batch_cpu_milli === undefined && newest.body.mid_cpu_milli === undefined;
  return [
    isWithdrawn ? h("p", {}, `Nothing is reclaimed: withdrawn ${moment(newest.occurred_at)}, ${newest.body.reason}.`)
      : h("p", { class: "note", css: { margin: "0 0 10px" } }, `${last.body.reason}, computed ${moment(last.occurred_at)} at position ${grouped(last.seq)}`),
    !isWithdrawn && Object.entries(last.body.terms).map(([resource, terms]) => waterfall(resource, terms)),
    events.length > 1 && h("details", {}, h("summary", { class: "note" }, `${events.length} computations`),
      h("table", { class: "list" }, h("tbody", {}, events.map((event) => h("tr", {}, h("td", { class: "nowrap" }, moment(event.occurred_at)),
        h("td", { class: "number" }, event.body.batch_cpu_milli === undefined ? "withdrawn" : `${cores(event.body.batch_cpu_milli)} cores`), h("td", {}, event.body.reason)))))),
  ];
}

function waterfall(resource, terms) {
  const show = resource === "memory" ? bytes : cores;
  const whole = Math.max(1, terms.capacity);
  let left = terms.capacity;
  const lane = (label, from, size, tint, sign, strong) => [
    h("span", { class: strong ? "result" : "" }, label),
    h("span", { class: "lane" }, h("i", { css: { left: `${(Math.max(0, from) / whole) * 100}%`, width: `${(Math.max(0, size) / whole) * 100}%`, background: `var(--${tint})` } })),
    h("span", { class: `right ${strong ? "result" : ""}` }, `${sign}${show(size)}`),
  ];
  const minus = (label, size) => { left -= size; return lane(label, left, size, "c6", "−"); };
  const high = terms.policy === "request" ? terms.high_priority_request : terms.high_priority_used;
  return h("div", { class: "terms", css: { "margin-bottom": "14px" } },
    lane(`${resource} capacity`, 0, terms.capacity, "c1", "", true), minus("safety margin", terms.margin),
    minus(terms.reserved > terms.system_used ? "reserved" : "system used", Math.max(terms.system_used, terms.reserved)),
    minus("used by high priority", high), lane("for best effort", 0, terms.result, "c3", "", true));
}

function suppression(events) {
  if (events.length === 0) return h("p", { class: "empty" }, "The agent never limited best-effort pods here.");
  const quota = (value) => (value === undefined || value < 0 ? "unlimited" : `${cores(value / 100)} cores`);
  return h("div", { class: "table" }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, h("th", {}, "When"), h("th", { class: "number" }, "Quota"), h("th", {}, "Why"))),
    h("tbody", {}, events.slice(0, 12).map((event) => h("tr", {}, h("td", { class: "nowrap" }, moment(event.occurred_at)),
      h("td", { class: "number" }, `${quota(event.body.old_quota_us)} → ${quota(event.body.new_quota_us)}`), h("td", {}, event.body.reason))))));
}

const inSeconds = (text) => new Date(text).getTime() / 1000;

// The quota in force at each time, in milli-cores; nothing where best effort was not held back.
function quotaOver(times, events) {
  const changes = [...events].reverse().map((event) => [inSeconds(event.occurred_at), event.body.new_quota_us ?? -1]);
  let next = 0;
  let quota = -1;
  return times.map((time) => {
    while (next < changes.length && changes[next][0] <= time) quota = changes[next++][1];
    return quota < 0 ? null : quota / 100;
  });
}

const MARKS = { PodsEvictedByAgent: ["evicted", "bad"], ContainersOomKilled: ["killed", "bad"], InterferenceDetected: ["disturbed", "c5"], KnobsChanged: ["knobs", "muted"], AgentStopped: ["agent stopped", "muted"] };

function marks(events) {
  return events.filter((event) => MARKS[event.type]).map((event) => {
    const [label, tint] = MARKS[event.type];
    return { time: inSeconds(event.occurred_at), label, color: tint };
  });
}

function protection(events) {
  if (events.length === 0) return h("p", { class: "empty" }, "Nobody was evicted or disturbed here.");
  const names = (pods) => pods.map((pod) => `${pod.namespace}/${pod.name}`).join(", ");
  const sentence = {
    PodsEvictedByAgent: (body) => `${names(body.pods)} (${body.feature}): ${body.reason}`,
    InterferenceDetected: (body) => `${body.namespace}/${body.name}: ${body.signal} ${body.value} reached ${body.threshold}`
      + `${body.suspects?.length ? `; suspects ${body.suspects.map((one) => `${one.name} ${percent(one.score)}`).join(", ")}` : ""}`
      + `${body.mitigation?.length ? `; ${body.mitigation.join("; ")}` : ""}`,
    InterferenceEnded: (body) => `${body.signal} ended after ${duration(body.lasted_seconds)}`,
    KnobsChanged: (body) => `${grouped(body.writes)} writes: ${body.changes.slice(0, 3).map((one) => `${one.knob} ${one.old} → ${one.new}`).join(", ")}`
      + `${body.changes.flatMap((one) => one.lost ?? []).map((lost) => `; ${lost.strategy} lost ${lost.value} (${lost.loss})`).join("")}`,
    AgentStopped: (body) => `${Object.keys(body.left ?? {}).length} knobs stay as they are`,
  };
  const what = { ...Object.fromEntries(Object.entries(MARKS).map(([type, [label]]) => [type, label])), InterferenceEnded: "undisturbed" };
  return h("div", { class: "table" }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, h("th", {}, "When"), h("th", {}, "What"), h("th", {}, "Which and why"))),
    h("tbody", {}, events.slice(0, 20).map((event) => h("tr", {}, h("td", { class: "nowrap" }, moment(event.occurred_at)),
      h("td", { class: "nowrap" }, what[event.type]), h("td", { class: "wrap" }, sentence[event.type](event.body)))))));
}

function podTable(pods, at, go) {
  if (pods.length === 0) return h("p", { class: "empty" }, "No pod is on this node.");
  const suffix = at ? `?at=${encodeURIComponent(at)}` : "";
  return h("div", { class: "table" }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, h("th", {}, "Pod"), h("th", {}, "Phase"), h("th", {}, "QoS"), h("th", { class: "number" }, "CPU"), h("th", { class: "number" }, "Memory"), h("th", {}, "Placed"))),
    h("tbody", {}, pods.map((pod) => h("tr", { class: "link", onclick: (event) => { if (!event.target.closest("a")) go(`/pods/${encodeURIComponent(pod.uid)}`, at); } },
      h("td", {}, h("a", { href: `#/pods/${encodeURIComponent(pod.uid)}${suffix}` }, h("span", { class: "note" }, `${pod.namespace}/`), pod.name)),
      h("td", {}, h("span", { class: `phase ${pod.phase}` }, pod.phase)), h("td", {}, h("span", { class: `qos ${pod.qos}` }, pod.qos)),
      h("td", { class: "number" }, cores(pod.requests.cpu ?? pod.requests["kubernetes.io/batch-cpu"] ?? 0)),
      h("td", { class: "number" }, bytes(pod.requests.memory ?? pod.requests["kubernetes.io/batch-memory"] ?? 0)),
      h("td", { class: "nowrap" }, moment(pod.placed_at)))))));
}
