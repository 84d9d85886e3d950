// All nodes as a list that sorts and filters, or as a map.
import { get } from "../api.js";
import { cut, fill, h, nodeLink, segments } from "../dom.js";
import { bytes, cores, counted, grouped, percent, share } from "../format.js";
import { Grid } from "../grid.js";
import { NodeMap } from "../nodemap.js";
import { hasAgent, statusLine, statusOf, taintsOf } from "../nodestatus.js";

const agentOf = (node) => node.host || (hasAgent(node) ? "only reports" : "");

const STATES = {
  ready: ["ready", (node) => statusOf(node)[0][0] === "ready"],
  notready: ["not ready or under pressure", (node) => node.conditions !== ""],
  silent: ["without a fresh report", (node) => node.silent_seconds !== null],
  agentless: ["without an agent", (node) => !hasAgent(node)],
  unschedulable: ["unschedulable", (node) => node.unschedulable],
  tainted: ["with taints", (node) => taintsOf(node).length > 0],
  held: ["holding best effort back", (node) => node.be_held_back],
};

export async function nodesView(root, { at, query, signal, isFirst, go }) {
  root.kept ??= build(root, query, go);
  const page = root.kept;
  if (!isFirst && query.get("state") !== page.named) page.name(query.get("state") ?? "");
  page.at = at;
  const answer = await get("/api/nodes", { at }, signal);
  page.nodes = answer.nodes;
  page.paint();
  return answer.moment;
}

function build(root, query, go) {
  const page = { nodes: [], at: "", isMap: false };
  page.grid = new Grid({ caption: "Nodes", columns: columnsOf(page), sorted: "Node", empty: "No node matches.", kind: "nodes", open: (node) => go(`/nodes/${encodeURIComponent(node.name)}`, page.at) });
  page.map = new NodeMap((name) => go(`/nodes/${encodeURIComponent(name)}`, page.at));
  page.text = h("input", { type: "search", placeholder: "name or taint contains …", "aria-label": "Name or taint", oninput: () => page.paint() });
  page.state = h("select", { "aria-label": "State", onchange: () => page.paint() },
    h("option", { value: "" }, "any state"), Object.entries(STATES).map(([value, [label]]) => h("option", { value }, label)));
  page.name = (state) => { page.named = state || null; page.state.value = STATES[state] ? state : ""; };
  page.name(query.get("state") ?? "");
  page.count = h("span", { class: "note", role: "status" });
  page.modes = h("span", {});
  page.content = h("div", {}, page.grid.element);
  page.mode = (isMap) => {
    page.isMap = isMap;
    fill(page.content, isMap ? page.map.element : page.grid.element);
    page.paint();
  };
  page.paint = () => {
    const text = page.text.value.trim().toLowerCase();
    const matches = STATES[page.state.value]?.[1] ?? (() => true);
    const found = page.nodes.filter((node) => matches(node) && (!text || node.name.toLowerCase().includes(text) || node.taints.toLowerCase().includes(text)));
    page.count.textContent = found.length < page.nodes.length ? `${grouped(found.length)} of ${counted(page.nodes.length, "node")}` : counted(found.length, "node");
    fill(page.modes, segments("Form", [[false, "List"], [true, "Map"]], page.isMap, page.mode));
    if (page.isMap) page.map.show(found);
    else page.grid.show(found);
  };
  page.repaint = () => page.map.repaint();
  page.close = () => page.map.close();
  fill(root, h("section", { class: "panel" },
    h("div", { class: "bar" }, h("h1", { class: "h2" }, "Nodes"), page.count),
    h("div", { class: "filters" }, page.text, page.state, page.modes), page.content));
  return page;
}

// A share as a small bar with its percentage; what it is made of is told by the title.
function part(value, whole, show, tint) {
  if (value === null) return h("span", { class: "note" }, "–");
  const ratio = share(value, whole);
  return h("span", { class: "mini", title: `${show(value)} of ${show(whole)}`, css: { "--part": Math.min(1, ratio), "--tint": `var(--${ratio > 1.0005 ? "over" : tint})` } }, percent(ratio));
}

function columnsOf(page) {
  const ratio = (name, value, whole, show, tint) => ({
    name, number: true, value: (node) => (node[value] === null ? null : share(node[value], node[whole])), cell: (node) => part(node[value], node[whole], show, tint),
  });
  return [
    { name: "Node", value: (node) => node.name, cell: (node) => nodeLink(node.name, page.at), class: "nowrap" },
    { name: "Status", value: (node) => statusOf(node).map(([text]) => text).join(" "), cell: statusLine },
    { name: "Pods", number: true, value: (node) => node.pods, cell: (node) => grouped(node.pods) },
    ratio("CPU requested", "cpu_requested", "cpu_milli", cores, "c1"),
    ratio("CPU used", "cpu_used", "cpu_milli", cores, "c2"),
    { name: "CPU reclaimed", number: true, value: (node) => node.batch_cpu, cell: (node) => h("span", { title: `${cores(node.batch_cpu_requested)} of ${cores(node.batch_cpu)} reclaimed cores are taken by best effort` }, `${cores(node.batch_cpu)} cores`) },
    ratio("Taken", "batch_cpu_requested", "batch_cpu", cores, "c3"),
    ratio("Memory requested", "memory_requested", "memory_bytes", bytes, "c4"),
    ratio("Memory used", "memory_used", "memory_bytes", bytes, "c2"),
    { ...ratio("GPUs", "gpus_requested", "gpus", grouped, "c4"), isShown: (nodes) => nodes.some((node) => node.gpus > 0), cell: (node) => (node.gpus > 0 ? part(node.gpus_requested, node.gpus, grouped, "c4") : "") },
    { name: "Taints", value: (node) => taintsOf(node).join(" ") || null, class: "whole", cell: (node) => (taintsOf(node).length > 0 ? cut(taintsOf(node).join(", ")) : ""), isShown: (nodes) => nodes.some((node) => taintsOf(node).length > 0) },
    { name: "Agent", value: (node) => agentOf(node) || null, cell: (node) => agentOf(node) || h("span", { class: "note" }, "none") },
  ];
}
