// Elastic quotas as a tree: what each uses of what it may use now, between its min and its max.
import { objects } from "../api.js";
import { fill, h } from "../dom.js";
import { swatch } from "../explanation.js";
import { amount, counted } from "../format.js";

const PARENT = "quota.scheduling.koordinator.sh/parent";
const ROOT = "koordinator-root-quota";
const PREFIX = "elasticquotas=";
const SUFFIXES = { k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };

export async function quotasView(root, { at, signal }) {
  const [stated, written] = await Promise.all([objects("quota", at, signal), objects("customspec", at, signal, PREFIX)]);
  const quotas = tree(written.found, new Map(stated.found.map((entry) => [entry.state?.status?.name, entry.state?.status])));
  const most = {};
  for (const quota of quotas) for (const [name, value] of Object.entries(quota.max)) most[name] = Math.max(most[name] ?? 0, value, quota.runtime[name] ?? 0, quota.used[name] ?? 0);
  fill(root, h("section", { class: "panel" },
    h("div", { class: "bar" }, h("h2", {}, counted(quotas.length, "quota")),
      h("div", { class: "keys" }, h("span", {}, swatch("c2"), "used"), h("span", {}, swatch("c3"), "may use now (runtime)"), h("span", {}, swatch("c1"), "min"), h("span", {}, "the lane ends at max"))),
    quotas.length === 0 ? h("p", { class: "empty" }, "There is no ElasticQuota. ", h("code", {}, "koord apply -f FILE"), " makes one; docs/guide/quotas-and-gangs.md shows such a file.")
      : h("div", { class: "quotas" }, quotas.map((quota) => row(quota, most)))));
  return written.shown;
}

/** Parents before their children, siblings by name; depth counted from the root. */
function tree(entries, statuses) {
  const found = entries.filter((entry) => entry.state.object).map(({ state: { object } }) => {
    const status = statuses.get(object.metadata.name) ?? {};
    return {
      name: object.metadata.name, parent: object.metadata.labels?.[PARENT] ?? ROOT,
      min: amounts(object.spec?.min), max: amounts(object.spec?.max),
      used: status.used ?? {}, runtime: status.runtime ?? {}, request: status.request ?? {},
    };
  });
  const names = new Set(found.map((quota) => quota.name));
  const below = (parent, depth) => found
    .filter((quota) => (names.has(quota.parent) ? quota.parent : ROOT) === parent)
    .sort((one, other) => (one.name < other.name ? -1 : 1))
    .flatMap((quota) => [{ ...quota, depth }, ...(depth < found.length && quota.name !== parent ? below(quota.name, depth + 1) : [])]);
  return below(ROOT, 0);
}

function row(quota, most) {
  const resources = Object.keys(quota.max).sort();
  return h("div", { class: "quota", css: { "padding-left": `${quota.depth * 24}px` } },
    h("b", {}, quota.name),
    h("div", { class: "lanes" }, resources.map((name) => {
      const used = quota.used[name] ?? 0, runtime = quota.runtime[name] ?? 0, min = quota.min[name] ?? 0, max = quota.max[name];
      const percent = (value) => `${(100 * value) / Math.max(1, most[name])}%`;
      const text = `used ${amount(name, used)} of ${amount(name, runtime)}, asks for ${amount(name, quota.request[name] ?? 0)}, min ${amount(name, min)}, max ${amount(name, max)}`;
      return [h("span", { class: "note" }, name),
        h("span", { class: "quota-lane", role: "img", "aria-label": `${quota.name} ${name}: ${text}`, css: { width: percent(max) } },
          h("i", { class: "runtime", css: { width: share(runtime, max) } }),
          h("i", { class: used > runtime ? "used over" : "used", css: { width: share(used, max) } }),
          min > 0 && h("i", { class: "min", css: { left: share(min, max) } })),
        h("span", { class: "note" }, text)];
    })));
}

const share = (value, whole) => `${Math.min(100, (100 * value) / Math.max(1, whole))}%`;

/** Resource list as written -> milli-cores for cpu, whole units otherwise. */
function amounts(list) {
  return Object.fromEntries(Object.entries(list ?? {}).map(([name, text]) => [name, parsed(String(text)) * (name === "cpu" ? 1000 : 1)]));
}

function parsed(text) {
  const [, digits, suffix] = /^([-+0-9.eE]*[0-9.])([a-zA-Z]*)$/.exec(text) ?? [null, "0", ""];
  return Number(digits) * (suffix === "m" ? 1e-3 : SUFFIXES[suffix] ?? 1);
}
