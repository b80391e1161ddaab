// How a namespace does: the verdict first, then what it rests on.

import { changeMany, pause, resume } from "./actions.js";
import { chart } from "./charts.js";
import { command, facts, h, Part, said, table } from "./dom.js";
import { length, many, moment, seconds, share, STATES, whole } from "./format.js";
import { to } from "./routes.js";

const RANGES = [["PT1H", "1 hour"], ["PT6H", "6 hours"], ["P1D", "1 day"], ["P7D", "7 days"]];
const FAILED_STATES = ["FAILED", "DEAD_LETTER"];

/** Draws the view; gives what brings it up to date. */
export function overview(main, route, page) {
  const range = route.params.get("range") || RANGES[0][0];
  const parts = {
    verdict: new Part("Verdict", { bare: true }),
    counts: new Part("Jobs by state"),
    series: new Part("Throughput and latency"),
    waiting: new Part("Oldest that wait, and why"),
    failing: new Part("Types that fail"),
    workers: new Part("Workers and slots"),
    pauses: new Part("Pauses"),
  };
  parts.verdict.element.classList.add("verdict");
  main.append(h("h1", { tabindex: "-1" }, "How is ", said(page.namespace), "?"),
    ...Object.values(parts).map((part) => part.element));
  const ns = { namespace: page.namespace };
  const get = (path, more = {}) => page.ask("GET", path, { ...ns, ...more });
  const draw = (part, path, more, show) => get(path, more).then(
    (told) => part.show(told, (data) => show(data, page)), (error) => {
      part.fault(error);
      throw error;
    });
  return async () => {
    const found = await Promise.allSettled([
      draw(parts.verdict, "verdict", {}, (told) => verdict(told, parts.verdict.element, page)),
      draw(parts.counts, "stats", { breakdown_by: ["STATE", "TYPE"], time_range: range },
        (told) => counts(told, range, page)),
      draw(parts.series, "stats/series", { time_range: range }, (told) => series(told, range, page)),
      draw(parts.waiting, "waiting", { limit: 10 }, waiting),
      draw(parts.failing, "failures/clusters", { time_range: range }, failing),
      draw(parts.workers, "workers", {}, (told) => slots(told, page)),
      draw(parts.pauses, "pauses", {}, pauses),
    ]);
    const failed = found.find((one) => one.status === "rejected");
    if (failed) throw failed.reason;
  };
}

function verdict(told, element, page) {
  element.className = `verdict ${told.level}`;
  const causes = told.causes.map((cause, n) => h("details", { "data-key": `cause ${n}` },
    h("summary", { "data-key": `why ${n}` }, said(cause.message)),
    facts([
      ["Counted", evidence(cause.evidence)],
      ["Next", cause.next_step],
      ["Messages", cause.code.startsWith("MESSAGES_") ? messages(cause, page) : null],
      ["In a shell", cause.command ? command(cause.command) : null],
      ["Runbook", runbook(cause.runbook)],
    ])));
  return [h("p", { class: "text sentence" }, told.sentence), causes.length ? causes : null];
}

function messages(cause, page) {
  const state = cause.evidence.given_up ? "FAILED" : "PENDING";
  return h("a", { href: page.to("webhooks", { state }), "data-key": `messages of ${cause.code}` },
    state === "FAILED" ? "Those that were given up" : "Those that are to be told");
}

/** A link where somebody has published it; else where it is in the repository. */
function runbook(place) {
  return /^https?:\/\//.test(place) ? h("a", { href: place, rel: "noreferrer" }, place) : h("code", {}, place);
}

function evidence(found) {
  const told = Object.entries(found).filter(([, value]) => value !== "");
  return told.map(([name, value], n) => [n ? ", " : "", `${name.replaceAll("_", " ")} `,
    typeof value === "number" ? whole(value) : said(value)]);
}

function counts(told, range, page) {
  const of = (...states) => states.reduce((sum, one) => sum + told.counts[one], 0);
  const tiles = [
    ...["SCHEDULED", "RETRYING", "DELAYED", "PENDING"].map((one) => [one, told.by_state[one].pending]),
    ["RUNNING", told.running],
    ["COMPLETED", of("COMPLETED")],
    ["DEAD_LETTER", of("DEAD_LETTER"), FAILED_STATES, "Failed for good"],
    ["CANCELLED", of("STOPPED", "UNSCHEDULED", "UNKNOWN_STOPPED")],
  ];
  const types = Object.entries(told.by_type).sort(([, a], [, b]) =>
    b.pending + b.running - a.pending - a.running || b.completed - a.completed);
  const columns = [
    ["Type", ([type]) => h("a", { href: page.to("jobs", { type }) }, said(type))],
    ["Waiting", ([, one]) => whole(one.pending), "number"],
    ["Running", ([, one]) => whole(one.running), "number"],
    ["Completed", ([, one]) => whole(one.completed), "number"],
    ["Failed", ([, one]) => whole(one.failed + one.dead_letter), "number"],
    ...(page.access.jobs.update ? [["Hold back", ([type]) => h("button", {
      type: "button", "data-key": `pause ${type}`, "aria-label": `Pause ${type}`,
      onclick: () => pause(page.namespace, type, page.refresh),
    }, "Pause…")]] : []),
  ];
  return [
    h("ul", { class: "tiles" }, tiles.map(([state, count, states, title]) => h("li", {},
      h("a", { href: page.to("jobs", { state: states ?? state }), "data-key": `tile ${state}` },
        h("strong", {}, whole(count)), title ?? STATES[state])))),
    h("h3", {}, "By type"),
    table(`Those that wait and run now, and what ended in ${titleOf(range)}`, columns, types.slice(0, 30), "There are no jobs."),
    types.length > 30 ? h("p", { class: "quiet" }, many(types.length - 30, "other type")) : null,
  ];
}

