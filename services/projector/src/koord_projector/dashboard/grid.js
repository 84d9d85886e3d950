// A list of many items as a table that sorts. Only the first rows become elements: 5,000 items sort in a few milliseconds.
import { fill, h } from "./dom.js";
import { grouped } from "./format.js";

const STEP = 100;

/**
 * columns: [{name, number?, value(item) (text, number or null) to sort by, cell(item) -> children of the cell, class?}].
 * sorted: name of the column that sorts at first, "" for the order of the items.
 * onSort() is called after another column was chosen.
 */
export class Grid {
  constructor({ caption, columns, sorted = "", empty, kind = "", open, onSort = () => {} }) {
    this.columns = columns;
    this.sorted = sorted;
    this.isDown = false;
    this.empty = empty;
    this.open = open;
    this.items = [];
    this.shown = STEP;
    this.onSort = onSort;
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.more = h("button", { type: "button", class: "quiet more", onclick: () => this.#showMore() }, "Show more");
    this.element = h("div", {},
      h("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption }, h("table", { class: `list grid ${kind}` },
        h("caption", { class: "visually-hidden" }, caption), h("thead", {}, this.head), this.body)), this.more);
  }

  show(items) {
    this.items = items;
    this.paint();
  }

  paint() {
    const columns = this.columns.filter((column) => column.isShown?.(this.items) ?? true);
    const by = columns.find((column) => column.name === this.sorted);
    this.sortedItems = by ? [...this.items].sort((one, other) => order(by.value(one), by.value(other), this.isDown)) : this.items;
    fill(this.head, columns.map((column) => h("th", { scope: "col", class: column.number && "number", "aria-sort": column === by && (this.isDown ? "descending" : "ascending") },
      column.value ? h("button", { type: "button", class: "sort", onclick: () => this.#sort(column) }, column.name) : column.name)));
    this.drawn = columns;
    fill(this.body, this.sortedItems.slice(0, this.shown).map((item) => this.#row(item, columns)),
      this.items.length === 0 && h("tr", {}, h("td", { colspan: String(columns.length), class: "empty" }, this.empty)));
    this.#count();
  }

  #count() {
    this.more.hidden = this.items.length <= this.shown;
    this.more.textContent = `Show more (${grouped(this.items.length - this.shown)})`;
  }

  // Rows that are there stay: drawing all again would take longer with each step.
  #showMore() {
    this.body.append(...this.sortedItems.slice(this.shown, this.shown + STEP).map((item) => this.#row(item, this.drawn)));
    this.shown += STEP;
    this.#count();
  }

  // The first press of a column of numbers brings the largest one to the top.
  #sort(column) {
    this.isDown = this.sorted === column.name ? !this.isDown : Boolean(column.number);
    this.sorted = column.name;
    this.paint();
    this.onSort();
  }

  #row(item, columns) {
    return h("tr", this.open && { class: "link", onclick: (event) => { if (!event.target.closest("a, button")) this.open(item); } },
      columns.map((column) => h("td", { class: [column.number && "number", column.class].filter(Boolean).join(" ") || null, "data-label": column.name }, column.cell(item))));
  }
}

// What has no value comes last in both directions.
function order(one, other, isDown) {
  if (one === null || other === null || one === other) return one === other ? 0 : one === null ? 1 : -1;
  return (one < other ? -1 : 1) * (isDown ? -1 : 1);
}
