// The zone of all times on the page: UTC, as `koord` writes them, or the zone of the browser.
const KEY = "koord-zone";
let isUtc = localStorage.getItem(KEY) !== "local";

/** Name of the zone at a time: "UTC", "GMT+1". */
export function zoneName(at = new Date()) {
  if (isUtc) return "UTC";
  return new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(at).find((part) => part.type === "timeZoneName").value;
}

export function switchZone() {
  isUtc = !isUtc;
  localStorage.setItem(KEY, isUtc ? "utc" : "local");
}

/** "2026-11-20 07:30:05" in the zone. */
export function written(at) {
  const shifted = isUtc ? at : new Date(at.getTime() - at.getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 19).replace("T", " ");
}

/** Date of Unix seconds whose local fields are those of the zone, for charts. */
export function zoned(seconds) {
  const at = new Date(seconds * 1000);
  return isUtc ? new Date(at.getTime() + at.getTimezoneOffset() * 60_000) : at;
}
