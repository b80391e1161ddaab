// Changes, each behind a question that says what will change, and how to do the same in a shell.

import { announce, command, h, quoted, replace, said } from "./dom.js";
import { many, whole } from "./format.js";
import { ask, jobPath } from "./server.js";

const MOST_ROUNDS = 1000;

/** Asks, and runs `run` if that is wanted; it gives what to say afterwards. `prepare`, if there is
 * one, gives what is shown first, and false where nothing is to be done. */
function question({ title, about, line, label, prepare, fields = [], run, done }) {
  const fault = h("p", { class: "fault", role: "alert" });
  const shown = h("div", { "aria-live": "polite" }, about);
  const confirm = h("button", { type: "submit", class: "danger", disabled: Boolean(prepare) }, label);
  const close = h("button", { type: "button", onclick: () => dialog.close() }, "Leave it");
  const name = `dialog-${Date.now()}`;
  const form = h("form", {
    onsubmit: async (event) => {
      event.preventDefault();
      confirm.disabled = true;
      fault.textContent = "";
      try {
        const told = await run((text) => replace(shown, h("p", {}, text)));
        // What stands behind an open dialog is not read aloud.
        dialog.close();
        announce(told);
        done();
      } catch (error) {
        fault.textContent = error.message;
        confirm.disabled = false;
      }
    },
  }, h("h2", { id: name }, title), shown, fields, line ? [h("p", { class: "quiet" }, "In a shell:"),
    command(line)] : null, fault, h("div", { class: "buttons" }, confirm, close));
  const dialog = h("dialog", { "aria-labelledby": name, onclose: () => dialog.remove() }, form);
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
  prepare?.(shown).then((go) => { confirm.disabled = !go; },
    (error) => { fault.textContent = error.message; });
}

function field(label, input) {
  const id = `field-${label.replaceAll(/\W/g, "-")}-${Date.now()}`;
  input.id = id;
  return h("div", { class: "field" }, h("label", { for: id }, label), input);
}

const within = (ns) => `--namespace ${quoted(ns)}`;

/** A line for the shell about something that has a name; that may begin as an option does. */
function shell(words, name, ns, more = "") {
  return name.startsWith("-") ? `queue-operator ${words}${more} ${within(ns)} -- ${quoted(name)}`
    : `queue-operator ${words} ${quoted(name)}${more} ${within(ns)}`;
}

/** The lines for the shell of what can be done with a job. */
export function lines(job) {
  const of = (words, more) => shell(words, job.job_id, job.namespace, more);
  return {
    look: of("get"),
    why: of("why"),
    logs: of("logs"),
    cancel: of("cancel"),
    retry: of("retry"),
    again: of("retry", " --reset-attempts"),
    suspend: of("suspend"),
    resume: `queue-operator resume --job ${quoted(job.job_id)} ${within(job.namespace)}`,
  };
}

export function cancelJob(job, done) {
  const reason = h("input", { maxlength: "1000" });
  const force = h("input", { type: "checkbox" });
  question({
    title: "Cancel this job?",
    about: h("p", {}, "A job that waits ends at once; a running one is asked to stop: ",
      said(job.job_id)),
    line: lines(job).cancel,
    label: "Cancel the job",
    fields: [field("Reason", reason), h("p", {}, h("label", {}, force, " Interrupt its handler"))],
    run: async () => (await ask("POST", jobPath(job.job_id, "/cancel"), { namespace: job.namespace },
      { reason: reason.value, force: force.checked })).message,
    done,
  });
}

export function retryJob(job, done) {
  const reset = h("input", { type: "checkbox", checked: true });
  question({
    title: "Try this job again?",
    about: h("p", {}, "It waits in line again: ", said(job.job_id)),
    line: lines(job).again,
    label: "Retry the job",
    fields: [h("p", {}, h("label", {}, reset, " Count its attempts from the start"))],
    run: async () => {
      const told = await ask("POST", jobPath(job.job_id, "/retry"), { namespace: job.namespace },
        { reset_attempts: reset.checked });
      return told.message ?? "The job is tried again.";
    },
    done,
  });
}

export function suspendJob(job, on, done) {
  question({
    title: on ? "Suspend this job?" : "Resume this job?",
    about: h("p", {}, on ? "No attempt of it begins until it is resumed: "
      : "It may start again, and has its place in line: ", said(job.job_id)),
    line: on ? lines(job).suspend : lines(job).resume,
    label: on ? "Suspend the job" : "Resume the job",
    run: async () => (await ask("POST", jobPath(job.job_id, on ? "/suspend" : "/resume"),
      { namespace: job.namespace })).message,
    done,
  });
}

