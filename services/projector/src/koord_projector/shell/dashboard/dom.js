// Elements from values. Text always becomes a text node, so nothing that a user named can become markup.

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

/** Puts new children in the place of the old ones. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
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
