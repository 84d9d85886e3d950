// Nodes as cells of one canvas: 1,500 of them are drawn in a few milliseconds. Colour is the share that is taken.
import { color, fill, h } from "./dom.js";

const GAP = 2;
const LARGEST = 34;
const SMALLEST = 7;
const LOWEST = 150;
const FEW = 60;
const NAMED = 132; // width of a cell with a name, in pixels

/** cells: [{key, ratio (0..1, over 1: too much; null: no data), marked, alarming}]; ramp: "heat" or "green".
 *  describe(key) -> children of the tooltip; open(key) on click or Enter. */
export class HeatMap {
  constructor({ describe, open }) {
    this.describe = describe;
    this.open = open;
    this.cells = [];
    this.ramp = "heat";
    this.chosen = -1;
    this.canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "nodes" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.element = h("div", { class: "heat" }, this.canvas, this.tip);
    this.canvas.addEventListener("mousemove", (event) => this.#choose(this.#at(event.offsetX, event.offsetY)));
    this.canvas.addEventListener("mouseleave", () => this.#choose(-1));
    this.canvas.addEventListener("blur", () => this.#choose(-1));
    this.canvas.addEventListener("click", (event) => {
      const cell = this.cells[this.#at(event.offsetX, event.offsetY)];
      if (cell) this.open(cell.key);
    });
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.observer = new ResizeObserver(() => this.paint());
    this.observer.observe(this.element);
  }

  close() { this.observer.disconnect(); }

  show(cells, ramp, label) {
    this.cells = cells;
    this.ramp = ramp;
    this.canvas.setAttribute("aria-label", label);
    this.paint();
    if (this.chosen >= 0) this.#choose(Math.min(this.chosen, cells.length - 1));
  }

  paint() {
    const width = this.element.clientWidth;
    if (!width) return;
    this.#measure(width);
    const rows = Math.ceil(this.cells.length / this.columns);
    const height = Math.max(1, rows * this.pitch - GAP);
    const scale = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    const ramp = rampOf(this.ramp);
    const [long, size] = [this.wide - GAP, this.pitch - GAP];
    const [over, nodata, ink, panel, bad] = ["over", "nodata", "ink", "panel", "bad"].map(color);
    this.cells.forEach((cell, index) => {
      const x = (index % this.columns) * this.wide;
      const y = Math.floor(index / this.columns) * this.pitch;
      let under = panel;
      if (cell.ratio === null) {
        context.strokeStyle = nodata;
        context.lineWidth = 1;
        context.strokeRect(x + 0.5, y + 0.5, long - 1, size - 1);
      } else {
        context.fillStyle = cell.ratio > 1.0005 ? over : ramp(Math.max(0, cell.ratio));
        under = context.fillStyle; // as #rrggbb
        context.fillRect(x, y, long, size);
      }
      if (cell.alarming) {
        context.strokeStyle = bad;
        context.lineWidth = 2;
        context.strokeRect(x + 1, y + 1, long - 2, size - 2);
      }
      if (this.named) {
        context.font = "12px system-ui, sans-serif";
        context.fillStyle = readableOn(under);
        context.fillText(fitting(context, cell.key, long - 16), x + 8, y + size / 2 + 4);
      }
      if (cell.marked) { // a notch in the corner: the node takes no new pods
        context.fillStyle = panel;
        context.beginPath();
        context.moveTo(x + long, y + size * 0.35);
        context.lineTo(x + long, y + size);
        context.lineTo(x + long - size * 0.65, y + size);
        context.fill();
      }
      if (index === this.chosen) {
        context.strokeStyle = ink;
        context.lineWidth = 2;
        context.strokeRect(x, y, long, size);
      }
    });
  }

  // Few cells have names; of many, the largest square with which all fit into a pleasant height.
  #measure(width) {
    this.named = this.cells.length <= FEW;
    if (this.named) {
      this.columns = Math.max(1, Math.floor(width / (NAMED + GAP)));
      this.wide = this.cells.length > this.columns ? width / this.columns : NAMED + GAP;
      this.pitch = LARGEST + GAP;
      return;
    }
    const wanted = Math.max(LOWEST, Math.min(330, innerHeight * 0.36));
    let pitch = LARGEST + GAP;
    const fits = () => Math.ceil(this.cells.length / Math.floor(width / pitch)) * pitch <= wanted;
    while (pitch > SMALLEST + GAP && !fits()) pitch -= 1;
    this.columns = Math.max(1, Math.floor(width / pitch));
    this.pitch = this.cells.length > this.columns ? width / this.columns : pitch;
    this.wide = this.pitch;
  }

  #at(x, y) {
    const column = Math.floor(x / this.wide);
    const index = Math.floor(y / this.pitch) * this.columns + column;
    return column < this.columns && index < this.cells.length ? index : -1;
  }

  #choose(index) {
    if (index === this.chosen && this.tip.hidden === index < 0) return;
    this.chosen = index;
    this.tip.hidden = index < 0;
    if (index >= 0) {
      fill(this.tip, this.describe(this.cells[index].key));
      const x = (index % this.columns) * this.wide;
      const y = Math.floor(index / this.columns) * this.pitch;
      const room = this.element.clientWidth - x;
      const wide = this.tip.offsetWidth;
      this.tip.style.left = `${room > wide + this.wide + 12 ? x + this.wide + 6 : Math.max(0, x - wide - 6)}px`;
      this.tip.style.top = `${y + this.pitch + 4}px`;
    }
    this.paint();
  }

  #key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns };
    if (event.key === "Enter" && this.cells[this.chosen]) this.open(this.cells[this.chosen].key);
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = this.chosen < 0 ? 0 : this.chosen + steps[event.key];
    if (next >= 0 && next < this.cells.length) this.#choose(next);
  }
}

/** The legend of a ramp, 0 to 100 %. */
export function rampLegend(name) {
  const stops = [0, 1, 2, 3].map((step) => `var(--${name}${step})`).join(", ");
  return h("span", { class: "legend" },
    h("span", {}, "0 %"), h("span", { class: "ramp", css: { background: `linear-gradient(90deg, ${stops})` } }), h("span", {}, "100 %"));
}

function rampOf(name) {
  const stops = [0, 1, 2, 3].map((step) => channels(color(`${name}${step}`)));
  const cache = new Map();
  return (ratio) => {
    const key = Math.round(Math.min(1, ratio) * 60);
    if (!cache.has(key)) {
      const place = (key / 60) * 3;
      const low = Math.min(2, Math.floor(place));
      const mixed = stops[low].map((value, index) => Math.round(value + (stops[low + 1][index] - value) * (place - low)));
      cache.set(key, `rgb(${mixed.join(" ")})`);
    }
    return cache.get(key);
  };
}

/** A text, shortened until it fits into a width. */
function fitting(context, text, width) {
  let shown = text;
  while (shown.length > 1 && context.measureText(shown).width > width) shown = `${shown.slice(0, -2)}…`;
  return shown;
}

/** Black or white, whichever is readable on a colour ("#rrggbb"; a canvas gives its fill in this form). */
function readableOn(fill) {
  const [red, green, blue] = channels(fill);
  return red * 0.299 + green * 0.587 + blue * 0.114 > 140 ? "#111820" : "#ffffff";
}

const channels = (hex) => [1, 3, 5].map((start) => Number.parseInt(hex.slice(start, start + 2), 16));
