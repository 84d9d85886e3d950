// The cluster: totals, every node as a cell, totals over time.
import { get } from "../api.js";
import { Chart, Totals } from "../chart.js";
import { fill, h, linkTo, tile, withCores } from "../dom.js";
import { bytes, cores, counted, grouped, percent, share } from "../format.js";
import { NodeMap } from "../nodemap.js";

const SERIES_MILLIS = 6000;

export async function clusterView(root, { at, signal, go }) {
  root.kept ??= build(root, go);
  const page = root.kept;
  page.at = at;
  const [cluster, nodes] = await Promise.all([get("/api/cluster", { at }, signal), get("/api/nodes", { at }, signal)]);
  fill(page.tiles, tiles(cluster, at));
  page.map.show(nodes.nodes);
  if (Date.now() - page.seriesAt > SERIES_MILLIS) {
    page.seriesAt = Date.now();
    page.series = await get("/api/series", { points: 300 }, signal);
  }
  plot(page, cluster);
  return cluster.moment;
}

function build(root, go) {
  const page = { seriesAt: 0, series: null, at: "" };
  page.tiles = h("div", { class: "tiles" });
  page.map = new NodeMap((name) => go(`/nodes/${encodeURIComponent(name)}`, page.at));
  page.cpu = new Chart({ format: (value) => cores(value) });
  page.pods = new Chart({ steps: "counts", format: grouped });
  page.repaint = () => { page.map.repaint(); page.cpu.repaint(); page.pods.repaint(); };
  page.close = () => { page.map.close(); page.cpu.close(); page.pods.close(); };
  fill(root, h("div", { class: "stack" }, page.tiles,
    h("section", { class: "panel", "aria-label": "Nodes" }, page.map.element),
    h("div", { class: "columns" },
      h("section", { class: "panel" }, h("h2", {}, "CPU over time ", h("span", { class: "note" }, "cores")), page.cpu.element),
      h("section", { class: "panel" }, h("h2", {}, "Pods over time"), page.pods.element))));
  return page;
}

function tiles(cluster, at) {
  const requested = share(cluster.cpu_requested, cluster.cpu_milli);
  const used = share(cluster.cpu_used, cluster.cpu_milli);
  const memory = share(cluster.memory_requested, cluster.memory_bytes);
  const batch = share(cluster.batch_cpu_requested, cluster.batch_cpu);
  const { pods } = cluster;
  return [
    tile("Nodes", grouped(cluster.nodes), cluster.nodes_silent > 0 ? linkTo("/nodes?state=silent", at, h("span", { class: "bad" }, `${grouped(cluster.nodes_silent)} without a fresh report`)) : `${grouped(cluster.nodes_reporting)} report usage`),
    tile("Pods running", grouped(pods.running), `${grouped(pods.pending)} pending · ${grouped(pods.placed)} starting`),
    tile("CPU requested", percent(requested), `${cores(cluster.cpu_requested)} of ${cores(cluster.cpu_milli)} cores`, requested, "c1"),
    cluster.nodes_reporting === 0 ? tile("CPU used", "–", "no node reports")
      : tile("CPU used", percent(used), `${cores(cluster.cpu_used)} cores · ${cores(cluster.be_cpu_used)} by BE`, used, "c2"),
    tile("Memory requested", percent(memory), `${bytes(cluster.memory_requested)} of ${bytes(cluster.memory_bytes)}`, memory, "c4"),
    tile("CPU reclaimed", withCores(cluster.batch_cpu), `${cores(cluster.batch_cpu_requested)} cores taken (${percent(batch)})`, batch, "c3"),
    cluster.reservations > 0 && tile("Reserved, unused", withCores(cluster.cpu_unused_reserved), `${bytes(cluster.memory_unused_reserved)} · ${counted(cluster.reservations, "reservation")}`, share(cluster.cpu_unused_reserved, cluster.cpu_milli), "c5"),
  ];
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
