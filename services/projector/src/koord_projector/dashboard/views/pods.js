// Pods with filters, newest submission first.
import { get } from "../api.js";
import { cut, fill, h, nodeLink, podLink } from "../dom.js";
import { between, bytes, cores, counted, grouped, moment } from "../format.js";
import { Grid } from "../grid.js";

const PAGE = 100;
const MOST = 10; // pages in one answer

export async function podsView(root, { at, query, signal, go }) {
  root.kept ??= build(root, query, go);
  const page = root.kept;
  page.at = at;
  page.signal = signal;
  const answer = await get("/api/pods", { ...page.filter(), at, limit: page.pages * PAGE }, signal);
  page.show(answer);
  return answer.moment;
}

function build(root, query, go) {
  const page = { pages: 1, at: "", go };
  const again = () => { page.pages = 1; page.grid.shown = PAGE; go("/pods", page.at); };
  const choice = (label, values) => h("select", { "aria-label": label, onchange: again },
    h("option", { value: "" }, label), values.map((value) => h("option", { value }, value)));
  let timer = 0;
  page.text = h("input", {
    type: "search", placeholder: "namespace/name or uid", "aria-label": "Name",
    oninput: () => { clearTimeout(timer); timer = setTimeout(again, 200); },
  });
  page.close = () => clearTimeout(timer);
  page.namespace = h("input", { type: "text", placeholder: "namespace", "aria-label": "Namespace", size: "14", onchange: again });
  page.node = h("input", { type: "text", placeholder: "node", "aria-label": "Node", size: "14", onchange: again });
  page.phase = choice("any phase", ["pending", "placed", "running", "terminating"]);
  page.qos = choice("any QoS", ["LSE", "LSR", "LS", "BE", "SYSTEM"]);
  page.node.value = query.get("node") ?? "";
  page.namespace.value = query.get("namespace") ?? "";
  page.gang = query.get("gang") ?? "";
  page.filter = () => ({
    gang: page.gang, text: page.text.value.trim(), namespace: page.namespace.value.trim(), node: page.node.value.trim(),
    phase: page.phase.value, qos: page.qos.value,
  });
  page.count = h("span", { class: "note" });
  page.more = h("button", { type: "button", class: "quiet more", onclick: () => { page.pages = Math.min(MOST, page.pages + 1); page.grid.shown += PAGE; go("/pods", page.at); } }, "Show more");
  page.grid = new Grid({
    caption: "Pods", columns: columnsOf(page), empty: "No pod matches.", kind: "pods", open: (pod) => go(`/pods/${encodeURIComponent(pod.uid)}`, page.at),
    onSort: () => { if (page.hasMore) { page.pages = MOST; go("/pods", page.at); } }, // sorts as many as one answer may have
  });
  page.show = (answer) => {
    const { counts } = answer;
    const said = ["running", "placed", "pending", "terminating"].filter((name) => counts[name]).map((name) => `${grouped(counts[name])} ${name}`);
    page.hasMore = Boolean(answer.cursor) && answer.pods.length < answer.total && page.pages < MOST;
    page.count.textContent = `${counted(answer.total, "pod")}${said.length ? `: ${said.join(", ")}` : ""}`
      + (answer.pods.length < answer.total ? `; ${page.grid.sorted ? "sorted are" : "shown are"} the newest ${grouped(answer.pods.length)}` : "");
    page.grid.show(answer.pods);
    page.more.hidden = !page.hasMore || !page.grid.more.hidden;
  };
  fill(root, h("section", { class: "panel" },
    h("div", { class: "bar" }, h("h2", {}, page.gang ? `Pods of the gang ${page.gang}` : "Pods"), page.count),
    h("div", { class: "filters" }, page.text, page.namespace, page.phase, page.qos, page.node),
    page.grid.element, page.more));
  return page;
}

const requested = (pod, name) => pod.requests[name] ?? pod.requests[`kubernetes.io/batch-${name}`] ?? 0;

const columnsOf = (page) => [
  { name: "Pod", value: (pod) => `${pod.namespace}/${pod.name}`, cell: (pod) => podLink(pod, page.at) },
  { name: "Phase", value: (pod) => pod.phase, cell: (pod) => h("span", { class: `phase ${pod.phase}` }, pod.phase) },
  { name: "QoS", value: (pod) => pod.qos, cell: (pod) => h("span", { class: `qos ${pod.qos}` }, pod.qos) },
  { name: "Node", value: (pod) => pod.node || null, cell: (pod) => (pod.node ? nodeLink(pod.node, page.at) : "") },
  { name: "CPU", number: true, value: (pod) => requested(pod, "cpu"), cell: (pod) => cores(requested(pod, "cpu")) },
  { name: "Memory", number: true, value: (pod) => requested(pod, "memory"), cell: (pod) => bytes(requested(pod, "memory")) },
  { name: "Submitted", value: (pod) => pod.submitted_at, cell: (pod) => moment(pod.submitted_at) },
  { name: "Waited", number: true, value: (pod) => (pod.placed_at ? new Date(pod.placed_at) - new Date(pod.submitted_at) : null), cell: (pod) => (pod.placed_at ? between(pod.submitted_at, pod.placed_at) : "") },
  { name: "Newest reason", class: "note whole", cell: (pod) => pod.message && cut(pod.message) },
];
