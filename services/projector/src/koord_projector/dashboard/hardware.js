// The hardware of a node: sockets, zones, cores with their siblings, PCIe switches, cards with shares. Filled with the colour of
// the pod that holds it, or of the QoS class of that pod.
import { fill, h, segments } from "./dom.js";
import { amount } from "./format.js";

const TINTS = 12; // colours of owners; more owners than that share colours
const QOS_TINT = { LSE: "c5", LSR: "c4", LS: "c1", BE: "c3", SYSTEM: "c6" };
const BY = { owner: "Pod", qos: "QoS" };

/** One panel; `show(hardware, {at, go})` draws another moment and keeps what the reader chose. */
export class HardwarePanel {
  constructor() {
    this.by = "owner";
    this.lit = ""; // uid whose hardware is highlighted
    this.bar = h("div", { class: "bar" });
    this.tree = h("div", { class: "sockets" });
    this.legend = h("div", { class: "owners" });
    this.notes = h("div", {});
    this.element = h("section", { class: "panel hardware" }, this.bar, this.tree, this.legend, this.notes);
  }

  show(hardware, context) {
    this.hardware = hardware;
    this.context = context;
    this.owners = new Map(hardware.owners.map((owner, index) => [owner.uid, { ...owner, tint: `var(--o${index % TINTS})` }]));
    this.element.hidden = hardware.sockets.length === 0;
    this.#paint();
  }

