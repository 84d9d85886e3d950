// Descheduling: the nodes as the last round saw them, migrations and drains in flight, limits, the rounds before.
import { get } from "../api.js";
import { Chart } from "../chart.js";
import { fill, h, segments } from "../dom.js";
import { swatch } from "../explanation.js";
import { between, duration, grouped, moment, percent, share } from "../format.js";
import { Levels } from "../levels.js";

const ROUNDS = 60;
const PAGE = 500;
const RESOURCES = { cpu: "CPU", memory: "Memory" };
const ENDED = ["Succeeded", "Failed", "Aborted"];
const PLANS = { reserving: "Reserving places", moving: "Moving", holding: "Holding GPUs for the gang", done: "Done", rolled_back: "Rolled back", incomplete: "Incomplete" };
const LIMITS = {
  max_migrating_globally: "migrations in the cluster", max_migrating_per_node: "migrations per node",
  max_migrating_per_namespace: "migrations per namespace", max_migrating_per_workload: "migrations per workload",
  max_unavailable_per_workload: "unavailable pods per workload",
  object_limiter: "evictions per workload over time", maxNoOfPodsToEvictPerNode: "evictions per node and round",
  maxNoOfPodsToEvictPerNamespace: "evictions per namespace and round", maxNoOfPodsToEvictTotal: "evictions per round",
};

export async function deschedulingView(root, { at, signal, go }) {
  root.kept ??= build(root, go);
  const page = root.kept;
  page.at = at;
  const answer = await get("/api/rounds", { at, limit: ROUNDS }, signal);
  const moments = { at: at ? String(answer.moment.position) : at };
  const [nodes, plans, migrations, drains] = await Promise.all([
    get("/api/nodes", moments, signal), all("repack", moments, signal), all("migration", moments, signal), all("drain", moments, signal)]);
  Object.assign(page, { answer, nodes: new Map(nodes.nodes.map((node) => [node.name, node])), plans, migrations, drains });
  page.paint();
  return answer.moment;
}

/** States of all aggregates of one kind. */
async function all(kind, { at }, signal) {
  const states = [];
  let after = "";
  for (;;) {
    const page = await get(`/api/objects/${kind}`, { at, after, limit: PAGE }, signal);
    states.push(...page.objects.map((each) => ({ id: each.id, ...each.state })));
    if (page.after === null) return states;
    after = page.after;
  }
}

function build(root, go) {
  const page = { pool: 0, resource: "cpu", node: "", go };
  page.bar = h("div", { class: "bar" });
  page.levels = new Levels({ describe: (name) => describe(page, name), open: (name) => choose(page, name) });
  page.keys = h("div", { class: "keys" });
  page.note = h("p", { class: "empty" });
  page.hot = h("section", { class: "panel", hidden: true });
  page.chart = new Chart({ format: percent });
  page.lists = h("div", { class: "stack" });
  page.paint = () => paint(page);
  page.repaint = () => { page.levels.paint(); page.chart.repaint(); };
  page.close = () => { page.levels.close(); page.chart.close(); };
  fill(root, h("div", { class: "stack" },
    h("section", { class: "panel", "aria-label": "Nodes of the last round" }, page.bar, page.levels.element, page.note, page.keys), page.hot, page.lists));
  return page;
}

const poolOf = (page) => page.answer.round?.classified?.[page.pool] ?? page.answer.round?.classified?.[0];

function ratioOf(page, pool, name) {
  const node = page.nodes.get(name);
  if (!node) return null;
  const [used, whole] = page.resource === "cpu" ? [pool.by_requests ? node.cpu_requested : node.cpu_used, node.cpu_milli]
    : [pool.by_requests ? node.memory_requested : node.memory_used, node.memory_bytes];
  return used === null ? null : share(used, whole);
}

function paint(page) {
  const { answer } = page;
  const pool = poolOf(page);
  page.levels.element.hidden = page.keys.hidden = !pool;
  page.note.hidden = Boolean(pool);
  const last = answer.rounds[0];
  fill(page.note, last ? "No plugin of this configuration compares nodes." : ["There was no round up to this moment. ", h("code", {}, "koord up --descheduler FILE"), " starts a descheduler."]);
  fill(page.bar, h("h2", {}, "Nodes of the last round"),
    last && h("span", { class: "note" }, `${moment(last.occurred_at)} · ${grouped(answer.round.nodes)} nodes in ${duration(last.seconds)}${answer.round.is_dry_run ? " · dry run" : ""}`),
    (answer.round?.classified?.length ?? 0) > 1 && segments("Pool", answer.round.classified.map((each, index) => [index, poolName(each)]), page.pool, (value) => { page.pool = value; paint(page); }),
    pool && segments("Resource", Object.entries(RESOURCES), page.resource, (value) => { page.resource = value; paint(page); }));
  if (pool) paintPool(page, pool);
  fill(page.lists, limitsPanel(page), plansPanel(page), migrationsPanel(page), drainsPanel(page), roundsPanel(page));
}

