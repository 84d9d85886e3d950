// Pods that wait, and what they wait for: the reasons of their last explanations, counted.
import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { counted, grouped, moment } from "../format.js";

export async function pendingView(root, { at, signal, go }) {
  const answer = await get("/api/pending", { at }, signal);
  const most = Math.max(1, ...answer.reasons.map((reason) => reason.pods));
  const suffix = at ? `?at=${encodeURIComponent(at)}` : "";
  fill(root, h("div", { class: "stack" },
    h("section", { class: "panel" },
      h("div", { class: "bar" }, h("h2", {}, answer.pending === 1 ? "1 pod is pending" : `${grouped(answer.pending)} pods are pending`),
        h("span", { class: "note" }, attempted(answer))),
      answer.reasons.length === 0 ? h("p", { class: "empty" }, "Nothing keeps a pod waiting.")
        : h("div", { class: "gauge reasons" }, answer.reasons.map((reason) => [
          h("span", {}, reason.reason, h("span", { class: "note" }, ` ${reason.plugin}`)),
          h("span", { class: "lane" }, h("i", { css: { width: `${(reason.pods / most) * 100}%`, background: "var(--c2)" } })),
          h("span", { class: "right" }, `${counted(reason.pods, "pod")}, up to ${counted(reason.nodes_max, "node")}`),
        ]))),
    answer.pods.length > 0 && h("section", { class: "panel" },
      h("h2", {}, "Waiting longest"),
      h("div", { class: "table" }, h("table", { class: "list waiting" },
        h("thead", {}, h("tr", {}, ["Pod", "QoS", "Submitted"].map((name) => h("th", {}, name)), h("th", { class: "number" }, "Attempts"), h("th", {}, "Why"))),
        h("tbody", {}, answer.pods.map((pod) => h("tr", { class: "link", onclick: (event) => { if (!event.target.closest("a")) go(`/pods/${encodeURIComponent(pod.uid)}`, at); } },
          h("td", { class: "nowrap" }, h("a", { href: `#/pods/${encodeURIComponent(pod.uid)}${suffix}` }, h("span", { class: "note" }, `${pod.namespace}/`), pod.name)),
          h("td", {}, h("span", { class: `qos ${pod.qos}` }, pod.qos)), h("td", { class: "nowrap" }, moment(pod.submitted_at)),
          h("td", { class: "number" }, grouped(pod.attempts)), h("td", { class: "reason" }, pod.why || pod.message || "not attempted yet")))))))));
  return answer.moment;
}

function attempted(answer) {
  const looked = answer.examined < answer.pending ? `of the oldest ${grouped(answer.examined)}, ` : "";
  const waiting = answer.examined - answer.attempted;
  if (answer.pending === 0) return "";
  if (answer.attempted === 0) return `${looked}${answer.pending === 1 ? "the scheduler has not looked at it yet" : "the scheduler has looked at none yet"}`;
  if (waiting === 0) return `${looked}${answer.pending === 1 ? "the scheduler found no node for it" : "the scheduler found no node for any of them"}`;
  return `${looked}the scheduler found no node for ${grouped(answer.attempted)}, ${grouped(waiting)} wait for their turn`;
}
