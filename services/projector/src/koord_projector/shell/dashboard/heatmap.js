// Nodes as cells of one canvas: 1,500 of them are drawn in a few milliseconds. Colour is the share that is taken.
import { color, fill, h } from "./dom.js";

const GAP = 2;
const LARGEST = 34;
const SMALLEST = 7;
const LOWEST = 150;

/** cells: [{key, ratio (0..1, over 1: too much; null: no data), marked}]; ramp: "heat" or "green".
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
    const size = this.pitch - GAP;
    const [over, nodata, ink, panel] = [color("over"), color("nodata"), color("ink"), color("panel")];
    this.cells.forEach((cell, index) => {
      const x = (index % this.columns) * this.pitch;
      const y = Math.floor(index / this.columns) * this.pitch;
      if (cell.ratio === null) {
        context.strokeStyle = nodata;
        context.lineWidth = 1;
        context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
      } else {
        context.fillStyle = cell.ratio > 1.0005 ? over : ramp(Math.max(0, cell.ratio));
        context.fillRect(x, y, size, size);
      }
      if (cell.marked) { // a notch in the corner: the node takes no new pods
        context.fillStyle = panel;
        context.beginPath();
        context.moveTo(x + size, y + size * 0.35);
        context.lineTo(x + size, y + size);
        context.lineTo(x + size * 0.35, y + size);
        context.fill();
      }
      if (index === this.chosen) {
        context.strokeStyle = ink;
        context.lineWidth = 2;
        context.strokeRect(x, y, size, size);
      }
    });
  }

  // The largest square with which all cells fit into a pleasant height.
  #measure(width) {
    const wanted = Math.max(LOWEST, Math.min(330, innerHeight * 0.36));
    let pitch = LARGEST + GAP;
    const fits = () => Math.ceil(this.cells.length / Math.floor(width / pitch)) * pitch <= wanted;
    while (pitch > SMALLEST + GAP && !fits()) pitch -= 1;
    this.columns = Math.max(1, Math.floor(width / pitch));
    this.pitch = this.cells.length > this.columns ? width / this.columns : pitch;
  }

  #at(x, y) {
    const column = Math.floor(x / this.pitch);
    const index = Math.floor(y / this.pitch) * this.columns + column;
    return column < this.columns && index < this.cells.length ? index : -1;
  }

  #choose(index) {
    if (index === this.chosen && this.tip.hidden === index < 0) return;
    this.chosen = index;
    this.tip.hidden = index < 0;
    if (index >= 0) {
      fill(this.tip, this.describe(this.cells[index].key));
      const x = (index % this.columns) * this.pitch;
      const y = Math.floor(index / this.columns) * this.pitch;
      const room = this.element.clientWidth - x;
      const wide = this.tip.offsetWidth;
      this.tip.style.left = `${room > wide + this.pitch + 12 ? x + this.pitch + 6 : Math.max(0, x - wide - 6)}px`;
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

const channels = (hex) => [1, 3, 5].map((start) => Number.parseInt(hex.slice(start, start + 2), 16));
