// One pod: what it is, and its life with the explanation of each decision.
import { get } from "../api.js";
import { Chart } from "../chart.js";
import { fill, h, trace } from "../dom.js";
import { diagnosis, explanation } from "../explanation.js";
import { amount, between, bytes, cores, grouped, moment } from "../format.js";

export async function podView(root, { parameters, at, signal }) {
  const named = parameters.map(encodeURIComponent); // a uid, or namespace and name
  const answer = await get(named.length > 1 ? `/api/namespaces/${named[0]}/pods/${named[1]}` : `/api/pods/${named[0]}`, { at }, signal);
  const { pod } = answer;
  if (!root.kept) {
    const page = { open: new Set() };
    page.cpu = new Chart({ height: 150, format: (value) => cores(value) });
    page.memory = new Chart({ height: 150, steps: "bytes", format: (value) => bytes(value) });
    page.head = h("div", { class: "title" });
    page.why = h("p", { class: "sentence" });
    page.life = h("ol", { class: "life" });
    page.facts = h("dl", { class: "facts" });
    page.usage = h("section", { class: "panel" }, h("h2", {}, "Used ", h("span", { class: "note" }, "as its node's agent reports")), h("div", { class: "note" }, "cores"), page.cpu.element, h("div", { class: "note" }, "memory"), page.memory.element);
    page.close = () => { page.cpu.close(); page.memory.close(); };
    page.repaint = () => { page.cpu.repaint(); page.memory.repaint(); };
    fill(root, h("div", { class: "stack" }, page.head, page.why, h("div", { class: "columns wide-left" },
      h("section", { class: "panel" }, h("h2", {}, "Life"), page.life),
      h("div", { class: "stack", css: { "align-content": "start" } }, h("section", { class: "panel" }, h("h2", {}, "Pod"), page.facts), page.usage))));
    root.kept = page;
  }
  const page = root.kept;
  fill(page.head, h("h1", {}, h("span", { class: "note" }, `${pod.namespace}/`), pod.name), h("span", { class: `phase ${pod.phase}` }, pod.phase));
  page.why.hidden = !pod.why;
  page.why.textContent = pod.why;
  fill(page.life, alike(answer.timeline).map((entries) => step(entries, answer.timeline[0], page)));
  const fact = (name, ...value) => [h("dt", {}, name), h("dd", {}, value)];
  const suffix = at ? `?at=${encodeURIComponent(at)}` : "";
  fill(page.facts,
    fact("node", pod.node ? h("a", { href: `#/nodes/${encodeURIComponent(pod.node)}${suffix}` }, pod.node) : "none"),
    fact("QoS", h("span", { class: `qos ${pod.qos}` }, pod.qos || "–")), fact("priority class", pod.priority_class || "–"),
    Object.entries(pod.requests).map(([name, value]) => fact(name, amount(name, value))),
    fact("submitted", moment(pod.submitted_at)),
    pod.placed_at && fact("placed", `${moment(pod.placed_at)} (after ${between(pod.submitted_at, pod.placed_at)})`),
    pod.started_at && fact("started", `${moment(pod.started_at)} (after ${between(pod.submitted_at, pod.started_at)})`),
    Object.entries(answer.object?.metadata?.labels ?? {}).map(([name, value]) => fact(name, value)),
    fact("uid", h("code", {}, pod.uid)));
  page.usage.hidden = answer.usage.length < 2;
  if (answer.usage.length >= 2) {
    const times = answer.usage.map((point) => new Date(point.reported_at).getTime() / 1000);
    const asked = (names) => names.map((name) => pod.requests[name]).find((value) => value !== undefined) ?? null;
    const line = (values, names) => [
      { label: "used", color: "c2", values, fill: true },
      { label: "requested", color: "c1", values: values.map(() => asked(names)), width: 1.5, dash: [5, 4] },
    ];
    page.cpu.show(times, line(answer.usage.map((point) => point.cpu_used), ["cpu", "kubernetes.io/batch-cpu"]));
    page.memory.show(times, line(answer.usage.map((point) => point.memory_used), ["memory", "kubernetes.io/batch-memory"]));
  }
  return answer.moment;
}

