// The read API. Every answer names the moment that it is about.

/** JSON of a path; parameters that are null or "" are left out. Throws Error with the server's own sentence. */
export async function get(path, parameters = {}, signal = undefined) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  const response = await fetch(url, { signal, headers: { accept: "application/json" } });
  if (response.status === 401) location.assign("/auth/login");
  if (!response.ok) {
    const text = await response.text();
    let sentence = text.slice(0, 300);
    try { sentence = JSON.parse(text).error ?? sentence; } catch { /* not JSON: the text itself */ }
    throw Object.assign(new Error(`${response.status}: ${sentence}`), { status: response.status });
  }
  return response.json();
}

const PAGE = 500;

/** All aggregates of a kind whose ids begin with `prefix`, at one moment: {found, shown (the moment)}. */
export async function objects(kind, at, signal, prefix = "") {
  const found = [];
  let after = "";
  let asked = at;
  for (;;) {
    const page = await get(`/api/objects/${kind}`, { at: asked, after, prefix, limit: PAGE }, signal);
    found.push(...page.objects.filter((entry) => entry.state !== null));
    after = page.after;
    if (after === null) return { found, shown: page.moment };
    asked = String(page.moment.position); // every page shows the same position
  }
}
