// A search among jobs, and changes to all that it finds.

import { changeMany } from "./actions.js";
import { h, Part, said, table } from "./dom.js";
import { many, moment, state, STATES, whole } from "./format.js";
import { go } from "./routes.js";

const PAGE = 50;
const FAILED = new Set(["FAILED", "DEAD_LETTER", "RETRYING"]);
const ENDED = new Set(["COMPLETED", "FAILED", "DEAD_LETTER", "CANCELLED"]);
const ORDERS = [["CREATED_DESC", "Newest first"], ["CREATED_ASC", "Oldest first"],
  ["UPDATED_DESC", "Last changed first"]];

/** Draws the view; gives what brings it up to date. */
export function jobs(main, route, page) {
  const wanted = criteria(route.params);
  const found = new Part("Jobs found");
  const unknown = route.params.getAll("state").filter((one) => !Object.hasOwn(STATES, one));
  main.append(h("h1", { tabindex: "-1" }, "Jobs of ", said(page.namespace)),
    unknown.length ? h("p", { role: "alert" }, "The address asks for a state that there is not: ",
      said(unknown.join(", ")), ". It is left out of the filter.") : "",
    h("section", { "aria-label": "Filter" }, form(route.params, page)), found.element);
  return async () => {
    const told = await page.ask("POST", "jobs/search", { namespace: page.namespace }, {
      ...wanted, order: route.params.get("order") || ORDERS[0][0], limit: PAGE,
      cursor: route.params.get("cursor"), include_total: !route.params.get("cursor"),
    });
    found.show(told, () => [bulk(wanted, page), results(told, route, page)]);
  };
}

/** The filter that an address has. */
function criteria(params) {
  const tags = params.getAll("tag").map((one) => {
    const [key, ...value] = one.split("=");
    return [key, value.join("=")];
  });
  const time = (name) => {
    const at = new Date(params.get(name) ?? "");
    return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
  };
  return {
    types: params.getAll("type"),
    states: params.getAll("state").filter((one) => Object.hasOwn(STATES, one)),
    tags: Object.fromEntries(tags.filter(([key]) => key)),
    created_after: time("after"),
    created_before: time("before"),
  };
}

function form(params, page) {
  const input = (name, label, props = {}) => h("div", { class: "field" },
    h("label", { for: `filter-${name}` }, label),
    h("input", { id: `filter-${name}`, name, value: params.get(name) ?? "", ...props }));
  const states = Object.entries(STATES).map(([value, title]) => h("label", {},
    h("input", { type: "checkbox", name: "state", value,
      checked: params.getAll("state").includes(value) }), ` ${title}`));
  const order = h("select", { id: "filter-order", name: "order" }, ORDERS.map(([value, title]) =>
    h("option", { value, selected: params.get("order") === value }, title)));
  return h("form", {
    role: "search",
    onsubmit: (event) => {
      event.preventDefault();
      const given = new FormData(event.target);
      go(page.to("jobs", Object.fromEntries(["type", "state", "tag", "after", "before", "order"].map(
        (name) => [name, given.getAll(name)]))));
    },
  }, h("fieldset", {}, h("legend", {}, "States"), states),
  input("type", "Type"), input("tag", "Tag (key=value)"),
  input("after", "Created after", { type: "datetime-local" }),
  input("before", "Created before", { type: "datetime-local" }),
  h("div", { class: "field" }, h("label", { for: "filter-order" }, "Order"), order),
  h("div", { class: "buttons" }, h("button", { type: "submit" }, "Search"),
    h("a", { href: page.to("jobs") }, "Clear")));
}

function bulk(wanted, page) {
  if (!page.access.jobs.update || !page.access.jobs.list) return null;
  const says = wanted.types.length || wanted.states.length || Object.keys(wanted.tags).length
    || wanted.created_after || wanted.created_before;
  const filter = says ? wanted : { all: true };
  const ended = wanted.states.length && wanted.states.every((one) => ENDED.has(one));
  const failed = wanted.states.length && wanted.states.every((one) => FAILED.has(one));
  // Failures are searched by other things than jobs.
  const fits = failed && !Object.keys(wanted.tags).length && !wanted.created_after
    && !wanted.created_before;
  return h("div", { class: "buttons" },
    ended ? null : h("button", { type: "button", class: "danger", "data-key": "cancel all",
      onclick: () => changeMany("cancel", page.namespace, filter, page.refresh) },
    "Cancel all that match…"),
    fits ? h("button", { type: "button", "data-key": "retry all",
      onclick: () => changeMany("retry", page.namespace,
        { types: wanted.types, states: wanted.states }, page.refresh) }, "Retry all that match…") : null);
}

function results(told, route, page) {
  const total = told.total_count === undefined || told.total_count === null ? null
    : h("p", {}, told.total_is_exact ? "" : "More than ", many(told.total_count, "job"), ".");
  const next = new URLSearchParams(route.params);
  if (told.next_cursor) next.set("cursor", told.next_cursor);
  const pages = Object.fromEntries([...next.keys()].map((name) => [name, next.getAll(name)]));
  return [total, table("Jobs", [
    ["Job", (one) => h("a", { href: page.to("job", {}, one.job_id), "data-key": one.job_id },
      said(one.job_id))],
    ["Type", (one) => said(one.type)],
    ["State", (one) => [state(one.state), one.suspended && !ENDED.has(one.state) ? " (suspended)" : "",
      one.cancel_requested ? " (asked to stop)" : ""]],
    ["Attempt", (one) => whole(one.attempt), "number"],
    ["Created", (one) => moment(one.created_at)],
    ["Changed", (one) => moment(one.updated_at)],
    ["Tags", (one) => said(Object.entries(one.tags).map(([key, value]) =>
      (value ? `${key}=${value}` : key)).join(" "))],
  ], told.jobs, "No such jobs."),
  told.next_cursor ? h("p", {}, h("a", { href: page.to("jobs", pages), "data-key": "next" },
    `Next ${whole(PAGE)}`)) : null];
}
