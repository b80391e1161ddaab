// Elements from values. What jobs say becomes text, never HTML: nothing here parses any.

const SVG = "http://www.w3.org/2000/svg";

/** An element; properties that begin with "on" are listeners, the others attributes. */
export function h(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** The same of SVG. */
export function svg(tag, props = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false)
    .map((one) => (one instanceof Node ? one : document.createTextNode(String(one))));
}

/** What a job, a handler or a person gave: apart from the text around it, whatever its direction. */
export function said(value, tag = "span") {
  return h(tag, { class: "text" }, value);
}

/** Puts new children in place of the old; who had the focus keeps it, what was open stays open. */
export function replace(parent, ...children) {
  const active = parent.contains(document.activeElement) ? document.activeElement : null;
  const key = active?.dataset?.key;
  const open = new Set(keyed(parent, "details[open]").map((one) => one.dataset.key));
  parent.replaceChildren(...nodes(children));
  for (const one of keyed(parent, "details")) one.open = open.has(one.dataset.key);
  if (key) keyed(parent, "[data-key]").find((one) => one.dataset.key === key)?.focus();
}

function keyed(parent, selector) {
  return [...parent.querySelectorAll(selector)].filter((one) => one.dataset.key);
}

/** A part of a view, drawn anew only when what it shows has changed. */
export class Part {
  constructor(title, { bare = false } = {}) {
    this.body = h("div", {}, h("p", { class: "quiet" }, "Loading…"));
    this.element = h("section", { "aria-label": title }, bare ? null : h("h2", {}, title), this.body);
    this.last = null;
    this.warning = null;
  }

  show(data, draw) {
    this.warning?.remove();
    this.warning = null;
    const text = JSON.stringify(data);
    if (text === this.last) return;
    this.last = text;
    replace(this.body, draw(data));
  }

  /** Tells of a fault; beside what was seen last, where it may pass. */
  fault(error) {
    const warning = h("p", { class: "fault" }, error.message);
    if (this.last !== null && (!error.status || error.status === 429 || error.status >= 500)) {
      this.warning?.remove();
      this.body.prepend(warning);
    } else {
      this.last = null;
      replace(this.body, warning);
    }
    this.warning = warning;
  }
}

/** A table; columns are [title, cell of a row, "number" where it holds numbers]. */
export function table(caption, columns, rows, empty = "None.") {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  const head = columns.map(([title, , kind]) => h("th", { scope: "col", class: kind }, title));
  const body = rows.map((row) =>
    h("tr", {}, columns.map(([, cell, kind]) => h("td", { class: kind }, cell(row)))));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, head)),
      h("tbody", {}, body)));
}

/** Names and values; those without a value are left out. */
export function facts(pairs) {
  const told = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", {}, told.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** A line for the shell, to be copied. */
export function command(line) {
  const copy = h("button", {
    type: "button",
    "data-key": `copy ${line}`,
    "aria-label": `Copy: ${line}`,
    onclick: async () => {
      await navigator.clipboard.writeText(line);
      announce("Copied.");
    },
  }, "Copy");
  return h("div", { class: "command" }, h("code", {}, line), navigator.clipboard ? copy : null);
}

/** Says something to those who hear the page, and shows it at its foot. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** A word for the shell, as one word. */
export function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\"'\"'")}'`;
}
