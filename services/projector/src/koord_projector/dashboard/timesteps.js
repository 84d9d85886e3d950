// Whole times on an axis, in the zone of the page.
import { written } from "./zone.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [1, 2, 5, 10, 15, 30].map((each) => each * SECOND).concat([1, 2, 5, 10, 15, 30].map((each) => each * MINUTE), [1, 2, 3, 6, 12].map((each) => each * HOUR), [1, 2, 7, 14, 30, 90, 365].map((each) => each * DAY));

// By how much the clock of the zone is ahead of UTC at a time.
const shiftAt = (time) => new Date(`${written(new Date(time)).replace(" ", "T")}Z`).getTime() - Math.floor(time / SECOND) * SECOND;

/** [time in milliseconds, label] of at most `most` whole times within a range: the day where it changes, else the time of day. */
export function inSteps([from, to], most) {
  const step = STEPS.find((each) => (to - from) / each <= most) ?? STEPS.at(-1);
  const found = [];
  let day = "";
  let shift = shiftAt(from);
  for (let local = Math.ceil((from + shift) / step) * step; ; local += step) {
    shift = shiftAt(local - shift); // summer time may have begun or ended since the last step
    const time = local - shift;
    if (!(time <= to)) break;
    if (shiftAt(time) !== shift) continue; // the clock leaves this time out
    const [date, clock] = written(new Date(time)).split(" ");
    const isNew = date !== day;
    day = date;
    found.push([time, step >= DAY || (isNew && clock === "00:00:00") ? date : clock.slice(0, step < MINUTE ? 8 : 5)]);
  }
  return found;
}
