// Gangs: pods that are placed together or not at all, how far each gang is, and what it waits for.
import { get } from "../api.js";
import { fill, h, linkTo, table } from "../dom.js";
import { swatch } from "../explanation.js";
import { between, grouped, moment } from "../format.js";

const PAGE = 200;
const PARTS = [["running", "c3"], ["placed", "c1"], ["pending", "c2"]];

export async function gangsView(root, { at, signal }) {
  const page = (root.kept ??= { pages: 1 });
  const { gangs, shown, more } = await pages(at, signal, page.pages);
  const waiting = gangs.filter((gang) => gang.pending > 0).length;
  fill(root, h("section", { class: "panel" },
    h("div", { class: "bar" }, h("h1", { class: "h2" }, `${grouped(gangs.length)}${more ? "+" : ""} ${gangs.length === 1 ? "gang" : "gangs"}`), h("span", { class: "note" }, `${grouped(waiting)} with pending pods`),
      h("div", { class: "keys" }, PARTS.map(([name, tint]) => h("span", {}, swatch(tint), name)))),
    gangs.length === 0 ? h("p", { class: "empty" }, "No pod belongs to a gang.")
      : table("Gangs", ["Gang", "Phase", "Members", ["Minimum"], "Declared by", "Submitted", "Placed after", "Waits for"], gangs.map((gang) => row(gang, at)), "gangs"),
    more && h("button", { type: "button", class: "quiet more", onclick: () => { page.pages += 1; dispatchEvent(new HashChangeEvent("hashchange")); } }, "Show more")));
  return shown;
}

async function pages(at, signal, count) {
  const gangs = [];
  let after = "";
  let asked = at;
  for (let page = 0; ; page += 1) {
    const answer = await get("/api/gangs", { at: asked, after, limit: PAGE }, signal);
    gangs.push(...answer.gangs);
    if (answer.after === null || page + 1 >= count) return { gangs, shown: answer.moment, more: answer.after !== null };
    after = answer.after;
    asked = String(answer.moment.position); // every page shows the same position
  }
}

function row(gang, at) {
  const complete = gang.pending === 0 && gang.placed_at;
  const query = `namespace=${encodeURIComponent(gang.namespace)}&gang=${encodeURIComponent(gang.name)}`;
  return h("tr", {},
    h("td", {}, linkTo(`/pods?${query}`, at, h("span", { class: "note" }, `${gang.namespace}/`), gang.name)),
    h("td", {}, gang.phase && h("span", { class: `phase ${gang.phase.toLowerCase()}` }, gang.phase)),
    h("td", {}, h("div", { class: "share-lane" },
      h("span", { class: "lane", role: "img", "aria-label": PARTS.map(([name]) => `${gang[name]} ${name}`).join(", ") },
        PARTS.map(([name, tint]) => gang[name] > 0 && h("i", { css: { width: `${(gang[name] / gang.pods) * 100}%`, background: `var(--${tint})` } }))),
      h("span", {}, `${grouped(gang.pods - gang.pending)} of ${grouped(gang.pods)}`))),
    h("td", { class: "number" }, gang.min_member ? grouped(gang.min_member) : "–"),
    h("td", {}, gang.pod_group ? "PodGroup" : "its pods"),
    h("td", { class: "nowrap" }, moment(gang.submitted_at)),
    h("td", { class: "nowrap" }, complete ? between(gang.submitted_at, gang.placed_at) : ""),
    h("td", {}, [gang.why, gang.message].filter(Boolean).join(" ")));
}
