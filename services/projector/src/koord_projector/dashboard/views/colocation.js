// Colocation: what is reclaimed, who uses it, where best effort is held back, and who disturbed whom.
import { get } from "../api.js";
import { Chart, Totals } from "../chart.js";
import { fill, h, nodeLink, podLink, shareLane, table, tile, withCores } from "../dom.js";
import { bytes, cores, counted, duration, grouped, moment, percent, share } from "../format.js";

const SERIES_MILLIS = 6000;

export async function colocationView(root, { at, signal }) {
  root.kept ??= build(root);
  const page = root.kept;
  const answer = await get("/api/colocation", { at }, signal);
  const cluster = await get("/api/cluster", { at: at && answer.moment.position }, signal);
  if (Date.now() - page.seriesAt > SERIES_MILLIS) {
    page.seriesAt = Date.now();
    page.series = await get("/api/series", { points: 300 }, signal);
  }
  fill(page.tiles, tiles(cluster, answer));
  fill(page.suppressed, suppressed(answer, at));
  fill(page.pairs, pairs(answer, at));
  fill(page.contentions, contentions(answer, at));
  fill(page.evictions, evictions(answer, at));
  plot(page, cluster);
  return answer.moment;
}

function build(root) {
  const page = { series: null, seriesAt: 0 };
  for (const name of ["tiles", "suppressed", "pairs", "contentions", "evictions"]) page[name] = h("div", { class: name === "tiles" ? "tiles" : "late" });
  page.chart = new Chart({ height: 230, format: (value) => cores(value) });
  page.repaint = () => page.chart.repaint();
  page.close = () => page.chart.close();
  const panel = (title, note, ...children) => h("section", { class: "panel" }, h("h2", {}, `${title} `, h("span", { class: "note" }, note)), children);
  fill(root, h("div", { class: "stack" }, h("h1", { class: "visually-hidden" }, "Colocation"), page.tiles,
    panel("Reclaimed CPU over time", "cores", page.chart.element),
    panel("Nodes that hold best effort back", "their quota is below what best-effort pods request; those that grant least come first", page.suppressed),
    panel("Who disturbed whom", "main suspects of contentions, and the pods that they disturbed", page.pairs),
    panel("Contentions", "newest first", page.contentions),
    panel("Evictions by agents", "newest first", page.evictions)));
  return page;
}

function tiles(cluster, answer) {
  const taken = share(cluster.batch_cpu_requested, cluster.batch_cpu);
  const taken_memory = share(cluster.batch_memory_requested, cluster.batch_memory);
  const used = share(cluster.be_cpu_used, cluster.batch_cpu_requested);
  const lasting = answer.contentions.filter((each) => each.lasted_seconds === null).length;
  return [
    tile("CPU reclaimed", withCores(cluster.batch_cpu), `of ${cores(cluster.cpu_milli)} cores`, share(cluster.batch_cpu, cluster.cpu_milli), "c3"),
    tile("Reclaimed CPU taken", percent(taken), `${cores(cluster.batch_cpu_requested)} cores by best effort`, taken, "c3"),
    tile("Taken CPU used", cluster.nodes_reporting ? percent(used) : "–", cluster.nodes_reporting ? `${cores(cluster.be_cpu_used)} of the taken cores` : "no node reports", cluster.nodes_reporting ? used : undefined, "c2"),
    tile("Memory reclaimed", bytes(cluster.batch_memory), `${bytes(cluster.batch_memory_requested)} taken (${percent(taken_memory)})`, taken_memory, "c4"),
    tile("Nodes held back", grouped(answer.suppressed_nodes), `of ${counted(answer.limited_nodes, "node")} with a quota`, share(answer.suppressed_nodes, answer.limited_nodes), "c5"),
    tile("Disturbed now", grouped(lasting), answer.contentions.length === 0 ? "no contention was detected" : `of the ${counted(answer.contentions.length, "newest contention")}`),
  ];
}

