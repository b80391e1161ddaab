// The page around the views: who reads, where they are, and when to look again.

import { announce, h, replace, said } from "./dom.js";
import { clock, keepUp } from "./format.js";
import { job } from "./job.js";
import { jobs } from "./jobs.js";
import { overview } from "./overview.js";
import { go, here, to } from "./routes.js";
import { ask, jobPath, Refused, token } from "./server.js";
import { webhooks } from "./webhooks.js";
import { workers } from "./workers.js";

const VIEWS = { overview, jobs, job, workers, webhooks };
const TITLES = { overview: "Overview", jobs: "Jobs", workers: "Workers", webhooks: "Webhooks" };
const EVERY_MS = 5000;
const MOST_MS = 60000;

const main = document.getElementById("main");
const freshness = document.getElementById("freshness");
let access = null;
let update = null;
let timer = 0;
let failures = 0;
let seenAt = null;
let turn = 0;

async function open(focus = true) {
  const mine = ++turn;
  clearTimeout(timer);
  update = null;
  const route = here();
  const named = route.params.get("ns");
  try {
    if (!access || (named && named !== access.namespace)) {
      access = await ask("GET", "access", { namespace: named });
    }
  } catch (error) {
    if (mine === turn) unable(error);
    return;
  }
  if (mine !== turn) return;
  const page = pageOf(access);
  chrome(route, page);
  const view = Object.hasOwn(VIEWS, route.view) ? VIEWS[route.view] : overview;
  const place = h("div");
  replace(main, place);
  document.title = `${route.id || titleOf(route.view)} – ${page.namespace} – Queue Operator`;
  seenAt = null;
  update = view(place, route, page);
  if (focus) main.querySelector("h1")?.focus();
  await look(mine);
}

function titleOf(view) {
  return Object.hasOwn(TITLES, view) ? TITLES[view] : TITLES.overview;
}

function pageOf(found) {
  return {
    access: found,
    namespace: found.namespace,
    ask,
    refresh: () => look(turn),
    to: (view, params = {}, id = "") => to(view, { ns: found.namespace, ...params }, id),
  };
}

async function look(mine) {
  clearTimeout(timer);
  if (!update || mine !== turn) return;
  try {
    await update();
    failures = 0;
    seenAt = new Date();
  } catch (error) {
    if (mine !== turn) return;
    failures += 1;
    if (error instanceof Refused && error.status === 401) {
      unable(error);
      return;
    }
    tellStale(error);
  }
  if (mine !== turn) return;
  if (!failures) tellFresh();
  later();
}

function later() {
  clearTimeout(timer);
  // Nobody sees a hidden page; it looks again as soon as it is shown.
  if (document.hidden) return;
  timer = setTimeout(() => look(turn), Math.min(EVERY_MS * 2 ** failures, MOST_MS));
}

function tellFresh() {
  freshness.className = "";
  freshness.textContent = `As of ${clock(seenAt)}, looked at every ${EVERY_MS / 1000} seconds.`;
}

function tellStale(error) {
  freshness.className = "stale";
  const since = seenAt ? `What is shown is of ${clock(seenAt)}. ` : "";
  freshness.textContent = `${since}${error.message}`;
  if (failures === 1) announce(`Not up to date: ${error.message}`);
}

function unable(error) {
  update = null;
  if (error instanceof Refused && error.status === 401) {
    login(token.get() ? error.message : "");
    return;
  }
  replace(main, h("h1", { tabindex: "-1" }, "The queue cannot be shown"),
    h("p", { class: "fault", role: "alert" }, error.message),
    h("button", { type: "button", onclick: () => open() }, "Try again"));
  failures += 1;
  timer = setTimeout(() => open(false), Math.min(EVERY_MS * 2 ** failures, MOST_MS));
}

function login(fault) {
  access = null;
  token.forget();
  document.title = "Sign in – Queue Operator";
  freshness.textContent = "";
  replace(document.getElementById("nav"));
  replace(document.getElementById("tools"));
  const input = h("input", { id: "token", type: "password", autocomplete: "off", required: true,
    spellcheck: "false", "aria-describedby": "token-help" });
  replace(main, h("section", { class: "login", "aria-labelledby": "sign-in" },
    h("h1", { id: "sign-in", tabindex: "-1" }, "Sign in"),
    h("form", {
      onsubmit: (event) => {
        event.preventDefault();
        token.set(input.value.trim());
        open();
      },
    }, h("div", { class: "field" }, h("label", { for: "token" }, "Token"), input),
    h("p", { id: "token-help", class: "quiet" }, "It is kept for this tab only. In a cluster: ",
      h("code", {}, "kubectl create token NAME --audience queue-operator")),
    fault ? h("p", { class: "fault", role: "alert" }, fault) : null,
    h("div", { class: "buttons" }, h("button", { type: "submit" }, "Sign in")))));
  input.focus();
}

function chrome(route, page) {
  document.getElementById("home").href = page.to("overview");
  replace(document.getElementById("nav"), h("ul", {}, Object.entries(TITLES).map(([view, title]) =>
    h("li", {}, h("a", { href: page.to(view), "data-key": view,
      "aria-current": route.view === view ? "page" : null }, title)))));
  replace(document.getElementById("tools"), finder(page), spaces(page),
    h("p", { class: "field quiet" }, said(page.access.name)),
    token.get() ? h("button", { type: "button", onclick: leave }, "Sign out") : null);
}

function leave() {
  token.forget();
  access = null;
  open();
}

function finder(page) {
  const input = h("input", { id: "find", type: "search", "data-key": "find" });
  return h("form", {
    role: "search",
    "aria-label": "Find a job",
    onsubmit: async (event) => {
      event.preventDefault();
      const text = input.value.trim();
      if (text) go(await place(text, page));
    },
  }, h("div", { class: "field" }, h("label", { for: "find" }, "Find: job id, type, or key=value"), input));
}

/** Where what somebody looks for is. */
async function place(text, page) {
  if (text.includes("=")) return page.to("jobs", { tag: text });
  try {
    await ask("GET", jobPath(text), { namespace: page.namespace });
    return page.to("job", {}, text);
  } catch {
    return page.to("jobs", { type: text });
  }
}

function spaces(page) {
  const known = h("datalist", { id: "spaces" }, page.access.namespaces.map((one) =>
    h("option", { value: one })));
  const input = h("input", { id: "space", list: "spaces", value: page.namespace, "data-key": "space" });
  return h("form", {
    "aria-label": "Namespace",
    onsubmit: (event) => {
      event.preventDefault();
      if (input.value.trim()) go(to("overview", { ns: input.value.trim() }));
    },
  }, h("div", { class: "field" }, h("label", { for: "space" }, "Namespace"), input, known));
}

window.addEventListener("hashchange", () => open());
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else look(turn);
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
setInterval(keepUp, 10000);
open(false);
