// The log as it grows. Live facts come as server-sent events; a past moment shows the facts before it.
import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { grouped, moment } from "../format.js";

const KEPT = 400;
const PAGE = 100;
const PAGES_AT_ONCE = 5; // a text may be rare: so many pages are searched before the reader is asked
const FOLDED = 3; // as many facts of one type in a row become one line
const KINDS = ["pod", "podspec", "gang", "reservation", "quota", "node", "nodespec", "nodepolicy", "nodestate", "criproxy", "config", "controller", "descheduler", "migration", "drain", "draingroup", "recommendation", "quotaprofile", "workloadspec", "customspec", "namespace", "priorityclass", "fold"];
const MIRRORS = ["customspec", "workloadspec", "namespace", "priorityclass"]; // copies of objects, which others decided

export async function eventsView(root, { at, query, signal, go }) {
  root.kept ??= build(root, go);
  const page = root.kept;
  page.choose(query.get("kind"), query.get("id") ?? "");
  page.at = at;
  page.signal = signal;
  page.source?.close();
  let asked = null;
  page.older = null;
  if (at) {
    asked = (await get("/api/cluster", { at }, signal)).moment;
    page.older = asked.position + 1;
  }
  page.events = [];
  page.gap = 0;
  const answer = await page.load(signal);
  if (!at && !document.hidden) page.listen(answer.position);
  return asked ?? { position: answer.position, occurred_at: page.events[0]?.occurred_at ?? "" };
}

function build(root, go) {
  const page = { source: null, paused: false, older: null, at: "", id: "", events: [], open: new Set(), bodies: new Map(), gap: 0, isLoading: false };
  const again = () => go("/events", page.at, new URLSearchParams(page.id ? { kind: page.kind.value, id: page.id } : {}));
  let timer = 0;
  page.kind = h("select", { "aria-label": "Kind", onchange: () => { page.id = ""; again(); } },
    h("option", { value: "" }, "all kinds"), KINDS.map((kind) => h("option", { value: kind }, kind)));
  page.text = h("input", { type: "search", "aria-label": "Text", placeholder: "pod, node or any text in a fact", oninput: () => { clearTimeout(timer); timer = setTimeout(again, 250); } });
  page.mirrors = h("input", { type: "checkbox", onchange: again });
  page.only = h("span", { class: "note" });
  page.choose = (kind, id) => { // the address names an aggregate: only its facts are shown
    if (kind !== null && ![...page.kind.options].some((option) => option.value === kind)) page.kind.append(h("option", { value: kind }, kind));
    if (kind !== null) page.kind.value = kind;
    page.id = kind === null ? "" : id;
    page.only.textContent = page.id ? `only ${kind} ${page.id}` : "";
  };
  page.without = () => (page.mirrors.checked || page.kind.value ? [] : MIRRORS);
  page.filter = () => ({ kind: page.kind.value, id: page.id, text: page.text.value.trim(), without: page.without().join(",") });
  page.isWanted = (event) => {
    const { kind, id, text } = page.filter();
    return (!kind || event.kind === kind) && (!id || event.id === id) && !page.without().includes(event.kind) && (!text || `${event.id} ${event.summary}`.includes(text));
  };
  page.pause = h("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => {
    page.paused = !page.paused;
    page.pause.setAttribute("aria-pressed", String(page.paused));
    page.pause.textContent = page.paused ? "Go on" : "Pause";
    if (!page.paused) again();
  } }, "Pause");
  page.rows = h("div", {});
  page.failed = h("div", { role: "status" });
  page.more = h("button", { type: "button", class: "quiet more", onclick: () => page.showOlder() }, "Show older");
  // The answer to the first request: live facts go on behind its position. `signal` ends the loading when another list is wanted.
  page.load = async (signal) => {
    page.isLoading = true;
    try {
      let first = null;
      const wanted = page.events.length + PAGE;
      for (let pages = 0; pages < PAGES_AT_ONCE; pages += 1) {
        const answer = await get("/api/events", { ...page.filter(), before: page.older, limit: PAGE }, signal);
        first ??= answer;
        page.events.push(...answer.events);
        page.older = answer.before;
        if (page.older === null || page.events.length >= wanted) break;
      }
      page.more.hidden = page.older === null;
      fill(page.failed);
      page.paint();
      return first;
    } finally {
      if (!signal.aborted) page.isLoading = false;
    }
  };
  page.showOlder = async () => {
    if (page.isLoading) return;
    const { signal } = page;
    try {
      await page.load(signal);
    } catch (error) {
      if (!signal.aborted) fill(page.failed, h("p", { class: "error" }, error.message));
    }
  };
  page.paint = () => fill(page.rows, page.gap > 0 && h("div", { class: "gap" }, `${grouped(page.gap)} more facts were too many to show as they came`),
    runs(page.events).flatMap((run) => rowsOf(run, page)),
    page.events.length === 0 && h("p", { class: "empty" }, page.older === null ? "No fact matches." : "No fact matches among the newest ones."));
  page.listen = (after) => {
    page.source = new EventSource(`/api/events/stream?after=${after}`);
    page.source.addEventListener("facts", (message) => {
      if (page.paused) return;
      const wanted = JSON.parse(message.data).filter(page.isWanted);
      if (wanted.length === 0) return;
      page.events.unshift(...wanted.reverse());
      if (page.events.length > KEPT && !page.isLoading) { // what is being loaded belongs behind the last row
        page.events.length = KEPT;
        page.older = page.events.at(-1).seq;
        page.more.hidden = false;
      }
      page.paint();
    });
    page.source.addEventListener("skipped", (message) => {
      if (page.paused) return;
      page.gap += JSON.parse(message.data).skipped;
      page.paint();
    });
  };
  page.hide = () => page.source?.close();
  page.wake = () => { if (!page.at && !page.paused) again(); };
  page.close = () => {
    clearTimeout(timer);
    page.hide();
  };
  fill(root, h("section", { class: "panel" },
    h("div", { class: "bar" }, h("h1", { class: "h2" }, "Events"), h("span", { class: "note" }, "facts in the order of the log, newest first; press one for the whole event"), page.only),
    h("div", { class: "filters" }, page.text, page.kind, h("label", { class: "check" }, page.mirrors, " copies of objects"), page.pause),
    h("div", { class: "tail" }, page.rows), page.more, page.failed));
  return page;
}

