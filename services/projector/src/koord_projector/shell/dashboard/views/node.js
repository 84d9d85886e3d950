// One node: what is requested, used and reclaimed, how that was computed, how best effort was held back, who is on it.
import { get } from "../api.js";
import { Chart } from "../chart.js";
import { fill, h } from "../dom.js";
import { bytes, cores, grouped, moment, percent, share } from "../format.js";

export async function nodeView(root, { parameters, at, signal, go }) {
  const answer = await get(`/api/nodes/${encodeURIComponent(parameters[0])}`, { at }, signal);
  const { node } = answer;
  if (!root.kept) {
    const page = { head: h("div", { class: "title" }), gauges: h("div", { class: "gauge" }), terms: h("div", {}), history: h("div", {}), pods: h("div", {}) };
    page.chart = new Chart({ height: 200, format: (value) => cores(value) });
    page.close = () => page.chart.close();
    page.repaint = () => page.chart.repaint();
    fill(root, h("div", { class: "stack" }, page.head,
      h("div", { class: "columns" },
        h("div", { class: "stack", css: { "align-content": "start" } },
          h("section", { class: "panel" }, h("h2", {}, "Resources"), page.gauges),
          h("section", { class: "panel" }, h("h2", {}, "Why so much is reclaimed"), page.terms)),
        h("div", { class: "stack", css: { "align-content": "start" } },
          h("section", { class: "panel" }, h("h2", {}, "CPU used ", h("span", { class: "note" }, "cores")), page.chart.element),
          h("section", { class: "panel" }, h("h2", {}, "Best effort held back"), page.history))),
      h("section", { class: "panel" }, h("h2", {}, "Pods"), page.pods)));
    root.kept = page;
  }
  const page = root.kept;
  fill(page.head, h("h1", {}, node.name), node.unschedulable && h("span", { class: "phase pending" }, "unschedulable"),
    h("span", { class: "badge" }, node.host || "no agent"), h("span", { class: "note" }, node.reported_at ? `reported ${moment(node.reported_at)}` : "no report yet"));
  fill(page.gauges, gauges(node));
  fill(page.terms, overcommit(answer.overcommit));
  fill(page.history, suppression(answer.suppression));
  fill(page.pods, podTable(answer.pods, at, go));
  if (answer.usage.length > 1) {
    const times = answer.usage.map((point) => new Date(point.reported_at).getTime() / 1000);
    page.chart.show(times, [
      { label: "allocatable", color: "c6", values: times.map(() => node.cpu_milli), width: 1.5, dash: [5, 4] },
      { label: "used", color: "c2", values: answer.usage.map((point) => point.cpu_used), fill: true },
      { label: "best effort", color: "c3", values: answer.usage.map((point) => point.be_cpu_used), fill: true },
    ]);
  }
  return answer.moment;
}

function gauges(node) {
  const row = (label, part, whole, show, tint) => whole > 0 && [
    h("span", {}, label),
    h("span", { class: "lane" }, h("i", { css: { width: `${Math.min(100, share(part ?? 0, whole) * 100)}%`, background: `var(--${tint})` } })),
    h("span", { class: "right" }, part === null ? "no report" : `${show(part)} of ${show(whole)} (${percent(share(part, whole))})`),
  ];
  return [
    row("CPU asked", node.cpu_requested, node.cpu_milli, cores, "c1"), row("CPU used", node.cpu_used, node.cpu_milli, cores, "c2"),
    row("reclaimed", node.batch_cpu, node.cpu_milli, cores, "c3"), row("… taken", node.batch_cpu_requested, node.batch_cpu, cores, "c3"),
    row("memory", node.memory_requested, node.memory_bytes, bytes, "c1"), row("mem. used", node.memory_used, node.memory_bytes, bytes, "c2"),
    row("reclaimed", node.batch_memory, node.memory_bytes, bytes, "c3"), row("GPUs", node.gpus_requested, node.gpus, grouped, "c4"),
  ];
}

// batch = capacity - margin - max(system, reserved) - used by high priority, drawn as what each term leaves.
function overcommit(events) {
  const last = events.find((event) => Object.keys(event.body.terms ?? {}).length > 0);
  if (!last) return h("p", { class: "empty" }, "Nothing is reclaimed on this node.");
  return [
    h("p", { class: "note", css: { margin: "0 0 10px" } }, `${last.body.reason}, computed ${moment(last.occurred_at)} at position ${grouped(last.seq)}`),
    Object.entries(last.body.terms).map(([resource, terms]) => waterfall(resource, terms)),
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
  if (events.length === 0) return h("p", { class: "empty" }, "Best effort was never held back here.");
  const quota = (value) => (value === undefined || value < 0 ? "unlimited" : `${cores(value / 100)} cores`);
  return h("div", { class: "table" }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, h("th", {}, "When"), h("th", { class: "number" }, "Quota"), h("th", {}, "Why"))),
    h("tbody", {}, events.slice(0, 12).map((event) => h("tr", {}, h("td", { class: "nowrap" }, moment(event.occurred_at)),
      h("td", { class: "number" }, `${quota(event.body.old_quota_us)} → ${quota(event.body.new_quota_us)}`), h("td", {}, event.body.reason))))));
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
