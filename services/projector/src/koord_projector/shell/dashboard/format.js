// Numbers and times as people read them.

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

/** Local date and time of an RFC 3339 text; "" for "". */
export function moment(text, withDate = true) {
  if (!text) return "";
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return text;
  const clock = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return withDate ? `${at.toLocaleDateString("en-CA")} ${clock}` : clock;
}

/** Time between two RFC 3339 texts, e.g. "340 ms", "2.4 s", "3 min 5 s". */
export function between(from, to) {
  const seconds = (new Date(to) - new Date(from)) / 1000;
  if (!Number.isFinite(seconds)) return "";
  const sign = seconds < 0 ? "−" : "";
  const size = Math.abs(seconds);
  if (size < 1) return `${sign}${Math.round(size * 1000)} ms`;
  if (size < 60) return `${sign}${trimmed(size, 1)} s`;
  if (size < 3600) return `${sign}${Math.floor(size / 60)} min ${Math.round(size % 60)} s`;
  return `${sign}${Math.floor(size / 3600)} h ${Math.round((size % 3600) / 60)} min`;
}

/** An amount of a resource in its own unit. */
export function amount(resource, value) {
  if (resource === "cpu" || resource.endsWith("-cpu")) return `${cores(value)} cores`;
  if (resource.endsWith("memory") || resource.endsWith("storage")) return bytes(value);
  return grouped(value);
}
