// The scale below the slider: how much was written when, the time, and what changed the cluster's ways.
import { color, h } from "./dom.js";
import { inSteps } from "./timesteps.js";

const HEIGHT = 30;
const BARS = 14; // height of the histogram
const INSET = 8; // the middle of the slider's thumb is so far from its end at both ends
const NEAR = 5; // pixels within which the pointer means a mark
const TINTS = { configuration: "c4", eviction: "c5", disturbance: "c2" };

/** By how much the positions of a series grew in each of `bars` equal parts of a range. What was written before its first row is in none. */
export function factsPerBar({ time, positions }, [from, to], bars) {
  const sums = new Array(bars).fill(0);
  for (let index = 1; index < time.length; index += 1) {
    const place = Math.floor(((time[index] * 1000 - from) / (to - from)) * bars);
    sums[Math.max(0, Math.min(bars - 1, place))] += positions[index] - positions[index - 1];
  }
  return sums;
}

export class Timeline {
  /** go(position) on a press of a mark. */
  constructor(go) {
    this.go = go;
    this.range = null;
    this.series = null;
    this.marks = [];
    this.canvas = h("canvas", { class: "timeline", "aria-hidden": "true" });
    this.canvas.addEventListener("mousemove", (event) => {
      const mark = this.#near(event.offsetX);
      this.canvas.title = mark ? `${mark.kind}: ${mark.summary}` : "";
      this.canvas.style.setProperty("cursor", mark ? "pointer" : "default");
    });
    this.canvas.addEventListener("click", (event) => {
      const mark = this.#near(event.offsetX);
      if (mark) this.go(mark.seq);
    });
    new ResizeObserver(() => this.paint()).observe(this.canvas);
  }

  /** range: [first, last] in milliseconds. */
  show(range, series = this.series, marks = this.marks) {
    this.range = range;
    this.series = series;
    this.marks = marks;
    this.paint();
  }

  /** The mark before (-1) or after (1) a position, or undefined. */
  neighbour(position, step) {
    return step < 0 ? this.marks.findLast((mark) => mark.seq < position) : this.marks.find((mark) => mark.seq > position);
  }

  paint() {
    const width = this.canvas.clientWidth;
    if (!width || !this.range || this.range[1] <= this.range[0]) return;
    const scale = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(HEIGHT * scale);
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    this.#bars(context, width);
    context.font = "10.5px system-ui, sans-serif";
    context.textAlign = "center";
    context.fillStyle = color("muted");
    for (const [time, label] of inSteps(this.range, Math.max(1, Math.floor(width / 90)))) {
      const x = this.#x(time, width);
      context.fillRect(x, BARS, 1, 3);
      const half = context.measureText(label).width / 2;
      if (x > half && x < width - half) context.fillText(label, x, HEIGHT - 2);
    }
    for (const mark of this.marks) {
      context.fillStyle = color(TINTS[mark.kind]);
      context.fillRect(this.#x(new Date(mark.occurred_at).getTime(), width) - 1, 0, 2, BARS);
    }
  }

  #bars(context, width) {
    if (!this.series) return;
    const sums = factsPerBar(this.series, this.range, Math.max(1, Math.floor((width - 2 * INSET) / 3)));
    const most = Math.max(...sums);
    context.fillStyle = color("nodata");
    sums.forEach((sum, index) => {
      const high = sum > 0 ? Math.max(1, Math.sqrt(sum / most) * BARS) : 0; // a root: bursts leave the rest visible
      context.fillRect(INSET + (index * (width - 2 * INSET)) / sums.length, BARS - high, 2, high);
    });
  }

  #x(time, width) {
    return INSET + ((time - this.range[0]) / (this.range[1] - this.range[0])) * (width - 2 * INSET);
  }

  #near(x) {
    if (!this.range) return undefined;
    const distance = (mark) => Math.abs(this.#x(new Date(mark.occurred_at).getTime(), this.canvas.clientWidth) - x);
    const near = this.marks.filter((mark) => distance(mark) <= NEAR);
    return near.sort((one, other) => distance(one) - distance(other))[0];
  }
}