  #paint() {
    const { hardware, owners } = this;
    const zones = hardware.sockets.flatMap((socket) => socket.zones);
    const cores = zones.flatMap((zone) => zone.cores).length;
    const free = zones.reduce((sum, zone) => sum + zone.cores_free, 0);
    const facts = [cores > 0 && `${free} of ${cores} cores free`, hardware.cpu_bind_policy !== "None" && `every pod binds ${hardware.cpu_bind_policy}`,
      !["", "None"].includes(hardware.topology_policy) && `topology policy ${hardware.topology_policy}`].filter(Boolean);
    fill(this.bar, h("h2", {}, "Hardware"), h("span", { class: "note" }, facts.join(" · ")), h("span", { class: "push" }),
      segments("Colour", Object.entries(BY), this.by, (value) => { this.by = value; this.#paint(); }));
    fill(this.tree, hardware.sockets.map((socket) => this.#socket(socket)));
    fill(this.legend, this.by === "owner" ? [...owners.values()].map((owner) => this.#owner(owner)) : qosLegend(owners),
      zones.some((zone) => zone.cores.length) && [key("cpu", "shared pools"), key("cpu reserved", "reserved, never given")]);
    fill(this.notes, hardware.conflicts.map((text) => h("p", { class: "error" }, `Held twice: ${text}`)),
      hardware.problems.map((text) => h("p", { class: "note" }, `Ignored: ${text}`)));
    this.#light();
  }

  #socket(socket) {
    return h("div", { class: "socket" }, h("h3", {}, socket.id < 0 ? "Place not reported" : `Socket ${socket.id}`),
      h("div", { class: "zones" }, socket.zones.map((zone) => this.#zone(zone))));
  }

  #zone(zone) {
    const amounts = Object.entries(zone.amounts).filter(([, each]) => each.used > 0 && each.total > 0);
    return h("div", { class: "zone" },
      h("div", { class: "zone-head" }, h("b", {}, zone.id < 0 ? "No NUMA zone" : `Zone ${zone.id}`),
        zone.cores.length > 0 && h("span", { class: "note" }, `${zone.cores_free} of ${zone.cores.length} cores free`),
        amounts.map(([name, each]) => h("span", { class: "note" }, `${name} ${amount(name, each.used)} of ${amount(name, each.total)} given`))),
      zone.cores.length > 0 && h("div", { class: "cores" }, zone.cores.map((core) => this.#core(core))),
      zone.switches.length > 0 && h("div", { class: "switches" }, zone.switches.map((each) => h("div", { class: "switch" },
        h("div", { class: "switch-id" }, each.id ? `PCIe ${each.id}` : "PCIe unknown"), h("div", { class: "cards" }, each.cards.map((card) => this.#card(card)))))));
  }

  #core(core) {
    const owned = new Set(core.cpus.flatMap((cpu) => cpu.owners));
    return h("div", { class: "core", title: core.cpus.map((cpu) => this.#cpuText(cpu)).join("\n"), "data-uids": [...owned].join(" ") },
      core.cpus.map((cpu) => h("i", { class: `cpu${cpu.reserved ? " reserved" : ""}${cpu.owners.length > 1 ? " twice" : ""}`,
        css: cpu.owners.length ? { background: this.#tint(cpu.owners[0]), color: "#fff" } : {} }, cpu.id)));
  }

  #cpuText(cpu) {
    const held = cpu.owners.map((uid) => this.#name(uid)).join(" and ");
    return `CPU ${cpu.id}: ${[held, cpu.reserved].filter(Boolean).join(", ") || "shared pools"}`;
  }

  #card(card) {
    const uids = [...new Set([...card.shares.map((share) => share.uid), ...card.functions.flatMap((each) => each.owners)])];
    const said = card.shares.map((share) => `${this.#name(share.uid)}: ${share.percent} % (${Object.entries(share.amounts).map(([name, value]) => `${name.split("/").pop()} ${amount(name, value)}`).join(", ")})`);
    const held = card.functions.filter((each) => each.owners.length).length;
    const sized = Math.max(100, card.percent_used);
    const isWhole = card.type === "gpu" || card.functions.length === 0;
    return h("div", { class: `card ${card.state}`, "data-uids": uids.join(" "), title: [`${card.type} ${card.minor} ${card.id}`, card.functions.length > 0 && `${held} of ${card.functions.length} virtual functions given`, ...said].filter(Boolean).join("\n") },
      h("div", { class: "card-head" }, h("b", {}, `${card.type.toUpperCase()} ${card.minor}`), h("span", {}, card.state === "healthy" ? (isWhole ? `${card.percent_used}%` : `${held}/${card.functions.length}`) : card.state)),
      isWhole && h("div", { class: "fillings" }, card.shares.map((share) => h("i", { css: { width: `${(share.percent / sized) * 100}%`, background: this.#tint(share.uid) } }))),
      card.functions.length > 0 && h("div", { class: "functions" }, card.functions.map((each) => h("i", {
        title: `${each.bus_id}: ${each.owners.map((uid) => this.#name(uid)).join(" and ") || "free"}`, css: each.owners.length ? { background: this.#tint(each.owners[0]) } : {} }))));
  }

  #owner(owner) {
    const { at, go } = this.context;
    return h("button", { type: "button", class: "owner", "data-uid": owner.uid, title: `${owner.qos}${owner.cpuset ? `, CPUs ${owner.cpuset}` : ""}; opens the pod`,
      onclick: () => go(`/pods/${encodeURIComponent(owner.uid)}`, at), onmouseenter: () => this.#light(owner.uid), onmouseleave: () => this.#light(""),
      onfocus: () => this.#light(owner.uid), onblur: () => this.#light("") },
      h("span", { class: "swatch", css: { background: owner.tint } }), h("span", { class: "note" }, `${owner.namespace}/`), owner.name, h("span", { class: `qos ${owner.qos}` }, ` ${owner.qos}`));
  }

  #light(uid = this.lit) {
    this.lit = uid;
    this.tree.classList.toggle("lit", Boolean(uid));
    for (const element of this.tree.querySelectorAll("[data-uids]")) element.classList.toggle("mine", Boolean(uid) && element.dataset.uids.split(" ").includes(uid));
  }

  #tint(uid) {
    const owner = this.owners.get(uid);
    if (!owner) return "var(--c6)";
    return this.by === "qos" ? `var(--${QOS_TINT[owner.qos] ?? "c6"})` : owner.tint;
  }

  #name(uid) {
    const owner = this.owners.get(uid);
    return owner ? `${owner.namespace}/${owner.name}` : uid;
  }
}

const key = (cls, text) => h("span", { class: "owner" }, h("i", { class: `${cls} key` }), text);

function qosLegend(owners) {
  const classes = [...new Set([...owners.values()].map((owner) => owner.qos))].sort();
  return classes.map((qos) => h("span", { class: "owner" }, h("span", { class: "swatch", css: { background: `var(--${QOS_TINT[qos] ?? "c6"})` } }), qos));
}