function suppressed(answer, at) {
  if (answer.suppressed.length === 0) return h("p", { class: "empty" }, answer.limited_nodes === 0 ? "No node has a quota for best-effort pods." : `${answer.limited_nodes === 1 ? "1 node has" : `${grouped(answer.limited_nodes)} nodes have`} a quota for best-effort pods, of at least what they request.`);
  return table("Nodes that hold best effort back", ["Node", "Granted of requested", ["BE pods"], ["Used"], "Since", "Why"], answer.suppressed.map((each) => {
    const quota = each.be_quota_us / 100;
    return h("tr", {}, h("td", { class: "nowrap" }, nodeLink(each.node, at)),
      h("td", {}, shareLane(share(quota, each.batch_cpu_requested), "c3", `${cores(quota)} of ${cores(each.batch_cpu_requested)} cores`)),
      h("td", { class: "number" }, grouped(each.be_pods)),
      h("td", { class: "number" }, each.be_cpu_used === null ? "no report" : `${cores(each.be_cpu_used)} cores`),
      h("td", { class: "nowrap" }, moment(each.changed_at)), h("td", {}, each.reason));
  }));
}

function pairs(answer, at) {
  if (answer.pairs.length === 0) return h("p", { class: "empty" }, "No pod was found to disturb another one.");
  const most = Math.max(...answer.pairs.map((pair) => pair.times));
  return table("Who disturbed whom", ["Suspect", "QoS", "Disturbed pod", "Times", "Together", "By"], answer.pairs.slice(0, 50).map((pair) => h("tr", {},
    h("td", {}, podLink(pair.suspect, at)), h("td", {}, h("span", { class: `qos ${pair.suspect.qos}` }, pair.suspect.qos)),
    h("td", {}, podLink(pair, at)),
    h("td", {}, shareLane(pair.times / most, "c5", grouped(pair.times))),
    h("td", { class: "nowrap" }, `${duration(pair.seconds)}${pair.lasting ? `, ${pair.lasting} last` : ""}`),
    h("td", {}, pair.signals.join(", ")))));
}

function contentions(answer, at) {
  if (answer.contentions.length === 0) return h("p", { class: "empty" }, "No contention was detected.");
  return table("Contentions", ["When", "Disturbed pod", "Node", "Signal", "Suspects", "What the agent did", "Lasted"], answer.contentions.slice(0, 50).map((each) => h("tr", {},
    h("td", { class: "nowrap" }, moment(each.detected_at)),
    h("td", {}, podLink(each, at), each.container && h("div", { class: "note" }, each.container)),
    h("td", { class: "nowrap" }, nodeLink(each.node, at)),
    h("td", { class: "nowrap" }, `${each.signal} ${figure(each.value)} (limit ${figure(each.threshold)})`),
    h("td", {}, each.suspects.slice(0, 3).map((one) => h("div", {}, podLink(one, at), h("span", { class: "note" }, ` ${one.qos} ${percent(one.score)}`)))),
    h("td", {}, each.mitigation.map((line) => h("div", {}, line))),
    h("td", { class: "nowrap", title: each.ended }, each.lasted_seconds === null ? h("span", { class: "phase pending" }, "lasts") : duration(each.lasted_seconds)))));
}

function evictions(answer, at) {
  if (answer.evictions.length === 0) return h("p", { class: "empty" }, "No agent evicted a pod.");
  return table("Evictions by agents", ["When", "Node", "Pods", "Strategy", "Why"], answer.evictions.slice(0, 50).map((each) => h("tr", {},
    h("td", { class: "nowrap" }, moment(each.evicted_at)), h("td", { class: "nowrap" }, nodeLink(each.node, at)),
    h("td", {}, each.pods.map((pod) => h("div", {}, podLink(pod, at)))), h("td", {}, each.feature), h("td", {}, each.reason))));
}

const figure = (value) => String(Number(value.toPrecision(3)));

function plot(page, cluster) {
  if (!page.series) return;
  const totals = new Totals(page.series, cluster);
  page.chart.show(totals.times, [
    { label: "reclaimed", color: "c3", values: totals.held("batch_cpu", cluster.batch_cpu), stepped: true, fill: true },
    { label: "taken by best effort", color: "c1", values: totals.held("batch_cpu_requested", cluster.batch_cpu_requested), stepped: true },
    { label: "used by best effort", color: "c2", values: totals.used("be_cpu", cluster.be_cpu_used) },
  ], [], true);
}