const poolName = (pool) => (["", "__default_node_pool__"].includes(pool.pool ?? "") ? pool.plugin : `${pool.plugin} ${pool.pool}`);

function paintPool(page, pool) {
  const kinds = new Map([...(pool.under ?? []).map((name) => [name, "under"]), ...(pool.over ?? []).map((name) => [name, "over"])]);
  const acted = new Set(pool.acted_on ?? []);
  const bars = [...page.nodes.keys()].map((name) => ({ key: name, ratio: ratioOf(page, pool, name), kind: kinds.get(name) ?? "target", marked: acted.has(name) }));
  const lines = pool.is_deviation ? [] : [["low", pool.low], ["high", pool.high]]
    .filter(([, limits]) => limits?.[page.resource] !== undefined)
    .map(([label, limits]) => ({ ratio: limits[page.resource] / 100, label: `${label} ${limits[page.resource]} %` }));
  const [under, over] = [pool.under?.length ?? 0, pool.over?.length ?? 0];
  page.levels.show(bars, lines, `${bars.length} nodes by ${pool.by_requests ? "requested" : "used"} ${RESOURCES[page.resource]}: ${under} under, ${over} over`);
  fill(page.keys, h("span", {}, swatch("c3"), `${grouped(under)} under: take pods`), h("span", {}, swatch("heat1"), `${grouped(pool.nodes - under - over)} at the target`),
    h("span", {}, swatch("over"), `${grouped(over)} over: too much is ${pool.by_requests ? "requested" : "used"}`),
    h("span", { class: "note" }, `${grouped(acted.size)} with a bar on top give up pods in this round · a click shows the hot minutes of a node`));
}

function describe(page, name) {
  const pool = poolOf(page);
  const ratio = ratioOf(page, pool, name);
  const kind = pool.over?.includes(name) ? "over" : pool.under?.includes(name) ? "under" : "at the target";
  return [h("b", {}, name), h("div", {}, kind), h("div", {}, ratio === null ? "no usage report" : `${RESOURCES[page.resource]} ${percent(ratio)}`)];
}

/** Shows how long a node used more than its high threshold. */
async function choose(page, name) {
  const pool = poolOf(page);
  const { node, usage } = await get(`/api/nodes/${encodeURIComponent(name)}`, { at: page.at });
  const limit = (pool.high?.[page.resource] ?? 100) / 100;
  const whole = page.resource === "cpu" ? node.cpu_milli : node.memory_bytes;
  const points = usage.map((point) => ({ time: new Date(point.reported_at).getTime() / 1000, ratio: share(page.resource === "cpu" ? point.cpu_used : point.memory_used, whole) }));
  const hot = points.slice(1).reduce((sum, point, index) => sum + (point.ratio > limit ? point.time - points[index].time : 0), 0);
  const span = points.length > 1 ? points.at(-1).time - points[0].time : 0;
  page.hot.hidden = false;
  fill(page.hot, h("div", { class: "bar" },
    h("h2", {}, h("a", { href: `#/nodes/${encodeURIComponent(name)}` }, name), ` was hot for ${duration(hot)} of ${duration(span)}`),
    h("span", { class: "note" }, `${RESOURCES[page.resource]} above ${percent(limit)} in its usage reports`)), page.chart.element);
  page.chart.show(points.map((point) => point.time), [
    { label: RESOURCES[page.resource], color: "c1", values: points.map((point) => point.ratio), fill: true, stepped: true },
    { label: "high", color: "over", values: points.map(() => limit), dash: [4, 4], width: 1 }]);
  page.hot.scrollIntoView({ block: "nearest" });
}

function limitsPanel({ answer }) {
  const limits = answer.round?.limits ?? [];
  if (limits.length === 0) return null;
  return h("section", { class: "panel" }, h("h2", {}, "Limits that are reached"),
    table("limits", ["Limit", "Reached by"], limits.map((each) => [LIMITS[each.name] ?? each.name, each.reached_by?.length ? each.reached_by.join(", ") : "the whole cluster"])));
}