// Steps one by one; explanations that say the same one after the other together.
function alike(timeline) {
  const groups = [];
  let said = "";
  for (const entry of timeline) {
    const { diagnosis: why, explanation: found } = entry.body;
    const says = entry.stream === "explanations" ? JSON.stringify([entry.step, entry.sentence, why, found?.exclusions]) : "";
    if (says && says === said) groups.at(-1).push(entry);
    else groups.push([entry]);
    said = says;
  }
  return groups;
}

// The hardware of a placement, one chip for the CPUs, each zone and each device.
function given(allocation) {
  if (!allocation) return null;
  const listed = (amounts) => Object.entries(amounts ?? {}).map(([name, value]) => `${name.split("/").pop()} ${amount(name, value)}`).join(", ");
  const policies = [allocation.cpu_bind_policy, allocation.cpu_exclusive_policy].filter(Boolean).join(", ");
  const chips = [
    allocation.cpuset && [`CPUs ${allocation.cpuset}`, policies],
    ...(allocation.zones ?? []).map((zone) => [`zone ${zone.zone}`, listed(zone.amounts)]),
    ...(allocation.devices ?? []).map((device) => [`${device.type} ${device.minor}`,
      [listed(device.amounts), (device.virtual_functions ?? []).map((each) => each.bus_id).join(", ")].filter(Boolean).join("; ")]),
  ].filter(Boolean);
  return chips.length > 0 && h("div", { class: "given" }, chips.map(([what, detail]) => h("span", { class: "chip" }, h("b", {}, what), detail && ` ${detail}`)));
}

// The diagnosis tells of preemption by name: the sentence does not have to as well.
const sentence = (entry) => (entry.body.diagnosis?.preemption ? entry.sentence.split(" preemption: ")[0] : entry.sentence);

// What hooks changed in a container: the value before and after, and the plug-in.
const hooked = (values) =>
  h("ul", {}, ...values.map(({ name, old, new: value, plugin }) => h("li", {}, `${name}: ${old || "not set"} → ${value} (${plugin})`)));

function step(entries, first, page) {
  const [entry] = entries;
  const last = entries.at(-1);
  const key = entry.event_id || `${entry.stream}/${entry.position}`;
  const body = h("pre", { class: "mono", hidden: !page.open.has(key), css: { overflow: "auto", "max-height": "360px" } });
  const show = () => { body.textContent = JSON.stringify(entry.body, null, 2); };
  if (!body.hidden) show();
  const toggle = () => {
    body.hidden = !body.hidden;
    if (body.hidden) page.open.delete(key);
    else { page.open.add(key); show(); }
  };
  return h("li", { class: `step-${entry.step}` },
    h("div", { class: "head" }, h("span", { class: "step" }, entry.step),
      h("span", { class: "when" }, moment(entry.occurred_at), entry !== first && ` · +${between(first.occurred_at, entry.occurred_at)}`)),
    h("div", {}, sentence(entry)),
    given(entry.body.allocation),
    entry.step === "hooked" && hooked(entry.body.values ?? []),
    entry.explanation && explanation(entry.explanation, entry.body.node ?? ""),
    entry.body.diagnosis && diagnosis(entry.body.diagnosis),
    entries.length > 1 && h("div", { class: "again" }, `again ${entries.length === 2 ? "once" : `${grouped(entries.length - 1)} times`}, for the same reasons, until ${moment(last.occurred_at)}`),
    h("div", { class: "who" },
      h("span", {}, entry.stream === "ev" ? `position ${grouped(entry.position)}` : `explanation after position ${grouped(entry.position)}`),
      h("span", {}, `by ${entry.actor || "unknown"}`),
      entry.trace_id && trace(entry.trace_id),
      h("a", { href: location.hash, onclick: (event) => { event.preventDefault(); toggle(); } }, "event")),
    body);
}
