// Reservations: where each is, what it holds, what its owners take, and when it ends.
import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { swatch } from "../explanation.js";
import { amount, between, grouped, moment } from "../format.js";

const PAGE = 500;
const PHASES = { Available: "running", Pending: "pending", Succeeded: "placed", Failed: "terminating" };

export async function reservationsView(root, { at, signal, go }) {
  const { reservations, moment: shown } = await pages(at, signal);
  const counts = Object.keys(PHASES).map((phase) => [phase, reservations.filter((each) => each.phase === phase).length]).filter(([, number]) => number > 0);
  const suffix = at ? `?at=${encodeURIComponent(at)}` : "";
  fill(root, h("section", { class: "panel" },
    h("div", { class: "bar" }, h("h2", {}, `${grouped(reservations.length)} reservations`),
      h("span", { class: "note" }, counts.map(([phase, number]) => `${grouped(number)} ${phase}`).join(", ")),
      h("div", { class: "keys" }, h("span", {}, swatch("c2"), "taken by owners"), h("span", {}, swatch("c3"), "reserved and unused"))),
    reservations.length === 0 ? h("p", { class: "empty" }, "There is no Reservation.")
      : h("div", { class: "table" }, h("table", { class: "list reservations" },
        h("thead", {}, h("tr", {}, ["Reservation", "Phase", "Node", "Used of reserved", "Owners", "For", "Expires"].map((name) => h("th", {}, name)))),
        h("tbody", {}, reservations.map((each) => row(each, { at, go, suffix, now: shown.live ? new Date().toISOString() : shown.occurred_at })))))));
  return shown;
}

/** All Reservations of one moment. */
async function pages(at, signal) {
  const reservations = [];
  let after = "";
  let asked = at;
  for (;;) {
    const page = await get("/api/reservations", { at: asked, after, limit: PAGE }, signal);
    reservations.push(...page.reservations);
    if (page.after === null) return { reservations, moment: page.moment };
    after = page.after;
    asked = String(page.moment.position); // every page shows the same position
  }
}

function row(each, { suffix, now }) {
  const kind = [each.policy, each.allocate_once ? "one owner" : "reusable"].join(", ");
  return h("tr", {},
    h("td", {}, each.name, h("div", { class: "note" }, kind)),
    h("td", {}, h("span", { class: `phase ${PHASES[each.phase] ?? ""}` }, each.phase),
      (each.problem || each.message) && h("div", { class: "note" }, each.problem || each.message)),
    h("td", { class: "nowrap" }, each.node ? h("a", { href: `#/nodes/${encodeURIComponent(each.node)}${suffix}` }, each.node) : ""),
    h("td", {}, h("div", { class: "gauge" }, Object.keys(each.reserved).sort().map((name) => lane(name, each)))),
    h("td", {}, each.owners.map((owner) => h("div", {}, h("a", { href: `#/pods/${encodeURIComponent(owner.uid)}${suffix}` }, h("span", { class: "note" }, `${owner.namespace}/`), owner.name)))),
    h("td", { class: "note" }, each.for_pods.map((text) => h("div", {}, text))),
    h("td", { class: "nowrap", title: moment(each.expires_at) }, each.expires_at ? `in ${between(now, each.expires_at)}` : ["Succeeded", "Failed"].includes(each.phase) ? "" : "never"));
}

function lane(name, each) {
  const whole = Math.max(1, each.reserved[name]);
  const part = (value) => `${(Math.min(value ?? 0, whole) / whole) * 100}%`;
  return [h("span", {}, name.split("/").pop()),
    h("span", { class: "lane" }, h("i", { css: { width: part(each.taken[name]), background: "var(--c2)" } }),
      h("i", { css: { width: part(each.unused[name]), background: "var(--c3)" } })),
    h("span", { class: "right" }, `${amount(name, each.taken[name] ?? 0)} of ${amount(name, each.reserved[name])}`)];
}