/** Plans that make room for waiting gangs. Their pods move all together, or none of them. */
function plansPanel({ plans, at }) {
  if (plans.length === 0) return null;
  const newest = plans.sort((one, other) => other.planned_at.localeCompare(one.planned_at));
  return h("section", { class: "panel" }, h("div", { class: "bar" }, h("h2", {}, "Room for waiting gangs"), h("span", { class: "note" }, "the pods of a plan move all together, or none of them")),
    table("plans", ["Gang", "Plan", "Moves", "Room on", "Planned"], newest.map((each) => [
      [each.plan.gang, h("div", { class: "note" }, `${grouped(each.plan.members.length)} pods, ${grouped(each.plan.gpus ?? 0)} GPUs`)],
      [h("span", { class: `phase ${{ done: "running", rolled_back: "terminating", incomplete: "terminating" }[each.result] ?? "pending"}` },
        PLANS[each.result || (each.committed_at ? "moving" : "reserving")]), h("div", { class: "note" }, each.reason)],
      each.plan.moves.map((move) => h("div", {}, podLink(move.pod, at), h("span", { class: "note" }, ` ${move.source} → ${move.target || "?"}`))),
      each.plan.nodes.join(", "), moment(each.planned_at)])));
}

function migrationsPanel({ migrations, at, answer }) {
  const now = answer.moment.live ? new Date().toISOString() : answer.moment.occurred_at;
  const running = migrations.filter((each) => !ENDED.includes(each.progress?.phase));
  const ended = migrations.filter((each) => ENDED.includes(each.progress?.phase)).sort((one, other) => other.ended_at.localeCompare(one.ended_at)).slice(0, 20);
  return h("section", { class: "panel" }, h("h2", {}, running.length === 1 ? "1 migration in flight" : `${grouped(running.length)} migrations in flight`),
    running.length + ended.length === 0 ? h("p", { class: "empty" }, "No pod is being moved.")
      : table("migrations", ["Pod", "From", "To", "Step", "Asked for by", "Time"], [...running, ...ended].map((each) => [
        podLink(each.pod, at), ...[each.origin, each.progress?.node].map((name) => h("span", { class: "nowrap" }, name)),
        [h("span", { class: `phase ${{ Succeeded: "running", Failed: "terminating", Aborted: "terminating" }[each.progress?.phase] ?? "pending"}` }, each.progress?.phase || (each.limits?.length ? "Held" : "Pending")),
          h("div", { class: "note" }, each.limits?.length ? each.limits.map((code) => LIMITS[code] ?? code).join(", ") : each.progress?.message || each.progress?.status)],
        [each.trigger, h("div", { class: "note" }, each.reason)],
        each.ended_at ? moment(each.ended_at) : each.passed_at ? `for ${between(each.passed_at, now)}` : ""])));
}

function podLink(pod, at) {
  if (!pod) return "";
  const suffix = at ? `?at=${encodeURIComponent(at)}` : "";
  return h("a", { href: `#/pods/${encodeURIComponent(pod.uid ?? "")}${suffix}` }, h("span", { class: "note" }, `${pod.namespace}/`), pod.name);
}

function drainsPanel({ drains }) {
  if (drains.length === 0) return null;
  return h("section", { class: "panel" }, h("h2", {}, "Drains"),
    table("drains", ["Node", "Phase", "Pods", "Since"], drains.map((each) => {
      const pods = Object.values(each.pods ?? {});
      const counts = new Map();
      for (const pod of pods) counts.set(pod.phase, (counts.get(pod.phase) ?? 0) + 1);
      return [h("a", { href: `#/nodes/${encodeURIComponent(each.node)}` }, each.node), [each.phase || "Pending", each.confirmed_at && " · confirmed", h("div", { class: "note" }, each.message)],
        [...counts].map(([phase, number]) => `${number} ${phase}`).join(", "), moment(each.started_at)];
    })));
}

function roundsPanel({ answer, at }) {
  const rounds = answer.rounds;
  if (rounds.length === 0) return null;
  return h("section", { class: "panel" }, h("div", { class: "bar" }, h("h2", {}, "Rounds"), h("span", { class: "note" }, "an unchanged round is shown once per minute")),
    table("rounds", ["Time", "Over", "Under", "Chosen pods"], rounds.map((each) => [
      h("span", { class: "nowrap" }, moment(each.occurred_at)), grouped(each.over), grouped(each.under),
      [Object.entries(each.results).map(([result, number]) => `${grouped(number)} ${result}`).join(", "),
        each.attempts.slice(0, 5).map((pod) => h("div", { class: "note" }, h("a", { href: `#/pods/${encodeURIComponent(pod.uid)}${at ? `?at=${encodeURIComponent(at)}` : ""}` }, pod.pod), ` on ${pod.node}: ${pod.reason} (${pod.plugin}, ${pod.result})`))]])));
}

function table(name, titles, rows) {
  return h("div", { class: "table" }, h("table", { class: `list ${name}` },
    h("thead", {}, h("tr", {}, titles.map((title) => h("th", {}, title)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell)))))));
}
