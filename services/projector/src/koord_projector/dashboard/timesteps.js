// Whole times on an axis, in the zone of the page.
import { written } from "./zone.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [1, 2, 5, 10, 15, 30].map((each) => each * SECOND).concat([1, 2, 5, 10, 15, 30].map((each) => each * MINUTE), [1, 2, 3, 6, 12].map((each) => each * HOUR), [1, 2, 7, 14, 30, 90, 365].map((each) => each * DAY));

/** [time in milliseconds, label] of at most `most` whole times within a range: the day where it changes, else the time of day. */
export function inSteps([from, to], most) {
  const step = STEPS.find((each) => (to - from) / each <= most) ?? STEPS.at(-1);
  const shift = new Date(`${written(new Date(from)).replace(" ", "T")}Z`).getTime() - Math.floor(from / SECOND) * SECOND; // of the zone
  const found = [];
  let day = "";
  for (let time = Math.ceil((from + shift) / step) * step - shift; time <= to; time += step) {
    const [date, clock] = written(new Date(time)).split(" ");
    const isNew = date !== day;
    day = date;
    found.push([time, step >= DAY || (isNew && clock === "00:00:00") ? date : clock.slice(0, step < MINUTE ? 8 : 5)]);
  }
  return found;
}
