// One job: what it is, what became of it, and what can be done.

import { cancelJob, lines, retryJob, suspendJob } from "./actions.js";
import { command, facts, h, Part, said, table } from "./dom.js";
import { length, moment, state, whole } from "./format.js";
import { jobPath, Refused } from "./server.js";
import { ofJob } from "./webhooks.js";

const LINES = 100;
const MESSAGES = 20;
const MOST_CHARACTERS = 20000;
const ENDED = new Set(["COMPLETED", "FAILED", "DEAD_LETTER", "CANCELLED"]);
const AGAIN = new Set(["FAILED", "DEAD_LETTER", "RETRYING"]);

/** Draws the view; gives what brings it up to date. */
export function job(main, route, page) {
  const parts = {
    facts: new Part("What it is"),
    why: new Part("Why it does not run"),
    actions: new Part("What can be done"),
    timeline: new Part("Timeline"),
    attempts: new Part("Attempts"),
    told: new Part("Who is told of its end"),
    log: new Part("Log"),
    payload: new Part("Payload"),
    result: new Part("Result"),
  };
  main.append(h("h1", { tabindex: "-1" }, "Job ", said(route.id)),
    ...Object.values(parts).map((part) => part.element));
  const ns = { namespace: page.namespace };
  const get = (rest, more = {}) => page.ask("GET", jobPath(route.id, rest), { ...ns, ...more });
  let payload = null;
  return async () => {
    let told;
    try {
      // It may be large, and never changes.
      told = await get("", { include_result: true, include_history: true,
        include_payload: payload === null });
    } catch (error) {
      parts.facts.fault(error);
      throw error;
    }
    const ended = ENDED.has(told.state);
    parts.facts.show(told, about);
    parts.actions.show([told.state, told.suspended, told.cancel_requested, page.access],
      () => actions(told, page));
    // To list messages is another right than to look at a job.
    const isTold = Boolean(told.callback_url) && page.access.jobs.list;
    parts.told.element.hidden = !isTold;
    parts.timeline.show(told.history, timeline);
    payload ??= [told.payload, told.payload_base64];
    parts.payload.show(payload, () => content(...payload));
    parts.result.show(told.result ?? null, result);
    const [why, failure, log, messages] = await Promise.all([
      ended ? null : get("/why"),
      get("/failure", { include_all_attempts: true }).catch(nothing),
      get("/logs", { lines: LINES }),
      isTold ? page.ask("GET", "webhooks", { ...ns, job_id: route.id, limit: MESSAGES }) : null,
    ]);
    parts.why.element.hidden = ended;
    if (why) parts.why.show(why, explained);
    parts.attempts.show(failure, attempts);
    parts.log.show(log, logged);
    if (messages) parts.told.show(messages, () => ofJob(messages, told.callback_url, page));
  };
}

/** A job that never failed has no failure to tell of. */
function nothing(error) {
  if (error instanceof Refused && error.status === 404) return null;
  throw error;
}

function about(told) {
  const progress = told.progress;
  return facts([
    ["State", [state(told.state), told.suspended && !ENDED.has(told.state) ? " (suspended)" : "",
      told.cancel_requested ? " (asked to stop)" : ""]],
    ["Type", said(told.type)],
    ["Namespace", said(told.namespace)],
    ["Reason", told.reason ? said(told.reason) : null],
    ["Attempt", whole(told.attempt)],
    ["Priority", told.priority],
    ["Tags", Object.keys(told.tags).length ? said(Object.entries(told.tags).map(([key, value]) =>
      (value ? `${key}=${value}` : key)).join("  ")) : null],
    ["Correlation", told.correlation_id ? said(told.correlation_id) : null],
    ["Created", moment(told.created_at)],
    ["Not before", moment(told.scheduled_for)],
    ["Started", moment(told.started_at)],
    ["Ended", moment(told.completed_at)],
    ["Progress", progress ? [`${whole(progress.percent)} % `, said(progress.message), " ",
      moment(progress.updated_at)] : null],
  ]);
}

function explained(why) {
  return [h("p", {}, h("strong", { class: "text" }, why.message)), facts([
    ["Jobs before it", why.position === null ? null
      : `${why.position_is_exact ? "" : "more than "}${whole(why.position)}`],
    ["Workers that would take it", whole(why.workers)],
    ["Free slots of theirs", whole(why.free_slots)],
    ["Depends on", why.depends_on.length ? why.depends_on.map((one) => h("div", {},
      said(one.job_id), " ", one.state ? state(one.state) : "not ended")) : null],
  ])];
}

