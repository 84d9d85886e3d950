// Pods with filters, newest submission first.
import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { between, bytes, cores, counted, grouped, moment } from "../format.js";

const PAGE = 100;

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
  const again = () => { page.pages = 1; go("/pods", page.at); };
  const choice = (label, values) => h("select", { "aria-label": label, onchange: again },
    h("option", { value: "" }, label), values.map((value) => h("option", { value }, value)));
  let timer = 0;
  page.text = h("input", {
    type: "search", placeholder: "namespace/name or uid", "aria-label": "Name",
    oninput: () => { clearTimeout(timer); timer = setTimeout(again, 200); },
  });
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
  page.body = h("tbody", {});
  page.more = h("button", { type: "button", class: "quiet more", onclick: () => { page.pages = Math.min(10, page.pages + 1); go("/pods", page.at); } }, "Show more");
  page.show = (answer) => {
    const { counts } = answer;
    const said = ["running", "placed", "pending", "terminating"].filter((name) => counts[name]).map((name) => `${grouped(counts[name])} ${name}`);
    page.count.textContent = `${counted(answer.total, "pod")}${said.length ? `: ${said.join(", ")}` : ""}`;
    fill(page.body, answer.pods.map((pod) => podRow(pod, page)),
      answer.pods.length === 0 && h("tr", {}, h("td", { colspan: "9", class: "empty" }, "No pod matches.")));
    page.more.hidden = !answer.cursor || answer.pods.length >= answer.total || page.pages >= 10;
  };
  fill(root, h("section", { class: "panel" },
    h("div", { class: "bar" }, h("h2", {}, page.gang ? `Pods of the gang ${page.gang}` : "Pods"), page.count),
    h("div", { class: "filters" }, page.text, page.namespace, page.phase, page.qos, page.node),
    h("div", { class: "table" }, h("table", { class: "list pods" },
      h("thead", {}, h("tr", {}, ["Pod", "Phase", "QoS", "Node"].map((name) => h("th", {}, name)),
        ["CPU", "Memory"].map((name) => h("th", { class: "number" }, name)),
        h("th", {}, "Submitted"), h("th", { class: "number" }, "Waited"), h("th", {}, "Newest reason"))), page.body)),
    page.more));
  return page;
}

function podRow(pod, page) {
  const amounts = pod.requests;
  const cpu = amounts.cpu ?? amounts["kubernetes.io/batch-cpu"] ?? 0;
  const memory = amounts.memory ?? amounts["kubernetes.io/batch-memory"] ?? 0;
  const suffix = page.at ? `?at=${encodeURIComponent(page.at)}` : "";
  return h("tr", { class: "link", onclick: (event) => { if (!event.target.closest("a")) page.go(`/pods/${encodeURIComponent(pod.uid)}`, page.at); } },
    h("td", {}, h("a", { href: `#/pods/${encodeURIComponent(pod.uid)}${suffix}` }, h("span", { class: "note" }, `${pod.namespace}/`), pod.name)),
    h("td", {}, h("span", { class: `phase ${pod.phase}` }, pod.phase)),
    h("td", {}, h("span", { class: `qos ${pod.qos}` }, pod.qos)),
    h("td", { class: "nowrap" }, pod.node ? h("a", { href: `#/nodes/${encodeURIComponent(pod.node)}${suffix}` }, pod.node) : ""),
    h("td", { class: "number" }, cores(cpu)), h("td", { class: "number" }, bytes(memory)),
    h("td", { class: "nowrap" }, moment(pod.submitted_at)),
    h("td", { class: "number" }, pod.placed_at ? between(pod.submitted_at, pod.placed_at) : ""),
    h("td", { class: "note wrap reason" }, pod.message));
}