// Facts of one type in a row together.
function runs(events) {
  const found = [];
  for (const event of events) {
    if (found.at(-1)?.[0].type === event.type) found.at(-1).push(event);
    else found.push([event]);
  }
  return found;
}

// A run that is long enough is one line, which opens its facts.
function rowsOf(run, page) {
  if (run.length < FOLDED) return run.map((event) => row(event, page));
  const key = run.at(-1).seq; // the oldest one stays while new ones come
  const isOpen = page.open.has(key);
  const toggle = () => {
    if (!page.open.delete(key)) page.open.add(key);
    page.paint();
  };
  const line = h("button", { type: "button", class: "row fold", "aria-expanded": String(isOpen), onclick: toggle },
    h("span", { class: "seq" }, grouped(run[0].seq)), h("span", { class: "at" }, moment(run[0].occurred_at)),
    h("span", { class: "type" }, run[0].type), h("span", { title: run[0].summary }, h("b", {}, `${grouped(run.length)} in a row`), ` · ${run[0].summary}`), h("span", { class: "actor" }, run[0].actor));
  return [line, isOpen && h("div", { class: "folded" }, run.map((event) => row(event, page)))];
}

/** The whole event as a text, or why there is none. */
const wholeEvent = (seq) => get(`/api/events/${seq}`).then((whole) => JSON.stringify(whole, null, 2), (error) => error.message);

function row(event, page) {
  const isOpen = page.bodies.has(event.seq);
  const body = isOpen && h("pre", {}, "…");
  if (body) page.bodies.get(event.seq).then((text) => { body.textContent = text; });
  const toggle = () => {
    if (!page.bodies.delete(event.seq)) page.bodies.set(event.seq, wholeEvent(event.seq));
    page.paint();
  };
  return [h("button", { type: "button", class: "row", "aria-expanded": String(isOpen), onclick: toggle },
    h("span", { class: "seq" }, grouped(event.seq)), h("span", { class: "at" }, moment(event.occurred_at)),
    h("span", { class: "type", title: event.type }, event.type), h("span", { title: event.summary }, event.summary), h("span", { class: "actor", title: event.actor }, event.actor)), body];
}
