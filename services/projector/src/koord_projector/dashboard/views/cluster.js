// The cluster: totals, every node as a cell, totals over time.
import { get } from "../api.js";
import { Chart, Totals } from "../chart.js";
import { fill, h, segments, tile, withCores } from "../dom.js";
import { age, bytes, cores, counted, grouped, moment, percent, share } from "../format.js";
import { HeatMap, rampLegend } from "../heatmap.js";

const SERIES_MILLIS = 6000;
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

export async function clusterView(root, { at, signal, go }) {
  root.kept ??= build(root, go);
  const page = root.kept;
  page.at = at;
  const [cluster, nodes] = await Promise.all([get("/api/cluster", { at }, signal), get("/api/nodes", { at }, signal)]);
  page.nodes = nodes.nodes;
  fill(page.tiles, tiles(cluster));
  page.paint();
  if (Date.now() - page.seriesAt > SERIES_MILLIS) {
    page.seriesAt = Date.now();
    page.series = await get("/api/series", { points: 300 }, signal);
  }
  plot(page, cluster);
  return cluster.moment;
}

function build(root, go) {
  const page = { nodes: [], metric: "requested", resource: "cpu", seriesAt: 0, series: null, at: "" };
  page.tiles = h("div", { class: "tiles" });
  page.switches = h("div", { class: "bar" });
  page.heat = new HeatMap({
    describe: (name) => describe(page.nodes.find((node) => node.name === name)),
    open: (name) => go(`/nodes/${encodeURIComponent(name)}`, page.at),
  });
  page.legend = h("div", { class: "legend" });
  page.cpu = new Chart({ format: (value) => cores(value) });
  page.pods = new Chart({ steps: "counts", format: grouped });
  page.choose = (name, value, resource = page.resource) => {
    page.resource = resource;
    page[name] = value;
    if (!has(page.metric, page.resource)) page.metric = "requested";
    page.paint();
  };
  page.paint = () => paint(page);
  page.repaint = () => { page.heat.paint(); page.cpu.repaint(); page.pods.repaint(); };
  page.close = () => { page.heat.close(); page.cpu.close(); page.pods.close(); };
  fill(root, h("div", { class: "stack" }, page.tiles,
    h("section", { class: "panel", "aria-label": "Nodes" }, page.switches, page.heat.element, h("div", { css: { height: "10px" } }), page.legend),
    h("div", { class: "columns" },
      h("section", { class: "panel" }, h("h2", {}, "CPU over time ", h("span", { class: "note" }, "cores")), page.cpu.element),
      h("section", { class: "panel" }, h("h2", {}, "Pods over time"), page.pods.element))));
  return page;
}

function tiles(cluster) {
  const requested = share(cluster.cpu_requested, cluster.cpu_milli);
  const used = share(cluster.cpu_used, cluster.cpu_milli);
  const memory = share(cluster.memory_requested, cluster.memory_bytes);
  const batch = share(cluster.batch_cpu_requested, cluster.batch_cpu);
  const { pods } = cluster;
  return [
    tile("Nodes", grouped(cluster.nodes), cluster.nodes_silent > 0 ? h("span", { class: "bad" }, `${grouped(cluster.nodes_silent)} without a fresh report`) : `${grouped(cluster.nodes_reporting)} report usage`),
    tile("Pods running", grouped(pods.running), `${grouped(pods.pending)} pending · ${grouped(pods.placed)} starting`),
    tile("CPU requested", percent(requested), `${cores(cluster.cpu_requested)} of ${cores(cluster.cpu_milli)} cores`, requested, "c1"),
    cluster.nodes_reporting === 0 ? tile("CPU used", "–", "no node reports")
      : tile("CPU used", percent(used), `${cores(cluster.cpu_used)} cores · ${cores(cluster.be_cpu_used)} by BE`, used, "c2"),
    tile("Memory requested", percent(memory), `${bytes(cluster.memory_requested)} of ${bytes(cluster.memory_bytes)}`, memory, "c4"),
    tile("CPU reclaimed", withCores(cluster.batch_cpu), `${cores(cluster.batch_cpu_requested)} cores taken (${percent(batch)})`, batch, "c3"),
    cluster.reservations > 0 && tile("Reserved, unused", withCores(cluster.cpu_unused_reserved), `${bytes(cluster.memory_unused_reserved)} · ${counted(cluster.reservations, "reservation")}`, share(cluster.cpu_unused_reserved, cluster.cpu_milli), "c5"),
  ];
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
      node.gpu_cards > 0 && row("… free on partly given cards", node.gpu_share_stranded / 100, node.gpu_cards, String),
      h("tr", {}, h("td", {}, "pods"), h("td", {}, `${grouped(node.pods)} (${grouped(node.be_pods)} best effort)`)),
      h("tr", {}, h("td", {}, "best-effort quota"), h("td", {}, node.be_quota_us < 0 ? "unlimited" : `${cores(node.be_quota_us / 100)} cores`)))),
    node.silent_seconds !== null && h("div", { class: "bad" }, `no report for ${age(node.silent_seconds)}`),
    node.reported_at && h("div", { class: "note" }, `reported ${moment(node.reported_at)}`)];
}

function plot(page, cluster) {
  if (!page.series) return;
  const totals = new Totals(page.series, cluster);
  page.cpu.show(totals.times, [
    { label: "allocatable", color: "c6", values: totals.held("cpu_milli", cluster.cpu_milli), width: 1.5, dash: [5, 4], stepped: true },
    { label: "requested", color: "c1", values: totals.held("cpu_requested", cluster.cpu_requested), stepped: true },
    { label: "best effort on reclaimed", color: "c3", values: totals.held("batch_cpu_requested", cluster.batch_cpu_requested), stepped: true },
    { label: "used", color: "c2", values: totals.used("cpu", cluster.cpu_used), fill: true },
  ], [], true);
  page.pods.show(totals.times, [
    { label: "running", color: "c3", values: totals.held("pods_running", cluster.pods.running), fill: true, stepped: true },
    { label: "starting", color: "c1", values: totals.held("pods_placed", cluster.pods.placed), stepped: true },
    { label: "pending", color: "c2", values: totals.held("pods_pending", cluster.pods.pending), stepped: true },
  ], [], true);
}
