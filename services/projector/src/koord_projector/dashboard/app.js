// The page: which view, which moment, how far the projector is.
//
// A view is an async function (root, {parameters, query, at, signal, isFirst}) that fills `root`; it is called again when the
// moment changes and, in live mode, every few seconds, and keeps what it wants to keep in `root.kept`: close() is called when the
// page is left, hide() and wake() when nobody sees it any more and when somebody sees it again.
import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { age, counted, grouped, moment } from "./format.js";
import { Timeline } from "./timeline.js";
import { switchZone, zoneName } from "./zone.js";

// [pattern of the path, page in the navigation, module in views/, milliseconds until it is drawn again]; the module exports
// NAMEView, and is loaded when its page is opened first.
const ROUTES = [
  [/^\/cluster$/, "cluster", "cluster", 2000],
  [/^\/nodes$/, "nodes", "nodes", 4000],
  [/^\/nodes\/([^/]+)$/, "nodes", "node", 4000],
  [/^\/pods$/, "pods", "pods", 3000],
  [/^\/pods\/([^/]+)$/, "pods", "pod", 4000],
  [/^\/pod\/([^/]+)\/([^/]+)$/, "pods", "pod", 4000],
  [/^\/colocation$/, "colocation", "colocation", 4000],
  [/^\/gangs$/, "gangs", "gangs", 4000],
  [/^\/recommendations$/, "recommendations", "recommendations", 10000],
  [/^\/configuration$/, "configuration", "configuration", 10000],
  [/^\/search$/, "search", "search", 0],
  [/^\/pending$/, "pending", "pending", 3000],
  [/^\/quotas$/, "quotas", "quotas", 3000],
  [/^\/reservations$/, "reservations", "reservations", 3000],
  [/^\/descheduling$/, "descheduling", "descheduling", 4000],
  [/^\/events$/, "events", "events", 0],
  [/^\/health$/, "health", "health", 5000],
  [/^\/compare$/, "compare", "compare", 0],
];
const STATUS_MILLIS = 2000;
const TIMELINE_MILLIS = 30_000;
const SAME_MILLIS = 8000; // ages on a page grow also if nothing new is stored
const OTHER_CLOCK_MILLIS = 60_000;
const SLIDER_STEPS = 2000;

const root = document.getElementById("view");
const slider = document.getElementById("slider");
const live = document.getElementById("live");
const shown = document.getElementById("moment");
const status = document.getElementById("status");
slider.max = String(SLIDER_STEPS);

let now = ""; // the time on the clock of the run
let range = null; // [first, last] in milliseconds
let running = null; // AbortController of the view being drawn
let timer = 0;
let refresh = 0; // milliseconds until the page is drawn again; 0: it is not drawn by itself
let isOpen = false; // whether a view was shown
let drawn = ""; // route of what is on the page

function parsed() {
  const [path, search] = (location.hash.slice(1) || "/cluster").split("?");
  return { path, query: new URLSearchParams(search ?? "") };
}

/** The page of an address that has none. */
async function missingView(target, { path }) {
  fill(target, h("section", { class: "panel" }, h("h1", {}, "No such page"),
    h("p", {}, "There is no page ", h("code", {}, path), ". ", h("a", { href: "#/cluster" }, "Back to the cluster"))));
  return null;
}

/** Goes to a path at a moment ("": live). */
function go(path, at, query = new URLSearchParams()) {
  query.delete("at");
  if (at) query.set("at", at);
  const target = query.size > 0 ? `${path}?${query}` : path;
  if (`#${target}` === location.hash) draw();
  else location.hash = target;
}

/** Shows what is shown now at another moment. */
function moveTo(at) {
  const { path, query } = parsed();
  go(path, at, query);
}

