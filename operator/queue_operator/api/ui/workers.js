// Who works, and how many slots each has.

import { command, h, Part, quoted, said, table } from "./dom.js";
import { moment, whole } from "./format.js";

/** Draws the view; gives what brings it up to date. */
export function workers(main, route, page) {
  const all = new Part("Workers");
  const drain = new Part("Drain a worker");
  main.append(h("h1", { tabindex: "-1" }, "Workers of ", said(page.namespace)), all.element,
    drain.element);
  drain.element.hidden = !page.access.workers.patch;
  return async () => {
    const told = await page.ask("GET", "workers", { namespace: page.namespace });
    all.show(told, (data) => [data.lost.length ? lost(data) : null, listed(data)]);
    const names = [...new Set(told.workers.filter((one) => !one.draining).map((one) => one.name))];
    drain.show(names, () => drains(names, page.namespace));
  };
}

function listed(told) {
  return table("Connected workers", [
    ["Worker", (one) => said(one.name || one.session_id)],
    ["Handles", (one) => (one.types.length ? said(one.types.join(", ")) : "any type")],
    ["Takes only jobs with", (one) => said(one.tags.join(" "))],
    ["Slots taken", (one) => [`${whole(one.busy)} of ${whole(one.capacity)} `, h("meter", {
      min: 0, max: Math.max(one.capacity, 1), value: one.busy,
      "aria-label": `Slots taken by ${one.name}` })]],
    ["Draining", (one) => (one.draining ? "yes" : "no")],
    ["Heard of", (one) => moment(one.heartbeat_at)],
    ["Connected", (one) => moment(one.connected_at)],
    ["Host", (one) => said(one.host)],
    ["Version", (one) => said(one.version)],
    ["Replica", (one) => said(one.replica)],
  ], told.workers, "No worker is connected.");
}

function lost(told) {
  return table("Lost: gone without a goodbye", [
    ["Worker", (one) => said(one.name)],
    ["State", () => h("span", { class: "state DEAD_LETTER" }, "LOST")],
    ["Lost", (one) => moment(one.lost_at)],
    ["Jobs it had", (one) => whole(one.jobs), "number"],
    ["Handled", (one) => (one.types.length ? said(one.types.join(", ")) : "any type")],
    ["Host", (one) => said(one.host)],
    ["Version", (one) => said(one.version)],
  ], told.lost);
}

function drains(names, ns) {
  if (!names.length) return h("p", { class: "quiet" }, "There is none to drain.");
  return [h("p", {}, "It takes no more jobs and finishes those that it has. Its QueueWorker says so:"),
    names.slice(0, 50).map((name) => command(`kubectl -n ${quoted(ns)} patch queueworker `
      + `${quoted(name)} --type merge -p '{"spec":{"drain":true}}'`))];
}
