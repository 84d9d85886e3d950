// A scheduling decision drawn: what excluded how many nodes, and what the best scores are made of.
import { h } from "./dom.js";
import { grouped } from "./format.js";

const TINTS = 12; // colours o0 to o11 of the theme
const FEASIBLE = 2;

/** explanation as in the event; chosen: name of the node that was taken, "" if none was. */
export function explanation(found, chosen) {
  const exclusions = found.exclusions ?? [];
  const top = found.top ?? [];
  return h("div", { class: "why" }, funnel(found, exclusions), top.length > 0 && scores(top, chosen),
    h("div", { class: "note" }, "policy ", h("code", {}, found.policy_version),
      ` · decided on position ${grouped(found.based_on?.ev ?? 0)} of the facts, ${grouped(found.based_on?.obs ?? 0)} of the observations`));
}

function funnel(found, exclusions) {
  const tints = tintsOf(exclusions.map((part) => part.plugin), [FEASIBLE]);
  const parts = exclusions.map((part) => ({ ...part, color: tints.get(part.plugin) }));
  const bar = [...parts.map((part) => [part.excluded, part.color]), [found.nodes_feasible, `o${FEASIBLE}`]].filter(([count]) => count > 0);
  return h("div", {},
    h("div", { class: "funnel", role: "img", "aria-label": `${found.nodes_feasible} of ${found.nodes_considered} nodes were feasible` },
      bar.map(([count, name]) => h("i", { css: { flex: String(count), background: `var(--${name})` } }))),
    h("div", { class: "keys" },
      h("span", {}, swatch(`o${FEASIBLE}`), h("b", {}, grouped(found.nodes_feasible)), ` of ${grouped(found.nodes_considered)} nodes feasible`),
      parts.map((part) => h("span", {}, swatch(part.color), h("b", {}, `−${grouped(part.excluded)}`), ` ${part.plugin}: `,
        Object.entries(part.reasons).map(([reason, count]) => `${reason} (${grouped(count)})`).join(", ")))));
}

// What all nodes got from a plugin decides nothing: bars show what a node has above the least of each plugin. If no plugin tells
// nodes apart, as with one node, they show all parts.
function scores(top, chosen) {
  const plugins = [...new Set(top.flatMap((node) => Object.keys(node.parts)))];
  const lowest = (plugin) => Math.min(...top.map((node) => node.parts[plugin] ?? 0));
  const isSame = (plugin) => top.every((node) => (node.parts[plugin] ?? 0) === lowest(plugin));
  const differs = !plugins.every(isSame);
  const same = plugins.filter((plugin) => (differs ? isSame(plugin) : lowest(plugin) === 0));
  const least = (plugin) => (differs ? lowest(plugin) : 0);
  const told = plugins.filter((plugin) => !same.includes(plugin));
  const tints = tintsOf(told);
  const above = (node, plugin) => (node.parts[plugin] ?? 0) - least(plugin);
  const most = Math.max(1, ...top.map((node) => told.reduce((sum, plugin) => sum + above(node, plugin), 0)));
  const alike = same.filter((plugin) => least(plugin) > 0).map((plugin) => `${plugin} ${grouped(least(plugin))}`);
  const part = (node, plugin) => `${plugin}: ${grouped(node.parts[plugin] ?? 0)}, ${grouped(above(node, plugin))} above the least`;
  return h("div", {},
    h("div", { class: "scores" }, top.map((node) => [
      h("a", { href: `#/nodes/${encodeURIComponent(node.node)}`, class: node.node === chosen ? "chosen" : "" },
        node.node === chosen ? `✓ ${node.node}` : node.node),
      h("span", { class: "track", role: "img", "aria-label": told.map((plugin) => part(node, plugin)).join("; ") || "the same from every plugin" },
        told.filter((plugin) => above(node, plugin) > 0).map((plugin) =>
          h("i", { title: part(node, plugin), css: { width: `${(above(node, plugin) / most) * 100}%`, background: `var(--${tints.get(plugin)})` } }))),
      h("span", { class: node.node === chosen ? "chosen" : "" }, grouped(node.total)),
    ])),
    h("div", { class: "keys" }, told.map((plugin) => h("span", {}, swatch(tints.get(plugin)), plugin)),
      alike.length > 0 && h("span", { class: "note" }, `the same on all ${grouped(top.length)}: ${alike.join(", ")}`)));
}

/** A colour for each name: that of its hash, or the next one that is free, so that a name keeps its colour if it can. reserved: colours of others. */
export function tintsOf(names, reserved = []) {
  const taken = new Set(reserved);
  return new Map([...names].sort().map((name) => {
    let place = [...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 9973, 7) % TINTS;
    while (taken.has(place) && taken.size < TINTS) place = (place + 1) % TINTS;
    taken.add(place);
    return [name, `o${place}`];
  }));
}

/** Why there is no node, group of nodes by group of nodes, what preemption could do, and what would help. */
export function diagnosis(found) {
  const failures = found.failures ?? [];
  const { preemption, suggestion } = found;
  const victims = preemption?.victims ?? [];
  const line = (name, ...text) => h("div", {}, h("b", {}, `${name} `), text);
  return h("div", { class: "why" },
    found.pre_filter_message && line("before any node:", found.pre_filter_message),
    failures.length > 0 && h("div", { class: "table" }, h("table", { class: "list" },
      h("thead", {}, h("tr", {}, h("th", { class: "number" }, "Nodes"), ["Plugin", "Why", "If pods left", "Which"].map((name) => h("th", {}, name)))),
      h("tbody", {}, failures.map((group) => h("tr", {},
        h("td", { class: "number" }, grouped(group.count)), h("td", {}, group.plugin), h("td", {}, group.reason),
        h("td", {}, group.preempt_might_help ? "may help" : "no help"),
        h("td", {}, named(group.nodes ?? [], group.count))))))),
    found.already_waiting > 0 && line("waiting with a node:", `${grouped(found.already_waiting)} pods of its gang group`),
    found.is_root_cause === false && line("follows:", "its gang group had failed already"),
    victims.length > 0 ? line("preemption:", `${preemption.node} is free once `,
      victims.map((pod, index) => [index > 0 && ", ", h("a", { href: `#/pods/${encodeURIComponent(pod.uid)}` }, `${pod.namespace}/${pod.name}`)]), " left")
      : preemption?.failed_message && line("preemption:", preemption.failed_message),
    suggestion && !(victims.length > 0 && suggestion.type === "WaitingVictimReleased") && line("suggestion:", `${suggestion.message} (${suggestion.type})`));
}

const NODES_NAMED = 5;

function named(nodes, count) {
  const shown = nodes.slice(0, NODES_NAMED);
  return [shown.map((name, index) => [index > 0 && ", ", h("a", { href: `#/nodes/${encodeURIComponent(name)}` }, name)]),
    count > shown.length && ` and ${grouped(count - shown.length)} more`];
}

export const swatch = (name) => h("span", { class: "swatch", css: { background: `var(--${name})` } });
