// Elements from values. Text always becomes a text node, so nothing that a user named can become markup.
import { cores } from "./format.js";

/** h("td", {class: "number", onclick: f}, "12", child, [more]) -> element. null, undefined and false are left out. */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "css") for (const [key, item] of Object.entries(value)) element.style.setProperty(key, item);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

/** Puts new children in the place of the old ones. If the focus was on an old one, the new one that equals it gets the focus. */
export function fill(element, ...children) {
  const focused = document.activeElement;
  const place = focused !== element && element.contains(focused) ? likes(element, focused).indexOf(focused) : -1;
  element.replaceChildren();
  append(element, children);
  if (place >= 0) likes(element, focused)[place]?.focus({ preventScroll: true });
  return element;
}

/** The descendants of an element that equal `wanted`: in kind, id, address and label, and buttons in their text. */
function likes(element, wanted) {
  const identity = (each) => [each.id, each.getAttribute("href"), each.getAttribute("aria-label"), each.tagName === "BUTTON" && each.textContent].join("\n");
  return [...element.querySelectorAll(wanted.tagName)].filter((each) => identity(each) === identity(wanted));
}

/** A colour of the theme, for canvas and charts. */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** A row of buttons of which one is pressed. options: [[value, label, disabled?]]. */
export function segments(label, options, chosen, onChoose) {
  return h("div", { class: "segments", role: "group", "aria-label": label },
    options.map(([value, text, disabled]) => h("button",
      { type: "button", "aria-pressed": String(value === chosen), disabled: Boolean(disabled), onclick: () => onChoose(value) }, text)));
}

/** A figure with a label; ratio (0 to 1) in the colour `tint` of the theme is drawn as a meter. */
export function tile(label, value, detail, ratio, tint) {
  return h("div", { class: "tile" }, h("div", { class: "label" }, label), h("div", { class: "value" }, value),
    ratio !== undefined && h("div", { class: "meter" }, h("i", { css: { width: `${Math.min(100, ratio * 100)}%`, background: `var(--${tint})` } })),
    h("div", { class: "detail", title: detail.textContent ?? detail }, detail));
}

/** An amount of cpu in milli-cores for the value of a tile, with its unit. */
export const withCores = (milli) => [cores(milli), h("span", { class: "unit" }, " cores")];

/** A table for eyes and screen readers. columns: a text, or [text] for a column of numbers; rows: `tr` elements. */
export function table(caption, columns, rows, kind = "") {
  return h("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption }, h("table", { class: `list ${kind}` },
    h("caption", { class: "visually-hidden" }, caption),
    h("thead", {}, h("tr", {}, columns.map((name) => (Array.isArray(name) ? h("th", { class: "number", scope: "col" }, name[0]) : h("th", { scope: "col" }, name))))),
    h("tbody", {}, rows)));
}

/** A link to the page of a view, at a moment ("": live). */
export const linkTo = (path, at, ...children) => h("a", { href: `#${path}${at ? `${path.includes("?") ? "&" : "?"}at=${encodeURIComponent(at)}` : ""}` }, children);

export const nodeLink = (name, at) => linkTo(`/nodes/${encodeURIComponent(name)}`, at, name);

/** pod: {uid, namespace, name}. */
export const podLink = (pod, at) => linkTo(`/pods/${encodeURIComponent(pod.uid)}`, at, h("span", { class: "note" }, `${pod.namespace}/`), pod.name);

/** A text on one line, cut where there is no room. Pressing it shows the whole. */
export const cut = (text) => h("button", { type: "button", class: "cut", title: text, onclick: (event) => {
  event.stopPropagation();
  event.currentTarget.classList.toggle("open");
} }, text);

/** A part of a whole (0 to 1) as a lane, with a text beside it. */
export const shareLane = (ratio, tint, text) => h("div", { class: "share-lane" },
  h("span", { class: "lane" }, h("i", { css: { width: `${Math.min(1, ratio) * 100}%`, background: `var(--${tint})` } })), h("span", { class: "nowrap" }, text));

/** The id of a trace, as a link to its page in Jaeger if the projector knows the address. */
export function trace(id) {
  const jaeger = document.querySelector("meta[name=jaeger]").content.replace(/\/+$/, "");
  const short = h("code", { title: id }, id.slice(0, 16));
  return h("span", {}, "trace ", jaeger ? h("a", { href: `${jaeger}/trace/${id}`, target: "_blank", rel: "noreferrer" }, short) : short);
}