async function draw() {
  clearTimeout(timer);
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  const { path, query } = parsed();
  const at = query.get("at") ?? "";
  const [pattern, name, module, millis] = ROUTES.find(([each]) => each.test(path)) ?? [/^$/, "no such page", "", 0];
  refresh = at ? 0 : millis;
  const parameters = (pattern.exec(path) ?? []).slice(1).map(decodeURIComponent);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    link.href = `#/${link.dataset.view}${at ? `?at=${encodeURIComponent(at)}` : ""}`;
  }
  const isFirst = drawn !== path;
  if (isFirst) {
    document.title = `${parameters.at(-1) ?? name[0].toUpperCase() + name.slice(1)} · Koordstream`;
    root.kept?.close?.();
    root.kept = null;
    fill(root, h("p", { class: "empty loading", role: "status" }, "loading…"));
    if (isOpen) root.focus({ preventScroll: true }); // a reader goes on in the new page; after loading it begins at the top
    isOpen = true;
    scrollTo(0, 0);
    drawn = path;
  }
  try {
    const view = module ? (await import(`./views/${module}.js`))[`${module}View`] : missingView;
    if (signal.aborted) return;
    const answer = await view(root, { path, parameters, query, at, signal, isFirst, go });
    if (!signal.aborted) showMoment(at, answer);
  } catch (error) {
    if (signal.aborted) return;
    if (isFirst || error.status === 404) {
      // what is shown belongs to another moment: it must not stand under this one
      root.kept?.close?.();
      root.kept = null;
      drawn = "";
      fill(root, h("p", { class: "error" }, error.message));
      showMoment(at, null);
    } else status.textContent = error.message;
  }
  if (!signal.aborted && refresh) {
    drawnOf = stored;
    drawnAt = Date.now();
    timer = setTimeout(drawAgain, refresh);
  }
}

let stored = ""; // positions of all that the projector has stored
let drawnOf = ""; // those of the page
let drawnAt = 0;

// Draws a live page that is seen, if there is something new.
function drawAgain() {
  if (!document.hidden && (stored !== drawnOf || Date.now() - drawnAt >= SAME_MILLIS)) draw();
  else timer = setTimeout(drawAgain, refresh);
}

let told = { at: "", answer: null }; // what the page shows

function showMoment(at, answer) {
  told = { at, answer };
  live.setAttribute("aria-pressed", String(!at));
  shown.classList.toggle("past", Boolean(at));
  const asked = /^\d*$/.test(at) ? answer?.occurred_at : at;
  if (answer && !at) shown.textContent = `live · position ${grouped(answer.position)}${lastEvent(answer)}`;
  else if (answer) shown.textContent = `${inZone(asked)} · position ${grouped(answer.position)}`;
  else if (at) shown.textContent = /^\d+$/.test(at) ? `position ${grouped(Number(at))}` : inZone(at);
  placeThumb();
}

const inZone = (text) => (text ? `${moment(text)} ${zoneName(new Date(text))}` : "");

// How long ago the newest fact was, on the clock of the run.
function lastEvent(answer) {
  if (!answer.occurred_at || !now) return "";
  const isScaled = Math.abs(new Date(now) - Date.now()) > OTHER_CLOCK_MILLIS;
  return ` · last event ${age((new Date(now) - new Date(answer.occurred_at)) / 1000)} ago${isScaled ? " (run's clock)" : ""}`;
}

function placeThumb() {
  const { at, answer } = told;
  if (range && !slider.matches(":active")) {
    const asked = /^\d*$/.test(at) ? answer?.occurred_at : at;
    const time = at && asked ? new Date(asked).getTime() : range[1];
    slider.value = String(Math.round(((time - range[0]) / Math.max(1, range[1] - range[0])) * SLIDER_STEPS));
  }
}

let looking = 0;
let round = 0; // of asking for the status: only the newest one goes on

async function look() {
  clearTimeout(looking);
  round += 1;
  const asked = round;
  try {
    const answer = await get("/api/status");
    document.getElementById("cluster-name").textContent = answer.cluster;
    const lag = answer.lag_events > 500 ? ` · ${grouped(answer.lag_events)} events behind` : "";
    status.textContent = answer.trouble || `${counted(answer.position, "event")}${lag}`;
    status.classList.toggle("bad", Boolean(answer.trouble));
    if (answer.first_at) range = [new Date(answer.first_at).getTime(), new Date(answer.last_at).getTime()];
    now = answer.now;
    showTimeline();
    stored = [answer.position, answer.observations, answer.explanations, answer.trouble].join();
    if (told.at || !told.answer) placeThumb();
    else showMoment(told.at, told.answer);
  } catch (error) {
    status.textContent = `no answer: ${error.message}`;
    status.classList.add("bad");
  }
  if (asked === round && !document.hidden) looking = setTimeout(look, STATUS_MILLIS);
}