function titleOf(range) {
  return RANGES.find(([value]) => value === range)?.[1] ?? range;
}

function series(told, range, page) {
  const minutes = seconds(told.step) / 60;
  const at = (one) => new Date(one.begins_at);
  const rates = told.points.map((one) => ({ at: at(one), values: [
    one.submitted / minutes, one.completed / minutes, one.attempts_failed / minutes,
    one.cancelled / minutes] }));
  const times = (name) => told.points.map((one) => ({ at: at(one), values:
    ["p50", "p90", "p99"].map((part) => seconds(one[name][part])) }));
  const links = RANGES.map(([value, title]) => h("li", {}, h("a", {
    href: page.to("overview", { range: value }), "data-key": `range ${value}`,
    "aria-current": value === range ? "true" : null,
  }, title)));
  return [
    h("ul", { class: "legend", "aria-label": "Time range" }, links),
    h("div", { class: "columns" },
      chart("Jobs per minute", ["submitted", "completed", "attempts failed", "cancelled"], rates),
      chart("Time in queue", ["median", "90 %", "99 %"], times("queue_latency"), length),
      chart("Time of execution", ["median", "90 %", "99 %"], times("execution_time"), length)),
  ];
}

function waiting(told, page) {
  return table("Jobs that could run, the longest due first", [
    ["Job", (one) => h("a", { href: page.to("job", {}, one.job.job_id), "data-key": one.job.job_id },
      said(one.job.job_id))],
    ["Type", (one) => said(one.job.type)],
    ["Due since", (one) => moment(one.why.eligible_at ?? one.job.created_at)],
    ["Why it waits", (one) => said(one.why.message)],
  ], told.waiting, "Nothing waits that could run.");
}

function failing(told, page) {
  if (!told.types.length) return h("p", { class: "quiet" }, "Nothing failed.");
  const note = told.is_complete ? null : h("p", { class: "quiet" },
    `The newest ${whole(told.read)} failures were read.`);
  return [note, told.types.map((one) => [
    h("h3", {}, h("a", { href: page.to("jobs", { type: one.type, state: [...FAILED_STATES, "RETRYING"] }),
      "data-key": `failing ${one.type}` }, said(one.type)), ` – ${whole(one.attempts_failed)} of `,
    `${many(one.attempts_failed + one.completed, "attempt")} failed (`,
    `${share(one.attempts_failed / Math.max(one.attempts_failed + one.completed, 1))})`),
    one.clusters.length ? table("Errors that are alike", clusters(one, page), one.clusters) : null,
  ])];
}

function clusters(type, page) {
  const retry = (cluster) => changeMany("retry", page.namespace,
    { types: [type.type], error_code: cluster.code || null }, page.refresh);
  return [
    ["Count", (one) => whole(one.count), "number"],
    ["Code", (one) => said(one.code)],
    ["Error", (one) => said(one.shape)],
    ["Newest", (one) => [h("a", { href: page.to("job", {}, one.job_id), "data-key": `c ${one.job_id}` },
      said(one.job_id)), " ", moment(one.newest_at)]],
    ...(page.access.jobs.update && page.access.jobs.list ? [["Again", (one) => (one.code ? h("button", {
      type: "button", "data-key": `retry ${type.type} ${one.code} ${one.shape}`,
      "aria-label": `Retry ${type.type} with ${one.code}`, onclick: () => retry(one),
    }, "Retry…") : null)]] : []),
  ];
}

function slots(told, page) {
  const all = told.workers;
  const sum = (name) => all.reduce((total, one) => total + one[name], 0);
  if (!all.length) return [h("p", {}, "No worker is connected."), gone(told, page)];
  const draining = all.filter((one) => one.draining).length;
  return [h("p", {}, h("a", { href: page.to("workers"), "data-key": "workers" },
    many(all.length, "worker")), `, ${whole(sum("busy"))} of ${many(sum("capacity"), "slot")} taken`,
  draining ? `, ${whole(draining)} draining` : "", "."), gone(told, page)];
}

function gone(told, page) {
  if (!told.lost.length) return null;
  const newest = told.lost[0];
  return h("p", {}, h("a", { href: page.to("workers"), "data-key": "lost" },
    h("span", { class: "state DEAD_LETTER" }, "LOST"), ` ${many(told.lost.length, "worker")}`), ": ",
  said(newest.name), " with ", many(newest.jobs, "job"), " ", moment(newest.lost_at),
  told.lost.length > 1 ? " and others" : "", ".");
}

function pauses(told, page) {
  const may = page.access.jobs.update;
  const columns = [
    ["What", (one) => (one.type ? said(one.type) : "The whole namespace")],
    ["Since", (one) => moment(one.since)],
    ["By", (one) => said(one.by)],
    ["Reason", (one) => said(one.reason)],
    ...(may ? [["End", (one) => h("button", {
      type: "button", "data-key": `resume ${one.type}`, "aria-label": `Resume ${one.type || "all"}`,
      onclick: () => resume(page.namespace, one.type, page.refresh),
    }, "Resume…")]] : []),
  ];
  return [table("What is held back", columns, told.pauses, "Nothing is paused."),
    may ? h("div", { class: "buttons" }, h("button", { type: "button", "data-key": "pause all",
      onclick: () => pause(page.namespace, "", page.refresh) }, "Pause the namespace…")) : null];
}
