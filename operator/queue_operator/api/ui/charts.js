// Lines over time, drawn as SVG; each chart can be read as a table, too.

import { h, svg } from "./dom.js";
import { clock, day, short } from "./format.js";

const WIDTH = 640;
const HEIGHT = 190;
const LEFT = 64;
const BOTTOM = 22;
const TOP = 8;
const DAY_MS = 86400000;

/** A chart. `points` have `at` and `values`, one for each of `series`; null is no value. `told`
 * writes a value. */
export function chart(title, series, points, told = short) {
  const top = nice(Math.max(0, ...points.flatMap((one) => one.values.filter((v) => v !== null))));
  const long = points.length > 1 && points.at(-1).at - points[0].at > DAY_MS;
  const label = long ? day : clock;
  const drawing = svg("svg", {
    class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
    "aria-label": `${title}. ${series.map((name, n) => summary(name, n, points, told)).join("; ")}`,
  }, axes(top, points, told, label), series.map((_, n) => line(n, points, top)));
  return h("figure", {}, h("figcaption", {}, title), drawing, legend(series),
    asTable(title, series, points, told));
}

function summary(name, n, points, told) {
  const values = points.map((one) => one.values[n]).filter((value) => value !== null);
  if (!values.length) return `${name}: nothing`;
  return `${name}: last ${told(values.at(-1))}, most ${told(Math.max(...values))}`;
}

function nice(most) {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= most);
}

const x = (n, count) => LEFT + (n / Math.max(count - 1, 1)) * (WIDTH - LEFT - 8);
const y = (value, top) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);

function axes(top, points, told, label) {
  const levels = [0, 0.5, 1].map((part) => [
    svg("line", { class: "grid", x1: LEFT, x2: WIDTH - 8, y1: y(part * top, top), y2: y(part * top, top) }),
    svg("text", { x: LEFT - 6, y: y(part * top, top) + 4, "text-anchor": "end" }, told(part * top)),
  ]);
  const count = points.length;
  const places = count > 2 ? [0, Math.floor((count - 1) / 2), count - 1] : [];
  const anchors = ["start", "middle", "end"];
  const times = places.map((n, place) => svg("text", {
    x: x(n, count), y: HEIGHT - 5, "text-anchor": anchors[place],
  }, label(points[n].at)));
  return [levels, times];
}

function line(n, points, top) {
  let pen = "M";
  const steps = [];
  points.forEach((one, place) => {
    const value = one.values[n];
    if (value === null) {
      pen = "M";
      return;
    }
    steps.push(`${pen}${x(place, points.length).toFixed(1)} ${y(value, top).toFixed(1)}`);
    // A value that stands alone would have no length.
    if (pen === "M") steps.push("h0.1");
    pen = "L";
  });
  return svg("path", { class: `s${n + 1}`, d: steps.join(" ") || "M0 0" });
}

function legend(series) {
  return h("ul", { class: "legend" }, series.map((name, n) => h("li", {},
    svg("svg", { viewBox: "0 0 32 12", "aria-hidden": "true" },
      svg("path", { class: `s${n + 1}`, d: "M0 6 H32" })), ` ${name}`)));
}

function asTable(title, series, points, told) {
  const rows = () => points.toReversed().map((one) => h("tr", {},
    h("th", { scope: "row" }, day(one.at)),
    one.values.map((value) => h("td", { class: "number" }, value === null ? "–" : told(value)))));
  const body = h("tbody");
  const draw = (event) => event.target.open && body.replaceChildren(...rows());
  return h("details", { "data-key": `table ${title}`, ontoggle: draw },
    h("summary", { "data-key": `as table ${title}` }, `${title} as a table`),
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `${title} as a table` },
      h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "From"),
        series.map((name) => h("th", { scope: "col", class: "number" }, name)))), body)));
}