/** A filter as options of the commands. */
function options(filter) {
  const words = [];
  const add = (name, values) => values?.forEach((one) => words.push(`--${name} ${quoted(one)}`));
  add("type", filter.types);
  add("state", filter.states);
  add("tag", Object.entries(filter.tags ?? {}).map(([key, value]) => (value ? `${key}=${value}` : key)));
  if (filter.error_code) words.push(`--code ${quoted(filter.error_code)}`);
  if (filter.created_after) words.push(`--created-after ${filter.created_after}`);
  if (filter.created_before) words.push(`--created-before ${filter.created_before}`);
  if (filter.all) words.push("--all");
  return words.join(" ");
}

/** Cancels, or tries again, all that a filter finds, after a count of what that would be. */
export function changeMany(kind, ns, filter, done) {
  const cancels = kind === "cancel";
  const key = cancels ? "cancelled" : "queued";
  const send = (dry) => ask("POST", `jobs/${kind}`, { namespace: ns },
    { filter, dry_run: dry, ...(cancels ? {} : { reset_attempts: true }) });
  question({
    title: cancels ? "Cancel all of these jobs?" : "Try all of these jobs again?",
    about: h("p", {}, "Counting…"),
    line: `queue-operator ${kind} ${options(filter)} ${cancels ? "" : "--reset-attempts "}${within(ns)}`,
    label: cancels ? "Cancel them" : "Retry them",
    prepare: async (shown) => {
      const some = await counted(shown, send, key, "job", cancels ? "would be cancelled" : "would be tried again");
      if (filter.all) {
        shown.append(h("p", { class: "fault" }, "That is every one in the namespace ", said(ns)));
      }
      return some;
    },
    run: (progress) => repeated(progress, send, key, "job", cancels ? "cancelled" : "tried again"),
    done,
  });
}

export function pause(ns, type, done) {
  const reason = h("input", { maxlength: "1000" });
  question({
    title: type ? "Pause this type?" : "Pause the whole namespace?",
    about: h("p", {}, "What runs goes on; nothing of it starts until somebody resumes it: ",
      said(type || ns)),
    line: type ? shell("pause", type, ns) : `queue-operator pause --yes ${within(ns)}`,
    label: "Pause",
    fields: [field("Reason", reason)],
    run: async () => {
      await ask("PUT", "pauses", { namespace: ns }, { reason: reason.value, ...(type ? { type } : {}) });
      return "Paused.";
    },
    done,
  });
}

export function resume(ns, type, done) {
  question({
    title: type ? "Resume this type?" : "Resume the namespace?",
    about: h("p", {}, "Its jobs start again: ", said(type || ns)),
    line: type ? shell("resume", type, ns) : `queue-operator resume ${within(ns)}`,
    label: "Resume",
    run: async () => {
      await ask("DELETE", "pauses", { namespace: ns, type });
      return "Resumed.";
    },
    done,
  });
}

/** The lines for the shell about one message. */
export function messageLines(message, mayChange) {
  const of = (words) => `queue-operator webhooks ${words} ${quoted(message.id)} ${within(message.namespace)}`;
  return [of("show"), mayChange && message.state !== "PENDING" ? of("redeliver") : null].filter(Boolean);
}

export function redeliver(message, done) {
  question({
    title: "Send this message again?",
    about: h("p", {}, "Under the same id, beginning now, as if it had never been tried: ",
      said(message.url)),
    line: messageLines(message, true).at(-1),
    label: "Send it",
    run: async () => {
      const told = await ask("POST", "webhooks/redeliver", { namespace: message.namespace },
        { ids: [message.id] });
      return told.redelivered ? "The message is sent again." : "It is to be told already, or gone.";
    },
    done,
  });
}

/** Sends again, or deletes, all messages in a state, after a count of what that would be. */
export function changeMessages(kind, ns, state, done) {
  const sends = kind === "redeliver";
  const key = sends ? "redelivered" : "purged";
  const send = (dry) => ask("POST", `webhooks/${kind}`, { namespace: ns }, { state, dry_run: dry });
  question({
    title: sends ? "Send all of these messages again?" : "Purge all of these messages?",
    about: h("p", {}, "Counting…"),
    line: `queue-operator webhooks ${kind} --state ${state} ${within(ns)}`,
    label: sends ? "Send them" : "Purge them",
    prepare: (shown) => counted(shown, send, key, "message", sends ? "would be sent again"
      : "would be deleted, and never be sent again"),
    run: (progress) => repeated(progress, send, key, "message", sends ? "sent again" : "purged"),
    done,
  });
}

async function counted(shown, send, key, noun, what) {
  const told = await send(true);
  const least = told.has_more ? "More than " : "";
  replace(shown, h("p", {}, h("strong", {}, least, many(told[key], noun)), ` ${what}`,
    told.skipped ? `, ${whole(told.skipped)} skipped.` : "."));
  return told[key] > 0;
}

async function repeated(progress, send, key, noun, what) {
  let changed = 0;
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const told = await send(false);
    changed += told[key];
    progress(`${many(changed, noun)} so far…`);
    if (!told.has_more || !told[key]) break;
  }
  return `${many(changed, noun)} ${what}.`;
}
