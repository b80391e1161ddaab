// Numbers and times as the reader's locale writes them, in the reader's zone.

import { h } from "./dom.js";

const WHOLE = new Intl.NumberFormat();
const SHORT = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
const SHARE = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 1 });
const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "short" });
const AGO = new Intl.RelativeTimeFormat(undefined, { numeric: "always", style: "short" });
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const LENGTHS = ["second", "minute", "hour", "day", "millisecond"].map((unit) => [unit,
  new Intl.NumberFormat(undefined, { style: "unit", unit, unitDisplay: "short",
    maximumSignificantDigits: 3 })]);
const LENGTH = Object.fromEntries(LENGTHS);
const ISO = /^(-)?P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?$/;

export const whole = (value) => WHOLE.format(value);
export const short = (value) => SHORT.format(value);
export const share = (value) => SHARE.format(value);

/** A count of things. */
export function many(count, one, more = `${one}s`) {
  return `${whole(count)} ${count === 1 ? one : more}`;
}

/** Seconds of a duration as the API writes it; null for none. */
export function seconds(iso) {
  const found = iso ? ISO.exec(iso) : null;
  if (!found) return null;
  const [, minus, days = 0, hours = 0, minutes = 0, rest = 0] = found;
  const total = days * 86400 + hours * 3600 + minutes * 60 + Number(rest);
  return minus ? -total : total;
}

/** A length of time in its largest unit; "–" for none. */
export function length(total) {
  if (total === null || total === undefined) return "–";
  if (total < 1) return LENGTH.millisecond.format(total * 1000);
  for (const [unit, size] of UNITS) if (total >= size) return LENGTH[unit].format(total / size);
  return LENGTH.second.format(total);
}

/** A moment: the time itself, and how long ago, which is kept up. */
export function moment(iso) {
  if (!iso) return null;
  const element = h("time", { datetime: iso, "data-at": iso }, "");
  age(element);
  return element;
}

function age(element) {
  const at = new Date(element.dataset.at);
  element.textContent = `${MOMENT.format(at)} (${ago(at)})`;
}

function ago(at) {
  const gone = (Date.now() - at) / 1000;
  for (const [unit, size] of UNITS) {
    if (Math.abs(gone) >= size) return AGO.format(-Math.trunc(gone / size), unit);
  }
  return AGO.format(0, "second");
}

/** Brings all that says how long ago up to date. */
export function keepUp() {
  document.querySelectorAll("time[data-at]").forEach(age);
}

export const clock = (at) => CLOCK.format(at);
export const day = (at) => DAY.format(at);

/** The states of jobs in words. */
export const STATES = {
  PENDING: "Waiting for others",
  DELAYED: "Delayed",
  SCHEDULED: "Ready",
  RUNNING: "Running",
  RETRYING: "Retrying",
  COMPLETED: "Completed",
  FAILED: "Failed",
  DEAD_LETTER: "Dead letter",
  CANCELLED: "Cancelled",
};

export function state(phase) {
  return h("span", { class: `state ${phase in STATES ? phase : ""}` }, STATES[phase] ?? phase);
}
