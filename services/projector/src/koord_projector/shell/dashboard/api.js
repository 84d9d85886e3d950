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
