// Numbers and times as people read them.
import { written } from "./zone.js";

export const cores = (milli) => {
  const value = milli / 1000;
  return value >= 100 ? grouped(Math.round(value)) : trimmed(value, value >= 10 ? 1 : 2);
};

export function bytes(amount) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let step = 0;
  let value = amount;
  while (value >= 1024 && step < units.length - 1) { value /= 1024; step += 1; }
  return `${trimmed(value, value >= 100 ? 0 : 1)} ${units[step]}`;
}

export const grouped = (number) => Math.round(number).toLocaleString("en-US");

export const share = (part, whole) => (whole > 0 ? part / whole : 0);

export const percent = (ratio) => `${Math.round(ratio * 100)} %`;

const trimmed = (value, digits) => String(Number(value.toFixed(digits)));

/** Date and time of an RFC 3339 text in the zone of the page (zone.js); "" for "". */
export function moment(text, withDate = true) {
  if (!text) return "";
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return text;
  return withDate ? written(at) : written(at).slice(11);
}

/** Time between two RFC 3339 texts: "340 ms", "2.4 s", "3 min 5 s", "2 h 4 min"; as `koord` writes it. */
export function between(from, to) {
  const seconds = (new Date(to) - new Date(from)) / 1000;
  if (!Number.isFinite(seconds)) return "";
  return `${seconds < 0 ? "−" : ""}${duration(Math.abs(seconds))}`;
}

/** A length of time in seconds, in the unit that fits. */
export function duration(seconds) {
  if (Math.round(seconds * 1000) < 1000) return `${Math.round(seconds * 1000)} ms`;
  if (Math.round(seconds * 10) < 600) return `${(Math.round(seconds * 10) / 10).toFixed(1)} s`;
  if (Math.round(seconds) < 3600) return parts(Math.round(seconds), "min", "s");
  return parts(Math.round(seconds / 60), "h", "min");
}

const parts = (amount, unit, below) =>
  `${Math.floor(amount / 60)} ${unit}${amount % 60 ? ` ${amount % 60} ${below}` : ""}`;

/** A length of time in seconds, coarse, for ages: "40 s", "8 min", "3 h", "6 days". */
export function age(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

/** "1 pod", "3 pods". */
export const counted = (number, noun) => `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;

/** An amount of a resource in its own unit. */
export function amount(resource, value) {
  if (resource === "cpu" || resource.endsWith("-cpu")) return `${cores(value)} cores`;
  if (resource.endsWith("memory") || resource.endsWith("storage")) return bytes(value);
  return grouped(value);
}
