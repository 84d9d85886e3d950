// The map of the nodes: each one a cell, coloured by the share of an amount. The switches choose the amount and the resource.
import { fill, h, segments } from "./dom.js";
import { age, bytes, cores, counted, grouped, moment, percent, share } from "./format.js";
import { HeatMap, rampLegend } from "./heatmap.js";

const METRICS = { requested: "Requested", used: "Used", reclaimed: "Reclaimed", stranded: "Fragmented" };
const RESOURCES = { cpu: "CPU", memory: "Memory", gpu: "GPU", share: "GPU share" };
const SAYS = {
  requested: "share of the allocatable amount that pods hold, best-effort pods excluded",
  used: "share of the allocatable amount that is really used, as the agents report",
  reclaimed: "share of the allocatable amount that is offered to best-effort pods because others do not use it",
  stranded: "share of the GPUs that is free on partly given cards, where no whole card fits",
};
const GPU_METRICS = { gpu: ["requested"], share: ["requested", "stranded"] };

// Which amounts a resource has.
const has = (metric, resource) => (GPU_METRICS[resource] ?? ["requested", "used", "reclaimed"]).includes(metric);

/** open(name) on click or Enter. */
export class NodeMap {
  constructor(open) {
    this.nodes = [];
    this.metric = "requested";
    this.resource = "cpu";
    this.switches = h("div", { class: "bar" });
    this.heat = new HeatMap({ describe: (name) => describe(this.nodes.find((node) => node.name === name)), open });
    this.legend = h("div", { class: "legend" });
    this.element = h("div", { class: "stack tight" }, this.switches, this.heat.element, this.legend);
  }

  show(nodes) {
    this.nodes = nodes;
    paint(this);
  }

  choose(name, value, resource = this.resource) {
    this.resource = resource;
    this[name] = value;
    if (!has(this.metric, this.resource)) this.metric = "requested";
    paint(this);
  }

  repaint() { this.heat.paint(); }

  close() { this.heat.close(); }
}

function ratioOf(node, metric, resource) {
  const [whole, requested, used, offered, stranded] = {
    cpu: [node.cpu_milli, node.cpu_requested, node.cpu_used, node.batch_cpu],
    memory: [node.memory_bytes, node.memory_requested, node.memory_used, node.batch_memory],
    gpu: [node.gpus, node.gpus_requested, null, null],
    share: [node.gpu_cards * 100, node.gpu_share_used, null, null, node.gpu_share_stranded],
  }[resource];
  if (!whole) return null;
  const part = { requested, used, reclaimed: offered, stranded }[metric];
  return part === null ? null : part / whole;
}

function paint(page) {
  const { metric, resource, nodes } = page;
  const isKnown = { cpu: true, memory: true, gpu: nodes.some((node) => node.gpus > 0), share: nodes.some((node) => node.gpu_cards > 0) };
  const ramp = metric === "reclaimed" ? "green" : "heat";
  fill(page.switches, h("h2", {}, "Nodes "), h("span", { class: "note" }, SAYS[metric]), h("span", { class: "push" }),
    segments("Amount", Object.entries(METRICS).filter(([value]) => value !== "stranded" || isKnown.share)
      .map(([value, label]) => [value, label, value !== "stranded" && !has(value, resource)]),
      metric, (value) => page.choose("metric", value, value === "stranded" ? "share" : resource)),
    segments("Resource", Object.entries(RESOURCES).filter(([value]) => isKnown[value])
      .map(([value, label]) => [value, label, metric !== "stranded" && !has(metric, value)]),
      resource, (value) => page.choose("resource", value)));
  const cells = nodes.map((node) => ({ key: node.name, ratio: ratioOf(node, metric, resource), marked: node.unschedulable, alarming: node.silent_seconds !== null }));
  page.heat.show(cells, ramp, `${counted(nodes.length, "node")} by ${METRICS[metric]} ${RESOURCES[resource]}; arrow keys choose, Enter opens`);
  const silent = nodes.filter((node) => node.silent_seconds !== null).length;
  const cordoned = nodes.filter((node) => node.unschedulable).length;
  const suppressed = nodes.filter((node) => node.be_held_back).length;
  fill(page.legend, rampLegend(ramp), h("span", {}, h("span", { class: "swatch", css: { background: "var(--over)" } }), "over 100 %"),
    h("span", {}, h("span", { class: "swatch", css: { border: "1px solid var(--nodata)" } }), "no figure"),
    h("span", {}, `◢ ${grouped(cordoned)} unschedulable`), silent > 0 && h("span", {}, h("span", { class: "swatch", css: { border: "2px solid var(--bad)" } }), `${grouped(silent)} without a fresh report`), h("span", { class: "push" }, `best effort held back on ${counted(suppressed, "node")}`));
}

function describe(node) {
  if (!node) return [];
  const row = (label, part, whole, show) => h("tr", {}, h("td", {}, label),
    h("td", {}, part === null ? "–" : `${show(part)} of ${show(whole)} (${percent(share(part, whole))})`));
  return [h("b", {}, node.name), node.unschedulable && h("span", { class: "note" }, " unschedulable"),
    h("table", {}, h("tbody", {},
      row("CPU requested", node.cpu_requested, node.cpu_milli, cores),
      row("CPU used", node.cpu_used, node.cpu_milli, cores),
      row("CPU reclaimed", node.batch_cpu, node.cpu_milli, cores),
      row("best effort holds", node.batch_cpu_requested, node.batch_cpu, cores),
      row("memory requested", node.memory_requested, node.memory_bytes, bytes),
      row("memory used", node.memory_used, node.memory_bytes, bytes),
      node.reservations > 0 && row("CPU reserved, unused", node.cpu_unused_reserved, node.cpu_milli, cores),
      node.reservations > 0 && row("memory reserved, unused", node.memory_unused_reserved, node.memory_bytes, bytes),
      node.gpus > 0 && row("GPUs", node.gpus_requested, node.gpus, grouped),
      node.gpu_cards > 0 && row("GPU shares given", node.gpu_share_used / 100, node.gpu_cards, String),
      node.gpu_cards > 0 && row("free on partly given cards", node.gpu_share_stranded / 100, node.gpu_cards, String),
      h("tr", {}, h("td", {}, "pods"), h("td", {}, `${grouped(node.pods)} (${grouped(node.be_pods)} best effort)`)),
      h("tr", {}, h("td", {}, "best-effort quota"), h("td", {}, node.be_quota_us < 0 ? "unlimited" : `${cores(node.be_quota_us / 100)} cores`)))),
    node.silent_seconds !== null && h("div", { class: "bad" }, `no report for ${age(node.silent_seconds)}`),
    node.reported_at && h("div", { class: "note" }, `reported ${moment(node.reported_at)}`)];
}
