// Messages to callback URLs: who is told of the ends of jobs, and how that goes.

import { changeMessages, messageLines, redeliver } from "./actions.js";
import { command, h, Part, said, table } from "./dom.js";
import { moment, state, whole } from "./format.js";

const PAGE = 50;
const STATES = { FAILED: "Given up", PENDING: "To be told", DELIVERED: "Delivered" };

/** Draws the view; gives what brings it up to date. */
export function webhooks(main, route, page) {
  const asked = route.params.get("state");
  const wanted = Object.hasOwn(STATES, asked ?? "") ? asked : null;
  const found = new Part("Messages found");
  main.append(h("h1", { tabindex: "-1" }, "Messages of ", said(page.namespace)),
    asked && !wanted ? h("p", { role: "alert" }, "The address asks for a state that there is not: ",
      said(asked), ". Messages of all states are shown.") : "",
    h("section", { "aria-label": "Filter" }, filter(wanted, page)), found.element);
  return async () => {
    const told = await page.ask("GET", "webhooks", { namespace: page.namespace, state: wanted,
      limit: PAGE, cursor: route.params.get("cursor") });
    found.show(told, () => results(told, wanted, page));
  };
}

function filter(wanted, page) {
  const links = [[null, "All"], ...Object.entries(STATES)].map(([value, title]) => h("li", {},
    h("a", { href: page.to("webhooks", { state: value }), "data-key": `messages ${value}`,
      "aria-current": value === wanted ? "true" : null }, title)));
  return [h("ul", { class: "legend", "aria-label": "State" }, links),
    h("p", { class: "quiet" }, "A message is sent to the callback URL of a job when it has ended, and "
      + "tried again for a day. What was delivered is kept for a while only.")];
}

function results(told, wanted, page) {
  const next = { state: wanted, cursor: told.next_cursor };
  return [bulk(told, wanted, page), list(told.messages, page, true),
    told.next_cursor ? h("p", {}, h("a", { href: page.to("webhooks", next), "data-key": "next" },
      `Next ${whole(PAGE)}`)) : null];
}

/** Changes to all that are given up; what is to be told can be purged in a shell. */
function bulk(told, wanted, page) {
  if (wanted !== "FAILED" || !told.messages.length || !page.access.jobs.list) return null;
  const change = (kind) => () => changeMessages(kind, page.namespace, wanted, page.refresh);
  return h("div", { class: "buttons" },
    page.access.jobs.update ? h("button", { type: "button", "data-key": "send all",
      onclick: change("redeliver") }, "Send all again…") : null,
    page.access.jobs.delete ? h("button", { type: "button", class: "danger", "data-key": "purge all",
      onclick: change("purge") }, "Purge all…") : null);
}

function list(messages, page, ofMany) {
  const again = (one) => (one.state === "PENDING" ? null : h("button", {
    type: "button", "data-key": `again ${one.id}`, "aria-label": `Send again: ${one.job_id}`,
    onclick: () => redeliver(one, page.refresh),
  }, "Send again…"));
  return table(ofMany ? "Messages, the newest first" : "Messages about this job, the newest first", [
    ["Job ended", (one) => [ofMany ? h("a", { href: page.to("job", {}, one.job_id),
      "data-key": one.id }, said(one.job_id)) : null, h("div", {}, state(one.job_state)),
    ofMany ? null : h("div", { class: "quiet" }, moment(one.finalized_at))]],
    ["State", (one) => h("span", { class: `state message-${one.state}` }, STATES[one.state] ?? one.state)],
    ["Receiver", (one) => said(one.url)],
    ["Tries", (one) => whole(one.tries), "number"],
    ["Last answer", (one) => answer(one)],
    ["Next try", (one) => h("div", { class: one.next_at ? "wide" : null }, moment(one.next_at))],
    ...(page.access.jobs.update ? [["Again", again]] : []),
  ], messages, ofMany ? "No such messages." : "None yet: the job has not ended, or was told of long ago.");
}

function answer(one) {
  if (!one.last_at) return one.tries ? null : "not tried yet";
  const text = one.last_error || (one.last_status ? `answered ${one.last_status}` : "");
  return [said(text), h("div", { class: "quiet wide" }, moment(one.last_at))];
}

/** Those about one job, for its own page. */
export function ofJob(told, url, page) {
  return [h("p", {}, "When the job has ended, this address is told: ", said(url)),
    list(told.messages, page, false),
    told.messages.length ? [h("p", { class: "quiet" }, "In a shell:"),
      messageLines(told.messages[0], page.access.jobs.update).map(command)] : null];
}
