// Recommendations: the requests that containers should have, with the measurements behind them.
import { get, objects } from "../api.js";
import { fill, h, table } from "../dom.js";
import { bytes, cores, grouped, moment } from "../format.js";

export async function recommendationsView(root, { at, signal }) {
  const { found, shown } = await objects("recommendation", at, signal);
  const learned = found.filter((entry) => entry.state?.target);
  fill(root, h("section", { class: "panel" },
    h("div", { class: "bar" }, h("h1", { class: "h2" }, `${grouped(learned.length)} ${learned.length === 1 ? "recommendation" : "recommendations"}`),
      h("span", { class: "note" }, "a container is left alone while its requests lie between the bounds")),
    learned.length === 0 ? h("p", { class: "empty" }, "Nothing was recommended yet. A Recommendation object selects the pods to learn from.")
      : table("Recommendations", ["Recommendation", "For", "Container", ["CPU"], "Bounds", ["Memory"], "Bounds", ["Confidence"], "Samples", "State"],
        learned.flatMap(rows), "recommendations")));
  return shown;
}

function rows(entry) {
  const [namespace, name] = entry.id.split("=").map((part) => part.replaceAll("_", "."));
  const { state } = entry;
  const containers = state.containers ?? [];
  const head = (container) => [
    h("td", {}, h("span", { class: "note" }, `${namespace}/`), name, h("div", { class: "note" }, `mode ${state.mode ?? "Off"}, ${grouped(state.pods ?? 0)} pods`)),
    h("td", {}, state.target), h("td", {}, container)];
  const conditions = h("td", {}, (state.conditions ?? []).map((one) => h("div", { title: one.message ?? "" }, `${one.type} ${one.status}${one.reason ? ` (${one.reason})` : ""}`)),
    state.updated_at && h("div", { class: "note" }, moment(state.updated_at)));
  if (containers.length === 0) return [h("tr", {}, head("–"), h("td", { colspan: "6", class: "note" }, "no container was measured yet"), conditions)];
  return containers.map((each) => h("tr", {}, head(each.name),
    h("td", { class: "number" }, cpu(each.target)), h("td", { class: "nowrap" }, bounds(each, cpu, "cpu_milli")),
    h("td", { class: "number" }, memory(each.target)), h("td", { class: "nowrap" }, bounds(each, memory, "memory_bytes")),
    h("td", { class: "number" }, `${(each.confidence_days ?? 0).toFixed(2)} d`),
    h("td", {}, grouped(each.samples ?? 0), h("div", { class: "note" }, `${moment(each.first_sample_at)} to ${moment(each.last_sample_at)}`)),
    conditions.cloneNode(true)));
}

// Without samples of a resource, it has no amount.
const cpu = (amounts) => (amounts?.cpu_milli ? `${cores(amounts.cpu_milli)} cores` : "–");
const memory = (amounts) => (amounts?.memory_bytes ? bytes(amounts.memory_bytes) : "–");
const NO_BOUND = 1e14; // without any history, there is no upper bound
const bounds = (container, show, amount) => container.upper_bound?.[amount] >= NO_BOUND
  ? `from ${show(container.lower_bound)}` : `${show(container.lower_bound)} – ${show(container.upper_bound)}`;
