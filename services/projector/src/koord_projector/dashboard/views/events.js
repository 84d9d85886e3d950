// The log as it grows. Live facts come as server-sent events; a past moment shows the facts before it.
import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { grouped, moment } from "../format.js";

const KEPT = 400;
const KINDS = ["pod", "podspec", "node", "nodespec", "nodepolicy", "nodestate", "criproxy", "config", "controller", "recommendation", "quotaprofile", "workloadspec", "namespace", "priorityclass", "fold"];

export async function eventsView(root, { at, query, signal, go }) {
  root.kept ??= build(root, go);
  const page = root.kept;
  page.choose(query.get("kind"), query.get("id") ?? "");
  page.at = at;
  page.source?.close();
  let before = null;
  let asked = null;
  if (at) {
    asked = (await get("/api/cluster", { at }, signal)).moment;
    before = asked.position + 1;
  }
  const answer = await get("/api/events", { ...page.filter(), before, limit: 100 }, signal);
  fill(page.rows, answer.events.map((event) => row(event)));
  page.older = answer.before;
  page.more.hidden = answer.before === null;
  if (!at) page.listen(answer.position);
  return asked ?? { position: answer.position, occurred_at: answer.events[0]?.occurred_at ?? "" };
}

function build(root, go) {
  const page = { source: null, paused: false, older: null, at: "", id: "" };
  page.kind = h("select", { "aria-label": "Kind", onchange: () => go("/events", page.at) },
    h("option", { value: "" }, "all kinds"), KINDS.map((kind) => h("option", { value: kind }, kind)));
  page.only = h("span", { class: "note" });
  page.choose = (kind, id) => { // the address names an aggregate: only its facts are shown
    if (kind !== null && ![...page.kind.options].some((option) => option.value === kind)) page.kind.append(h("option", { value: kind }, kind));
    if (kind !== null) page.kind.value = kind;
    page.id = kind === null ? "" : id;
    page.only.textContent = page.id ? `only ${kind} ${page.id}` : "";
  };
  page.filter = () => ({ kind: page.kind.value, id: page.id });
  page.pause = h("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => {
    page.paused = !page.paused;
    page.pause.setAttribute("aria-pressed", String(page.paused));
    page.pause.textContent = page.paused ? "Go on" : "Pause";
    if (!page.paused) go("/events", page.at);
  } }, "Pause");
  page.rows = h("div", {});
  page.more = h("button", { type: "button", class: "quiet more", onclick: async () => {
    const answer = await get("/api/events", { ...page.filter(), before: page.older, limit: 100 });
    page.rows.append(...answer.events.map((event) => row(event)));
    page.older = answer.before;
    page.more.hidden = answer.before === null;
  } }, "Show older");
  page.listen = (after) => {
    page.source = new EventSource(`/api/events/stream?after=${after}`);
    page.source.addEventListener("facts", (message) => {
      if (page.paused) return;
      const wanted = JSON.parse(message.data).filter((event) => (!page.kind.value || event.kind === page.kind.value) && (!page.id || event.id === page.id));
      page.rows.prepend(...wanted.reverse().map((event) => row(event)));
      while (page.rows.childElementCount > KEPT) page.rows.lastElementChild.remove();
    });
    page.source.addEventListener("skipped", (message) => {
      if (!page.paused) page.rows.prepend(h("div", { class: "gap" }, `${grouped(JSON.parse(message.data).skipped)} more facts`));
    });
  };
  page.close = () => page.source?.close();
  fill(root, h("section", { class: "panel" },
    h("div", { class: "bar" }, h("h2", {}, "Events"), h("span", { class: "note" }, "facts in the order of the log, newest first; click for the whole event"),
      page.only, h("span", { class: "push" }), page.kind, page.pause),
    h("div", { class: "tail" }, page.rows), page.more));
  return page;
}

function row(event) {
  const line = h("div", { class: "row", tabindex: "0", role: "button" },
    h("span", { class: "seq" }, grouped(event.seq)), h("span", { class: "at" }, moment(event.occurred_at)),
    h("span", { class: "type" }, event.type), h("span", { title: event.summary }, event.summary), h("span", { class: "actor", title: event.actor }, event.actor));
  const whole = h("div", {}, line);
  const toggle = async () => {
    if (whole.childElementCount > 1) { whole.lastElementChild.remove(); return; }
    const body = h("pre", {}, "…");
    whole.append(body);
    body.textContent = JSON.stringify(await get(`/api/events/${event.seq}`), null, 2);
  };
  line.addEventListener("click", toggle);
  line.addEventListener("keydown", (key) => { if (key.key === "Enter") toggle(); });
  return whole;
}
