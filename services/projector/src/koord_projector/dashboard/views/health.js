// What is wrong, as far as the read API knows: the projector, nodes, configuration, pods. Each finding leads to its page.
import { get, objects } from "../api.js";
import { fill, h, linkTo } from "../dom.js";
import { age, counted, grouped, moment } from "../format.js";
import { hasAgent } from "../nodestatus.js";
import { configName } from "./configuration.js";

const LATE_SECONDS = 10;

export async function healthView(root, { at, signal }) {
  const [status, cluster, nodes, pending, colocation, configs] = await Promise.all([
    get("/api/status", {}, signal), get("/api/cluster", { at }, signal), get("/api/nodes", { at }, signal), get("/api/pending", { at }, signal),
    get("/api/colocation", { at, limit: 100 }, signal), objects("config", at, signal)]);
  root.kept ??= { hash: h("span", { class: "note" }), close: () => {} };
  const checks = [...(at ? [] : projector(status)), ...ofNodes(nodes.nodes, at), ...ofPods(cluster, pending, at), ...ofColocation(colocation, at), ...ofConfiguration(configs.found, at)];
  const wrong = ["bad", "warn"].flatMap((grave) => checks.filter(([state]) => state === grave));
  fill(root, h("div", { class: "stack" },
    h("div", { class: "title" }, h("h1", {}, "Health"), h("span", { role: "status" }, wrong.length === 0 ? "nothing is wrong" : `${counted(wrong.length, "finding")} of ${grouped(checks.length)} checks`)),
    h("section", { class: "panel" }, h("ul", { class: "checks" }, [...wrong, ...checks.filter(([state]) => state === "good")].map(([state, what, detail]) =>
      h("li", {}, h("span", { class: `state ${state}` }, what), h("span", { class: "note" }, detail))))),
    h("section", { class: "panel" }, h("h2", {}, "State of the projector"),
      h("p", { class: "note" }, "The hash of its tables must be the one of the log at the same position; ", h("code", {}, "koord verify"), " compares them. ", h("code", {}, "koord doctor"), " checks the services and the servers, too."),
      h("div", { class: "bar" }, h("button", { type: "button", class: "quiet", onclick: () => showHash(root.kept.hash) }, "Compute the hash"), root.kept.hash))));
  return cluster.moment;
}

async function showHash(target) {
  target.textContent = "computing …";
  try {
    const { hash, position, trouble } = await get("/api/hash");
    fill(target, trouble || [h("code", {}, hash), ` at position ${grouped(position)}`]);
  } catch (error) { target.textContent = error.message; }
}

function projector(status) {
  const isLate = status.lag_seconds > LATE_SECONDS;
  return [[status.trouble ? "bad" : "good", status.trouble ? "The projector has stopped" : "The projector folds the log", status.trouble || `position ${grouped(status.position)}`],
    [isLate ? "warn" : "good", isLate ? "The projector is behind" : "The projector has caught up", isLate ? `${grouped(status.lag_events)} events, ${age(status.lag_seconds)}` : `newest event ${moment(status.last_at)}`]];
}

function ofNodes(nodes, at) {
  const check = (name, state, bad, good, isBad) => {
    const found = nodes.filter(isBad);
    return found.length === 0 ? ["good", good, counted(nodes.length, "node")] : [state, `${found.length === 1 ? "1 node is" : `${grouped(found.length)} nodes are`} ${bad}`, linkTo(`/nodes?state=${name}`, at, firstOf(found.map((node) => node.name)))];
  };
  return [
    check("notready", "bad", "not ready or under pressure", "No node has a bad condition", (node) => node.conditions !== ""),
    check("silent", "bad", "without a fresh usage report", "No report of an agent has expired", (node) => node.silent_seconds !== null),
    check("agentless", "warn", "without an agent", "All nodes have agents", (node) => !hasAgent(node)),
    check("unschedulable", "warn", "unschedulable", "All nodes take new pods", (node) => node.unschedulable),
  ];
}

const firstOf = (names) => names.slice(0, 3).join(", ") + (names.length > 3 ? ` and ${grouped(names.length - 3)} more` : "");

function ofPods(cluster, pending, at) {
  const waiting = pending.examined - pending.attempted;
  return [cluster.pods.pending === 0 ? ["good", "No pod is pending", `${grouped(cluster.pods.running)} run`]
    : ["warn", `${cluster.pods.pending === 1 ? "1 pod is" : `${grouped(cluster.pods.pending)} pods are`} pending`, linkTo("/pending", at, waiting > 0 ? `${grouped(waiting)} of the oldest ${grouped(pending.examined)} were not attempted yet` : `${counted(pending.reasons.length, "reason")}`)]];
}

function ofColocation(answer, at) {
  const lasting = answer.contentions.filter((each) => each.lasted_seconds === null).length;
  return [
    answer.suppressed_nodes === 0 ? ["good", "No node holds best effort back", `${grouped(answer.limited_nodes)} have a quota`]
      : ["warn", `${answer.suppressed_nodes === 1 ? "1 node holds" : `${grouped(answer.suppressed_nodes)} nodes hold`} best effort back`, linkTo("/nodes?state=held", at, firstOf(answer.suppressed.map((each) => each.node)))],
    lasting === 0 ? ["good", "No contention lasts", ""] : ["warn", `${lasting === 1 ? "1 contention lasts" : `${grouped(lasting)} contentions last`}`, linkTo("/colocation", at, "who disturbs whom")],
  ];
}

function ofConfiguration(configs, at) {
  const refused = configs.filter(({ state }) => Object.keys(state.rejected ?? {}).length > 0);
  return [refused.length === 0 ? ["good", "All configurations are in force", counted(configs.length, "ConfigMap")]
    : ["bad", `The newest version of ${counted(refused.length, "ConfigMap")} was refused`, linkTo("/configuration", at, firstOf(refused.map(({ id }) => configName(id))))]];
}