function actions(told, page) {
  const may = page.access.jobs.update;
  const ended = ENDED.has(told.state);
  const waits = !ended && told.state !== "RUNNING";
  const button = (title, danger, act) => h("button", {
    type: "button", class: danger ? "danger" : null, "data-key": title, onclick: act }, title);
  const shell = lines(told);
  const possible = [
    ended ? null : ["Cancel…", true, () => cancelJob(told, page.refresh), shell.cancel],
    AGAIN.has(told.state) ? ["Retry…", false, () => retryJob(told, page.refresh), shell.retry] : null,
    waits && !told.suspended ? ["Suspend…", false, () => suspendJob(told, true, page.refresh),
      shell.suspend] : null,
    !ended && told.suspended ? ["Resume…", false, () => suspendJob(told, false, page.refresh),
      shell.resume] : null,
  ].filter(Boolean);
  return [
    may && possible.length ? h("div", { class: "buttons" }, possible.map(([title, danger, act]) =>
      button(title, danger, act))) : null,
    h("p", { class: "quiet" }, "In a shell:"),
    [shell.look, ended ? null : shell.why, shell.logs, ...(may ? possible.map((one) => one[3]) : [])]
      .filter(Boolean).map(command),
  ];
}

function timeline(history) {
  return h("ol", { class: "timeline" }, (history ?? []).map((step) => h("li", {},
    state(step.to_state), " ", moment(step.timestamp), " ",
    h("span", { class: "quiet" }, said(step.reason)))));
}

function attempts(told) {
  if (!told) return h("p", { class: "quiet" }, "No attempt failed.");
  return [h("p", {}, `${whole(told.total_attempts)} in all.`), table("Attempts", [
    ["Attempt", (one) => whole(one.attempt), "number"],
    ["Result", (one) => one.result ?? "runs"],
    ["Started", (one) => moment(one.started_at)],
    ["Took", (one) => (one.finished_at
      ? length((new Date(one.finished_at) - new Date(one.started_at)) / 1000) : "–"), "number"],
    ["Worker", (one) => said([one.worker_id, one.host].filter(Boolean).join(" on "))],
    ["Error", (one) => (one.failure ? failure(one) : null)],
  ], told.attempts ?? [])];
}

function failure(one) {
  const { category, code, message, stack_trace: trace, context } = one.failure;
  return [h("div", {}, said(category === code ? code : `${category} ${code}`), ": ", said(message)),
    Object.entries(context).map(([key, value]) => h("div", { class: "quiet" }, said(`${key}: ${value}`))),
    trace ? h("details", { "data-key": `trace ${one.attempt} ${one.started_at}` },
      h("summary", { "data-key": `trace of ${one.attempt} ${one.started_at}` }, "Stack trace"),
      pre(trace, `Stack trace of attempt ${one.attempt}`)) : null];
}

function logged(told) {
  if (!told.attempts.length) return h("p", { class: "quiet" }, "Nothing was logged.");
  return told.attempts.map((one) => [h("h3", {}, `Attempt ${whole(one.attempt)}`),
    one.dropped ? h("p", { class: "quiet" }, `${whole(one.dropped)} earlier lines are left out.`) : null,
    pre(one.lines.map(logLine).join("\n"), `Log of attempt ${one.attempt}`)]);
}

function logLine(line) {
  const fields = Object.entries(line.fields).map(([key, value]) =>
    ` ${key}=${typeof value === "string" ? value : JSON.stringify(value)}`).join("");
  return `${line.at.replace("T", " ")} ${line.level} ${line.message}${fields}`;
}

function result(told) {
  if (!told) return h("p", { class: "quiet" }, "There is none yet.");
  if (told.error) {
    return facts([["Error", [said(told.error.code), ": ", said(told.error.message)]],
      ["Took", told.duration_ms === null ? null : length(told.duration_ms / 1000)]]);
  }
  return [facts([["Took", told.duration_ms === null ? null : length(told.duration_ms / 1000)]]),
    content(told.output, told.output_base64, "Result")];
}

function content(value, bytes, title = "Payload") {
  if (bytes !== null && bytes !== undefined) {
    const text = decoded(bytes);
    return text === null ? pre(bytes, `${title}, as base64`) : pre(text, `${title}, as text`);
  }
  return pre(JSON.stringify(value ?? null, null, 2), title);
}

/** The text that bytes are; null where they are none. */
function decoded(base64) {
  try {
    const raw = Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
    return new TextDecoder("utf-8", { fatal: true }).decode(raw);
  } catch {
    return null;
  }
}

/** Text that may be long; it can be reached and moved through by keys. */
function pre(text, title) {
  const cut = text.length > MOST_CHARACTERS;
  return [h("pre", { tabindex: "0", role: "group", "aria-label": title },
    cut ? text.slice(0, MOST_CHARACTERS) : text),
  cut ? h("p", { class: "quiet" }, `${whole(text.length - MOST_CHARACTERS)} more characters.`) : null];
}
