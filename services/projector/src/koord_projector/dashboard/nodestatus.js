// The state of a node in words: what keeps pods away from it, and whether its agent reports.
import { h } from "./dom.js";
import { age } from "./format.js";

const CORDON = "node.kubernetes.io/unschedulable:NoSchedule";
const DRAIN = "drain.descheduler.koordinator.sh/drain-node=";

/** Whether an agent has started on a node, or reports from it: the one of Koordinator only reports. */
export const hasAgent = (node) => Boolean(node.host) || node.reported_at !== null;

/** [[text, kind]], the gravest one first; kind: "bad", "warn" or "good". */
export function statusOf(node) {
  const found = node.conditions.split(" ").filter(Boolean).map((name) => [name, "bad"]);
  if (node.silent_seconds !== null) found.push([`no report for ${age(node.silent_seconds)}`, "bad"]);
  if (!hasAgent(node)) found.push(["no agent", "warn"]);
  if (taintsOf(node).some((taint) => taint.startsWith(DRAIN))) found.push(["closed by a drain", "warn"]);
  else if (node.unschedulable) found.push(["unschedulable", "warn"]);
  if (node.be_held_back) found.push(["best effort held back", "warn"]);
  return found.length > 0 ? found : [["ready", "good"]];
}

/** The taints of a node that say more than that it is unschedulable. */
export const taintsOf = (node) => node.taints.split(" ").filter((taint) => taint && taint !== CORDON);

export const statusChips = (node) => statusOf(node).map(([text, kind]) => h("span", { class: `state ${kind}` }, text));

/** The gravest state of a node on one line, with the number of further ones; the title has them all. */
export function statusLine(node) {
  const found = statusOf(node);
  return h("span", { title: found.length > 1 ? found.map(([text]) => text).join(", ") : null },
    h("span", { class: `state ${found[0][1]}` }, found[0][0]), found.length > 1 && h("span", { class: "note" }, ` +${found.length - 1}`));
}
