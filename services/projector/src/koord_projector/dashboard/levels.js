// Nodes as columns of one canvas, the least used first: how much each uses, between two thresholds.
import { color, fill, h } from "./dom.js";

const HEIGHT = 210;
const TOP = 14;
const COLORS = { under: "c3", target: "heat1", over: "over" };

/** bars: [{key, ratio (null: no data), kind: "under" | "target" | "over", marked}]; lines: [{ratio, label}].
 *  describe(key) -> children of the tooltip; open(key) on click or Enter. */
export class Levels {
  constructor({ describe, open }) {
    this.describe = describe;
    this.open = open;
    this.bars = [];
    this.lines = [];
    this.chosen = -1;
    this.canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "nodes" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.element = h("div", { class: "heat levels" }, this.canvas, this.tip);
    this.canvas.addEventListener("mousemove", (event) => this.#choose(this.#at(event.offsetX)));
    this.canvas.addEventListener("mouseleave", () => this.#choose(-1));
    this.canvas.addEventListener("blur", () => this.#choose(-1));
    this.canvas.addEventListener("click", (event) => this.#open(this.#at(event.offsetX)));
    this.canvas.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.#open(this.chosen);
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.#choose(Math.max(0, Math.min(this.bars.length - 1, this.chosen + step)));
    });
    this.observer = new ResizeObserver(() => this.paint());
    this.observer.observe(this.element);
  }

  close() { this.observer.disconnect(); }

  show(bars, lines, label) {
    this.bars = [...bars].sort((one, other) => (one.ratio ?? -1) - (other.ratio ?? -1));
    this.lines = lines;
    this.canvas.setAttribute("aria-label", label);
    this.paint();
  }

  paint() {
    const width = this.element.clientWidth;
    if (!width || this.bars.length === 0) return;
    const scale = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(HEIGHT * scale);
    this.canvas.style.height = `${HEIGHT}px`;
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    const most = 1.1 * Math.max(0.1, ...this.lines.map((line) => line.ratio), ...this.bars.map((bar) => bar.ratio ?? 0));
    const place = (ratio) => HEIGHT - (ratio / most) * (HEIGHT - TOP);
    this.pitch = Math.min(48, width / this.bars.length);
    const gap = this.pitch > 4 ? 2 : 0;
    this.bars.forEach((bar, index) => {
      const x = index * this.pitch;
      const y = place(bar.ratio ?? 0);
      context.fillStyle = color(bar.ratio === null ? "nodata" : COLORS[bar.kind]);
      context.fillRect(x, Math.min(y, HEIGHT - 2), Math.max(1, this.pitch - gap), Math.max(2, HEIGHT - y));
      if (bar.marked) { // pods may leave it in this round
        context.fillStyle = color("ink");
        context.fillRect(x, Math.max(0, y - 5), Math.max(1, this.pitch - gap), 3);
      }
      if (index === this.chosen) {
        context.strokeStyle = color("ink");
        context.lineWidth = 2;
        context.strokeRect(x, y, Math.max(2, this.pitch - gap), HEIGHT - y);
      }
    });
    context.font = "11px sans-serif";
    for (const line of this.lines) {
      const y = place(line.ratio);
      context.strokeStyle = context.fillStyle = color("ink");
      context.setLineDash([4, 4]);
      context.beginPath();
      context.moveTo(0, y);
      context.lineTo(width, y);
      context.stroke();
      context.fillText(line.label, 4, y - 4);
    }
    context.setLineDash([]);
  }

  #at(x) {
    const index = Math.floor(x / (this.pitch ?? 1));
    return index < this.bars.length ? index : -1;
  }

  #open(index) {
    if (this.bars[index]) this.open(this.bars[index].key);
  }

  #choose(index) {
    if (index === this.chosen && this.tip.hidden === index < 0) return;
    this.chosen = index;
    this.tip.hidden = index < 0;
    if (this.bars[index]) {
      fill(this.tip, this.describe(this.bars[index].key));
      const x = index * this.pitch;
      const wide = this.tip.offsetWidth;
      this.tip.style.left = `${this.element.clientWidth - x > wide + this.pitch + 12 ? x + this.pitch + 6 : Math.max(0, x - wide - 6)}px`;
      this.tip.style.top = "16px";
    }
    this.paint();
  }
}
