// What matches a text: pods, nodes, quotas and other objects, facts.
import { get } from "../api.js";
import { fill, h, linkTo, nodeLink, podLink, table } from "../dom.js";
import { grouped, moment } from "../format.js";

const LIMIT = 50;
const PAGES = { elasticquotas: "/quotas", elasticquotaprofiles: "/quotas", reservations: "/reservations", podgroups: "/gangs", podmigrationjobs: "/descheduling" };
const KIND_PAGES = { config: "/configuration", recommendation: "/recommendations", migration: "/descheduling" };

export async function searchView(root, { at, query, signal }) {
  const text = query.get("text") ?? "";
  const found = await get("/api/search", { text, at, limit: LIMIT }, signal);
  const none = found.pods.length + found.nodes.length + found.objects.length + found.facts.length === 0;
  fill(root, h("div", { class: "stack" },
    h("div", { class: "title" }, h("h1", {}, text ? `Search: ${text}` : "Search"), h("span", { class: "note", role: "status" }, none ? "nothing matches" : summary(found))),
    section("Pods", found.pods_total, found.pods.length, ["Pod", "Phase", "QoS", "Node", "Submitted"], found.pods.map((pod) => h("tr", {},
      h("td", {}, podLink(pod, at)), h("td", {}, h("span", { class: `phase ${pod.phase}` }, pod.phase)), h("td", {}, h("span", { class: `qos ${pod.qos}` }, pod.qos)),
      h("td", {}, pod.node && nodeLink(pod.node, at)), h("td", { class: "nowrap" }, moment(pod.submitted_at))))),
    section("Nodes", found.nodes.length, found.nodes.length, ["Node"], found.nodes.map((name) => h("tr", {}, h("td", {}, nodeLink(name, at))))),
    section("Objects", found.objects.length, found.objects.length, ["Object", "Kind"], found.objects.map((each) => h("tr", {},
      h("td", {}, linkTo(pageOf(each), at, each.namespace && h("span", { class: "note" }, `${each.namespace}/`), each.name)), h("td", {}, each.resource)))),
    section("Facts", found.facts.length, found.facts.length, [["Position"], "When", "Type", "What"], found.facts.map((fact) => h("tr", {},
      h("td", { class: "number" }, linkTo(`/events?kind=${encodeURIComponent(fact.kind)}&id=${encodeURIComponent(fact.id)}`, at, grouped(fact.seq))),
      h("td", { class: "nowrap" }, moment(fact.occurred_at)), h("td", {}, fact.type), h("td", {}, fact.summary))))));
  return found.moment;
}

function section(name, total, shown, columns, rows) {
  if (rows.length === 0) return null;
  return h("section", { class: "panel" }, h("h2", {}, `${name} `, h("span", { class: "note" }, total > shown ? `the first ${grouped(shown)} of ${grouped(total)}` : grouped(total))), table(name, columns, rows));
}

const summary = (found) => [[found.pods_total, "pods"], [found.nodes.length, "nodes"], [found.objects.length, "objects"], [found.facts.length, "facts"]]
  .filter(([count]) => count > 0).map(([count, name]) => `${grouped(count)} ${name}`).join(", ");

const pageOf = (each) => PAGES[each.resource] ?? KIND_PAGES[each.kind] ?? `/events?kind=${encodeURIComponent(each.kind)}&id=${encodeURIComponent(each.id)}`;
