// Two moments side by side: what the totals were, which nodes differ, and what happened in between.
import { get } from "../api.js";
import { fill, h, linkTo, nodeLink, table } from "../dom.js";
import { bytes, cores, counted, duration, grouped, moment } from "../format.js";
import { statusOf } from "../nodestatus.js";

const SHOWN = 50;
const TOTALS = [
  ["Nodes", (each) => each.nodes, grouped], ["Nodes without a fresh report", (each) => each.nodes_silent, grouped],
  ["Pods running", (each) => each.pods.running, grouped], ["Pods starting", (each) => each.pods.placed, grouped], ["Pods pending", (each) => each.pods.pending, grouped],
  ["CPU allocatable", (each) => each.cpu_milli, inCores], ["CPU requested", (each) => each.cpu_requested, inCores], ["CPU used", used("cpu_used"), inCores],
  ["CPU reclaimed", (each) => each.batch_cpu, inCores], ["Reclaimed CPU taken", (each) => each.batch_cpu_requested, inCores], ["CPU used by best effort", used("be_cpu_used"), inCores],
  ["Memory requested", (each) => each.memory_requested, bytes], ["Memory used", used("memory_used"), bytes], ["Memory reclaimed", (each) => each.batch_memory, bytes],
  ["GPUs requested", (each) => each.gpus_requested, grouped], ["Reservations", (each) => each.reservations, grouped],
];

function inCores(value) { return `${cores(value)} cores`; }

// Unknown where no node reports.
function used(name) { return (each) => (each.nodes_reporting > 0 ? each[name] : null); }

export async function compareView(root, { at, query, signal, go }) {
  const from = query.get("from");
  const [after, later] = await Promise.all([get("/api/cluster", { at }, signal), get("/api/nodes", { at }, signal)]);
  if (from === null) {
    fill(root, h("section", { class: "panel" }, h("h1", { class: "h2" }, "Compare two moments"),
      h("p", {}, "Go to the first moment with the slider and press ", h("b", {}, "Compare"), ". Then the slider chooses the second one.")));
    return after.moment;
  }
  const [before, earlier] = await Promise.all([get("/api/cluster", { at: from }, signal), get("/api/nodes", { at: from }, signal)]);
  const [low, high] = [before.moment.position, after.moment.position].sort((one, other) => one - other);
  const between = await get("/api/marks", { after: low, before: high + 1 }, signal);
  const nodes = changedNodes(earlier.nodes, later.nodes);
  const heading = ({ moment: { position, occurred_at } }) => `${moment(occurred_at)} (position ${grouped(position)})`;
  fill(root, h("div", { class: "stack" },
    h("div", { class: "title" }, h("h1", {}, "Compare"), h("span", {}, `${heading(before)} → ${heading(after)}`),
      h("span", { class: "note" }, `${counted(high - low, "fact")} in ${duration(Math.abs(new Date(after.moment.occurred_at) - new Date(before.moment.occurred_at)) / 1000)}`),
      h("button", { type: "button", class: "quiet", onclick: () => go("/compare", from, new URLSearchParams({ from: after.moment.position })) }, "Swap")),
    h("section", { class: "panel" }, h("h2", {}, "Totals"), totals(before, after)),
    h("section", { class: "panel" }, h("h2", {}, "Nodes that differ ", h("span", { class: "note" }, nodes.length > SHOWN ? `the first ${SHOWN} of ${grouped(nodes.length)}` : grouped(nodes.length))), nodeTable(nodes, at)),
    marksBetween(between, low)));
  return after.moment;
}

/** The newest marks of each kind, and whether older ones are left out. */
function marksBetween({ marks, complete_after: complete }, low) {
  const shown = marks.slice(-SHOWN);
  const known = `${counted(marks.length, "mark")}${complete > low ? " and older ones" : ""}`;
  return h("section", { class: "panel" }, h("h2", {}, "In between ", h("span", { class: "note" },
    shown.length < marks.length || complete > low ? `the newest ${grouped(shown.length)} of ${known}` : "changes of configuration, evictions, disturbances")),
  marks.length === 0 ? h("p", { class: "empty" }, "Nothing of this kind happened in between.")
    : table("In between", [["Position"], "When", "What", "Fact"], shown.map((mark) => h("tr", {},
      h("td", { class: "number" }, linkTo("/cluster", String(mark.seq), grouped(mark.seq))), h("td", { class: "nowrap" }, moment(mark.occurred_at)), h("td", {}, mark.kind), h("td", {}, mark.summary)))));
}

function totals(before, after) {
  const rows = TOTALS.map(([name, of, show]) => [name, of(before), of(after), show]).filter(([, one, other]) => one || other);
  const write = (value, show) => (value === null ? "–" : show(value));
  return table("Totals", ["Amount", ["Before"], ["After"], ["Change"]], rows.map(([name, one, other, show]) => h("tr", {},
    h("td", {}, name), h("td", { class: "number" }, write(one, show)), h("td", { class: "number" }, write(other, show)),
    h("td", { class: "number" }, one === null || other === null ? "–" : change(other - one, show)))));
}

const change = (by, show) => (by === 0 ? "=" : `${by > 0 ? "+" : "−"}${show(Math.abs(by))}`);

/** Nodes that came, left or differ, the largest change of requested CPU first: {name, before, after} with null where there is none. */
function changedNodes(earlier, later) {
  const before = new Map(earlier.map((node) => [node.name, node]));
  const after = new Map(later.map((node) => [node.name, node]));
  const names = [...new Set([...before.keys(), ...after.keys()])];
  const size = ({ before: one, after: other }) => (one && other ? Math.abs(other.cpu_requested - one.cpu_requested) + Math.abs(other.batch_cpu_requested - one.batch_cpu_requested) : Infinity);
  return names.map((name) => ({ name, before: before.get(name) ?? null, after: after.get(name) ?? null }))
    .filter(({ before: one, after: other }) => !one || !other || one.pods !== other.pods || size({ before: one, after: other }) > 0 || states(one) !== states(other) || one.batch_cpu !== other.batch_cpu)
    .sort((one, other) => size(other) - size(one) || (one.name < other.name ? -1 : 1));
}

const states = (node) => statusOf({ ...node, silent_seconds: null }).map(([text]) => text).join(", ");

function nodeTable(nodes, at) {
  if (nodes.length === 0) return h("p", { class: "empty" }, "No node differs.");
  const by = (one, other, name, show) => (one && other ? change(other[name] - one[name], show) : show((other ?? one)[name]));
  return table("Nodes that differ", ["Node", "Status", ["Pods"], ["CPU requested"], ["Reclaimed CPU"], ["Taken"], ["Memory requested"]], nodes.slice(0, SHOWN).map(({ name, before, after }) => h("tr", {},
    h("td", { class: "nowrap" }, after ? nodeLink(name, at) : name),
    h("td", {}, !before ? "came" : !after ? "left" : states(before) === states(after) ? states(after) : `${states(before)} → ${states(after)}`),
    ...[["pods", grouped], ["cpu_requested", inCores], ["batch_cpu", inCores], ["batch_cpu_requested", inCores], ["memory_requested", bytes]].map(([field, show]) => h("td", { class: "number" }, by(before, after, field, show))))));
}