document.addEventListener("visibilitychange", () => { // a page that nobody sees asks for nothing
  clearTimeout(looking);
  if (document.hidden) {
    root.kept?.hide?.();
    return;
  }
  look();
  if (refresh) draw();
  else root.kept?.wake?.();
});

const timeline = new Timeline((position) => moveTo(String(position)));
slider.after(timeline.canvas);
let timelineAt = 0;

// The scale follows each answer; what it shows is asked for now and then, after the page has what it needs.
function showTimeline() {
  if (!range) return;
  timeline.show(range);
  if (Date.now() - timelineAt < TIMELINE_MILLIS) return;
  timelineAt = Date.now();
  Promise.all([get("/api/series", { points: 500 }), get("/api/marks")])
    .then(([series, { marks }]) => timeline.show(range, series, marks))
    .catch(() => {}); // the next turn asks again
}

for (const [id, step] of [["earlier", -1], ["later", 1]]) {
  document.getElementById(id).addEventListener("click", () => {
    const position = told.answer?.position;
    const mark = position === undefined ? undefined : timeline.neighbour(position, step);
    if (mark) moveTo(String(mark.seq));
    else if (step > 0) moveTo("");
  });
}
document.getElementById("compare").addEventListener("click", () => {
  if (told.answer) go("/compare", parsed().query.get("at"), new URLSearchParams({ from: told.answer.position }));
});

let asked = 0;
slider.addEventListener("input", () => {
  if (!range) return;
  const part = Number(slider.value) / SLIDER_STEPS;
  const time = new Date(range[0] + (range[1] - range[0]) * part).toISOString();
  shown.textContent = inZone(time);
  shown.classList.add("past");
  clearTimeout(asked); // while the slider moves, a few moments a second are enough
  asked = setTimeout(() => moveTo(part >= 1 ? "" : time), 90);
});
live.addEventListener("click", () => moveTo(""));
const search = document.getElementById("search");
search.addEventListener("submit", (event) => {
  event.preventDefault();
  go("/search", parsed().query.get("at"), new URLSearchParams({ text: search.elements.text.value.trim() }));
});
addEventListener("keydown", (event) => {
  const writing = event.target instanceof Element && event.target.closest("input, select, textarea");
  if (event.key !== "/" || writing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  search.elements.text.select();
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash is the route
  root.focus();
});
document.getElementById("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("koord-theme", dark ? "light" : "dark");
  root.kept?.repaint?.();
  timeline.paint();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => root.kept?.repaint?.());
const zone = document.getElementById("zone");
zone.textContent = zoneName();
zone.addEventListener("click", () => {
  switchZone();
  zone.textContent = zoneName();
  draw();
  root.kept?.repaint?.();
  timeline.paint();
});
const menu = document.getElementById("menu");
const sidebar = document.getElementById("sidebar");
function showMenu(isOpen) {
  menu.setAttribute("aria-expanded", String(isOpen));
  sidebar.classList.toggle("open", isOpen);
}
menu.addEventListener("click", () => {
  showMenu(true);
  sidebar.querySelector("a[aria-current]")?.focus();
});
document.addEventListener("click", (event) => { // beside the open menu, or on a link of it
  if (menu.contains(event.target) || (sidebar.contains(event.target) && !event.target.closest("a"))) return;
  showMenu(false);
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !sidebar.classList.contains("open")) return;
  showMenu(false);
  menu.focus();
});
addEventListener("hashchange", () => {
  search.elements.text.value = parsed().path === "/search" ? parsed().query.get("text") ?? "" : "";
  draw();
});
look();
draw();

/** Names who is logged in, with a way out. Where access is open, there is nobody to name. */
async function showWho() {
  const { subject, roles } = await get("/auth/whoami");
  if (subject === "anonymous") return;
  const out = h("button", { class: "quiet", type: "button", onclick: logOut }, "Log out");
  const who = document.getElementById("who");
  fill(who, h("span", { title: `roles: ${roles.join(", ")}` }, subject), out).hidden = false;
}

async function logOut() {
  await fetch("/auth/logout", { method: "POST" });
  location.assign("/auth/login");
}

showWho();
