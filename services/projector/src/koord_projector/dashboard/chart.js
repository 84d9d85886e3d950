// Time series by uPlot (vendor/), in the colours of the theme.
import { color, h } from "./dom.js";
import { written, zoned, zoneName } from "./zone.js";

const HOUR = 3600;
const DAY = 24 * HOUR;
// [from this step on, text, and what is added below it when the day changed (columns 3 to 8 of uPlot's table)]
const TIME_LABELS = [
  [DAY, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
];
const TIME_SPACE = 92; // pixels from one time to the next: a date is some 75 wide in the axis' font
const WHOLE_STEPS = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();
const BINARY_STEPS = Array.from({ length: 56 }, (_, power) => 2 ** power);

/** What holds at each of `times`: the newest of `values` (at the times `from`) up to it, null before the first and after `last`. */
export function valuesAt(times, from, values, last = Infinity) {
  let next = 0;
  return times.map((time) => {
    while (next < from.length && from[next] <= time) next += 1;
    return next === 0 || time > last ? null : values[next - 1];
  });
}

// Index of the newest time at which every line that has values has one.
function newestOf(times, lines) {
  const drawn = lines.filter((line) => line.values.some((value) => value !== null));
  for (let index = times.length - 1; index >= 0; index -= 1) if (drawn.every((line) => line.values[index] !== null)) return index;
  return times.length > 0 ? times.length - 1 : null;
}

/** Totals over time up to those of a moment, which are the last ones: what a tile and the end of a line say is one number. */
export class Totals {
  /** series: answer of /api/series; cluster: answer of /api/cluster. */
  constructor(series, cluster) {
    this.series = series;
    this.cluster = cluster;
    const at = cluster.moment.live ? Infinity : new Date(cluster.moment.occurred_at).getTime() / 1000;
    const before = [...new Set([...series.time, ...series.usage_time])].filter((time) => time < at).sort((one, other) => one - other);
    const newest = new Date(cluster.moment.occurred_at || 0).getTime() / 1000;
    this.times = before.length > 0 ? [...before, cluster.moment.live ? Math.max(newest, before.at(-1) + 1) : at] : [];
  }

  /** A column of the series; `now`: its value at the moment. */
  held(name, now) { return this.#to(valuesAt(this.times, this.series.time, this.series.columns[name]), now); }

  used(name, now) {
    const { usage_time: times, usage } = this.series;
    return this.#to(valuesAt(this.times, times, usage[name], times.at(-1)), this.cluster.nodes_reporting > 0 ? now : null);
  }

  #to(values, now) { return values.length > 0 ? [...values.slice(0, -1), now] : []; }
}

/**
 * lines: [{label, color (name of a theme colour), values, width?, dash?, fill?, stepped?}]; times in seconds, ascending.
 * marks: [{time, label, color}], lines across the plot at moments. isNow: the last time is the moment that the page shows, so
 * the legend tells its values, also if one is unknown.
 */
export class Chart {
  constructor({ height = 190, format, steps = undefined }) {
    this.height = height;
    this.steps = { bytes: BINARY_STEPS, counts: WHOLE_STEPS }[steps]; // where ticks may be; others: anywhere
    this.format = format;
    this.element = h("div", { class: "chart" });
    this.plot = null;
    this.shape = "";
    this.observer = new ResizeObserver(() => this.plot?.setSize({ width: this.#width(), height: this.height }));
    this.observer.observe(this.element);
  }

  close() {
    this.observer.disconnect();
    this.plot?.destroy();
  }

  show(times, lines, marks = [], isNow = false) {
    this.last = [times, lines, marks, isNow];
    this.marks = marks;
    this.newest = isNow ? times.length - 1 : newestOf(times, lines);
    const data = [times, ...lines.map((line) => line.values)];
    const shape = lines.map((line) => line.label).join("|");
    if (this.plot && shape === this.shape) this.plot.setData(data);
    else this.#make(data, lines, shape);
    this.#tell(this.plot);
  }

  // Without a pointer over the plot, the legend tells the newest values.
  #tell(plot) {
    if (plot.cursor.idx === null || plot.cursor.idx === undefined) plot.setLegend({ idx: this.newest }, false);
  }

  repaint() {
    if (!this.last) return;
    this.shape = ""; // drawn anew, in the colours of now
    this.show(...this.last);
  }

  #drawMarks(plot) {
    const { ctx, bbox } = plot;
    const scale = devicePixelRatio;
    ctx.save();
    ctx.font = `${10 * scale}px sans-serif`;
    let labelled = -Infinity;
    for (const mark of [...(this.marks ?? [])].sort((one, other) => one.time - other.time)) {
      const x = plot.valToPos(mark.time, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = color(mark.color);
      ctx.lineWidth = scale;
      ctx.setLineDash([2 * scale, 3 * scale]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      if (x - labelled > 60 * scale) { // labels that would cover each other are left out; the table has them all
        ctx.fillText(mark.label, x + 3 * scale, bbox.top + 10 * scale);
        labelled = x;
      }
    }
    ctx.restore();
  }

  #width() { return Math.max(200, this.element.clientWidth); }

  #make(data, lines, shape) {
    this.plot?.destroy();
    this.shape = shape;
    const axis = { stroke: color("muted"), grid: { stroke: color("soft"), width: 1 }, ticks: { stroke: color("line") } };
    this.plot = new uPlot({
      width: this.#width(),
      height: this.height,
      padding: [null, TIME_SPACE / 2, null, null], // half a label of the last time
      cursor: { points: { size: 7 }, drag: { x: false, y: false } },
      legend: { live: true },
      tzDate: zoned,
      hooks: { draw: [(plot) => this.#drawMarks(plot)], setCursor: [(plot) => this.#tell(plot)] },
      scales: { y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.08 : 1] } },
      axes: [{ ...axis, space: TIME_SPACE, values: TIME_LABELS }, { ...axis, size: 66, incrs: this.steps, values: (_plot, ticks) => ticks.map(this.format) }],
      series: [
        { label: zoneName(), value: (_plot, time) => (time ? written(new Date(time * 1000)).slice(11) : "") },
        ...lines.map((line) => ({
          label: line.label,
          stroke: color(line.color),
          width: line.width ?? 2,
          dash: line.dash,
          fill: line.fill ? `${color(line.color)}26` : undefined,
          paths: line.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
          points: { show: false },
          value: (_plot, value) => (value === null || value === undefined ? "–" : this.format(value)),
        })),
      ],
    }, data, this.element);
  }
}
