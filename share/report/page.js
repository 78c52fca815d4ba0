// Draws the charts of a page of gpt-report from the JSON that is in it. Nothing
// is fetched. Reading order: state, axes, curves, a chart, controls.
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const WIDTH = 640, HEIGHT = 300, LEFT = 62, RIGHT = 12, TOP = 10, BOTTOM = 26;
const MOST_ROWS = 500; // of a table of values
// Colours that differ for all kinds of sight, on light and on dark.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900",
                 "#56b4e9", "#8c6bb1", "#7f7f7f"];
const DASHES = ["", "6 4", "2 3", "10 3 2 3", "1 4", "14 4", "5 2 1 2",
                "8 2 2 2 2 2"];

const state = {
    axis: "iteration", logX: false, logY: data.log, smoothing: data.smoothing,
    hidden: new Set(), part: null, // [from, to] of the axis; null: all
};
const charts = [];
const $ = id => document.getElementById(id);

function element(name, attributes, parent) {
    const svg = ["svg", "g", "path", "line", "text", "rect", "circle"];
    const e = svg.includes(name)
        ? document.createElementNS("http://www.w3.org/2000/svg", name)
        : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {}))
        if (key === "text") e.textContent = value;
        else e.setAttribute(key, value);
    if (parent) parent.appendChild(e);
    return e;
}

// ---- axes ----

// Samples and seconds at an iteration, between the points that the page has.
function along(run, iteration) {
    if (state.axis === "iteration") return iteration;
    const from = run.axes.iteration, to = run.axes[state.axis];
    let low = 0, high = from.length - 1;
    while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (from[middle] <= iteration) low = middle; else high = middle;
    }
    if (high <= low || from[high] === from[low]) return to[low];
    const t = (iteration - from[low]) / (from[high] - from[low]);
    return to[low] + t * (to[high] - to[low]);
}

// Halves, here and below: the difference of two numbers may be none.
function makeScale(from, to, log, a, b) {
    const f = log ? Math.log : v => v, g = log ? Math.exp : v => v;
    const low = f(from), size = (f(to) / 2 - low / 2) || 1;
    return {
        from, to, log,
        place: v => a + (f(v) / 2 - low / 2) / size * (b - a),
        value: p => g(low + (p - a) / (b - a) * size * 2),
    };
}

function ticks(scale, n) {
    const made = [];
    if (scale.log && scale.to / scale.from >= 100) {
        const decades = Math.log10(scale.to / scale.from);
        const step = Math.max(1, Math.ceil(decades / n));
        for (let e = Math.ceil(Math.log10(scale.from) - 1e-9);
             10 ** e <= scale.to * (1 + 1e-9); e += step)
            made.push(10 ** e);
        return made;
    }
    const rough = (scale.to / 2 - scale.from / 2) / n * 2;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(k => k * power).find(s => s >= rough);
    // Finer than numbers are: counting would not go on.
    if (!(step > 1e-15 * Math.max(Math.abs(scale.from), Math.abs(scale.to))))
        return [scale.from];
    for (let i = Math.ceil(scale.from / step - 1e-9);
         i * step <= scale.to + step * 1e-9; i++)
        made.push(i * step + 0); // + 0: zero has no sign
    return made;
}

function show(v) {
    if (v === null || !isFinite(v)) return "not finite";
    const size = Math.abs(v);
    if (size !== 0 && (size < 1e-3 || size >= 1e9)) return v.toExponential(3);
    if (Number.isInteger(v)) return v.toLocaleString("en");
    return String(+v.toPrecision(5));
}

function showAxis(v) {
    if (state.axis !== "seconds") return show(v);
    if (v < 90) return show(v) + " s";
    if (v < 5400) return show(v / 60) + " min";
    return show(v / 3600) + " h";
}

// ---- curves ----

// Exponential mean over the points, without the pull of the first value.
// What is not finite is a gap and does not count.
function smooth(y, weight) {
    if (weight === 0) return y;
    let mean = 0, sum = 0;
    return y.map(v => {
        if (v === null) return null;
        mean = weight * mean + (1 - weight) * v;
        sum = weight * sum + (1 - weight);
        return mean / sum;
    });
}

function curvesOf(chart) {
    const curves = [];
    data.runs.forEach((run, r) => chart.fields.forEach((field, f) => {
        const series = run.series[field];
        if (!series || state.hidden.has(r)) return;
        const x = series.x.map(i => along(run, i));
        curves.push({run, r, f, field, x, raw: series.y,
                     y: smooth(series.y, state.smoothing)});
    }));
    return curves;
}

function bounds(curves, part) {
    let x = [Infinity, -Infinity], y = [Infinity, -Infinity];
    for (const c of curves)
        c.x.forEach((at, i) => {
            if (part && (at < part[0] || at > part[1])) return;
            if (state.logX && at <= 0) return;
            x = [Math.min(x[0], at), Math.max(x[1], at)];
            const v = c.y[i];
            if (v === null || (state.logY && v <= 0)) return;
            y = [Math.min(y[0], v), Math.max(y[1], v)];
        });
    if (part) x = part;
    if (y[0] > y[1]) y = state.logY ? [1, 10] : [0, 1];
    // Smooth values of a constant differ in their last digits.
    const size = Math.max(Math.abs(y[0]), Math.abs(y[1]));
    const flat = y[1] - y[0] <= 1e-9 * size, most = Number.MAX_VALUE;
    const pad = flat ? size * 0.1 || 1 : 0.04 * y[1] - 0.04 * y[0];
    if (!state.logY) y = [Math.max(y[0] - pad, -most), Math.min(y[1] + pad, most)];
    else if (flat) y = [y[0] / 2, Math.min(y[1] * 2, most)];
    return {x, y};
}

// A gap where a value is missing, or where a run went back.
function path(x, y, sx, sy) {
    let d = "", pen = false, last = -Infinity;
    x.forEach((at, i) => {
        const v = y[i];
        if (v === null || (sy.log && v <= 0) || (sx.log && at <= 0)) {
            pen = false;
            return;
        }
        if (at < last) pen = false;
        last = at;
        d += (pen ? "L" : "M") + sx.place(at).toFixed(2) + "," +
             sy.place(v).toFixed(2);
        pen = true;
    });
    return d;
}

// ---- a chart ----

function drawAxes(g, sx, sy) {
    for (const v of ticks(sy, 5)) {
        const y = sy.place(v);
        element("line", {class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y}, g);
        element("text", {x: LEFT - 6, y: y + 4, "text-anchor": "end", text: show(v)}, g);
    }
    for (const v of ticks(sx, 5)) {
        const x = sx.place(v);
        element("line", {class: "grid", x1: x, x2: x, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4}, g);
        element("text", {x, y: HEIGHT - 8, "text-anchor": "middle", text: showAxis(v)}, g);
    }
}

// Where a run was resumed: its lines count how often that happened before them.
function drawMarks(g, sx) {
    data.runs.forEach((run, r) => {
        const series = run.series.restarts;
        if (!series || state.hidden.has(r)) return;
        series.x.forEach((iteration, i) => {
            const before = i > 0 ? series.y[i - 1] : 0;
            const at = along(run, iteration);
            if (!(series.y[i] > before) || at < sx.from || at > sx.to) return;
            const line = element("line", {
                class: "mark", x1: sx.place(at), x2: sx.place(at), y1: TOP,
                y2: HEIGHT - BOTTOM, stroke: COLOURS[r % COLOURS.length],
                "data-run": run.name, "data-iteration": iteration}, g);
            const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
            title.textContent = `${run.name}: restart ${series.y[i]}`;
            line.appendChild(title);
        });
    });
}

function drawCurves(g, curves, sx, sy, clip) {
    for (const c of curves) {
        const common = {stroke: COLOURS[c.r % COLOURS.length],
                        "clip-path": `url(#${clip})`};
        if (state.smoothing > 0)
            element("path", {...common, class: "raw", d: path(c.x, c.raw, sx, sy)}, g);
        element("path", {...common, class: "curve", d: path(c.x, c.y, sx, sy),
                         "stroke-dasharray": DASHES[c.f % DASHES.length],
                         "data-run": c.run.name, "data-field": c.field,
                         "data-points": c.x.length}, g);
        if (c.x.length === 1 && c.y[0] !== null)
            element("circle", {cx: sx.place(c.x[0]), cy: sy.place(c.y[0]), r: 3,
                               fill: common.stroke, "clip-path": common["clip-path"]}, g);
    }
}

function describe(chart, curves) {
    const lasts = curves.map(c => {
        const y = c.raw.filter(v => v !== null);
        return `${c.run.name} ${c.field}: last ${show(y[y.length - 1] ?? null)}` +
               `, least ${show(y.length ? y.reduce((a, b) => Math.min(a, b)) : null)}`;
    });
    return `${chart.title}${chart.unit ? " in " + chart.unit : ""}. ${lasts.join(". ")}`;
}

function draw(c) {
    const curves = curvesOf(c.chart), box = bounds(curves, state.part);
    c.plot.replaceChildren();
    c.svg.setAttribute("aria-label", describe(c.chart, curves));
    c.curves = curves;
    c.sx = c.sy = null;
    if (box.x[0] > box.x[1]) return;
    c.sx = makeScale(box.x[0], box.x[1], state.logX, LEFT, WIDTH - RIGHT);
    c.sy = makeScale(box.y[0], box.y[1], state.logY, HEIGHT - BOTTOM, TOP);
    drawAxes(c.plot, c.sx, c.sy);
    drawMarks(c.plot, c.sx);
    drawCurves(c.plot, curves, c.sx, c.sy, c.clip);
    c.svg.setAttribute("data-from", box.x[0]);
    c.svg.setAttribute("data-to", box.x[1]);
    if (c.details.open) fillTable(c);
}

function drawAll() { charts.forEach(draw); }

function nearest(x, at) {
    let best = -1;
    x.forEach((v, i) => {
        if (best < 0 || Math.abs(v - at) < Math.abs(x[best] - at)) best = i;
    });
    return best;
}

function readAt(c, at) {
    c.over.replaceChildren();
    const place = c.sx.place(at);
    element("line", {class: "cursor", x1: place, x2: place, y1: TOP, y2: HEIGHT - BOTTOM}, c.over);
    const said = c.curves.map(curve => {
        const i = nearest(curve.x, at), v = curve.y[i];
        if (i < 0) return "";
        if (v !== null && (!c.sy.log || v > 0))
            element("circle", {cx: c.sx.place(curve.x[i]), cy: c.sy.place(v), r: 3,
                               fill: COLOURS[curve.r % COLOURS.length]}, c.over);
        return `${curve.run.name} ${curve.field} ${show(v)}`;
    });
    c.reading.textContent = `${showAxis(at)}: ${said.filter(Boolean).join(", ")}`;
}

function fillTable(c) {
    const table = element("table"), head = element("tr", {}, element("thead", {}, table));
    const body = element("tbody", {}, table);
    for (const text of ["run", "field", state.axis, "value"])
        element("th", {text, scope: "col"}, head);
    for (const curve of c.curves) {
        const step = Math.max(1, Math.ceil(curve.x.length / MOST_ROWS));
        for (let i = 0; i < curve.x.length; i += step) {
            const row = element("tr", {}, body);
            for (const text of [curve.run.name, curve.field, showAxis(curve.x[i]), show(curve.raw[i])])
                element("td", {text}, row);
        }
    }
    c.table.replaceChildren(table);
}

// All charts show the same part.
function showPart(from, to) {
    state.part = to > from ? [from, to] : null;
    drawAll();
}

function zoom(c, factor, shift) {
    if (!c.sx) return;
    const a = LEFT, b = WIDTH - RIGHT, size = (b - a) * factor;
    const middle = (a + b) / 2 + shift * (b - a);
    showPart(c.sx.value(middle - size / 2), c.sx.value(middle + size / 2));
}

function listen(c) {
    let start = null, brush = null;
    const at = e => {
        const box = c.svg.getBoundingClientRect();
        const x = (e.clientX - box.left) / box.width * WIDTH;
        return Math.min(Math.max(x, LEFT), WIDTH - RIGHT);
    };
    c.svg.addEventListener("pointerdown", e => {
        if (!c.sx || e.button !== 0) return;
        start = at(e);
        brush = element("rect", {class: "brush", x: start, width: 0, y: TOP, height: HEIGHT - TOP - BOTTOM}, c.svg);
        c.svg.setPointerCapture(e.pointerId);
    });
    c.svg.addEventListener("pointermove", e => {
        if (!c.sx) return;
        if (brush) {
            brush.setAttribute("x", Math.min(start, at(e)));
            brush.setAttribute("width", Math.abs(at(e) - start));
        }
        readAt(c, c.sx.value(at(e)));
    });
    const end = e => {
        if (!brush) return;
        const from = Math.min(start, at(e)), to = Math.max(start, at(e));
        brush.remove();
        brush = null;
        if (to - from > 4) showPart(c.sx.value(from), c.sx.value(to));
    };
    c.svg.addEventListener("pointerup", end);
    c.svg.addEventListener("pointercancel", () => { if (brush) brush.remove(); brush = null; });
    c.svg.addEventListener("pointerleave", () => { c.over.replaceChildren(); c.reading.textContent = ""; });
    c.svg.addEventListener("dblclick", () => showPart(0, 0));
    c.svg.addEventListener("keydown", e => {
        const acts = {
            "+": () => zoom(c, 0.5, 0), "=": () => zoom(c, 0.5, 0), "-": () => zoom(c, 2, 0),
            ArrowLeft: () => zoom(c, 1, -0.25), ArrowRight: () => zoom(c, 1, 0.25),
            0: () => showPart(0, 0), Home: () => showPart(0, 0),
        };
        if (!acts[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
        acts[e.key]();
        e.preventDefault();
    });
    c.details.addEventListener("toggle", () => { if (c.details.open) fillTable(c); });
}

function addChart(chart, n) {
    const figure = element("figure", {}, $("charts"));
    const caption = element("figcaption", {}, figure);
    element("span", {text: chart.title}, caption);
    if (chart.unit) element("span", {class: "unit", text: chart.unit}, caption);
    if (chart.fields.length > 1)
        chart.fields.forEach((field, f) => {
            const key = element("span", {class: "key", text: field}, caption);
            const line = element("svg", {width: 28, height: 6, "aria-hidden": "true"});
            element("line", {x1: 0, x2: 28, y1: 3, y2: 3, stroke: "currentColor", "stroke-width": 2,
                             "stroke-dasharray": DASHES[f % DASHES.length]}, line);
            key.prepend(line, " ");
        });
    const svg = element("svg", {class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, tabindex: 0,
                                role: "img", "data-title": chart.title}, figure);
    const clip = `clip${n}`, mask = element("g", {}, svg);
    const region = document.createElementNS("http://www.w3.org/2000/svg", "clipPath");
    region.id = clip;
    element("rect", {x: LEFT, y: TOP - 2, width: WIDTH - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM + 4}, region);
    mask.appendChild(region);
    const c = {chart, svg, clip, plot: element("g", {}, svg), over: element("g", {}, svg)};
    c.reading = element("div", {class: "reading", "aria-live": "polite"}, figure);
    c.details = element("details", {}, figure);
    element("summary", {text: "Values"}, c.details);
    c.table = element("div", {class: "wide"}, c.details);
    charts.push(c);
    listen(c);
}

// ---- controls ----

function addLegend() {
    data.runs.forEach((run, r) => {
        const label = element("label", {}, $("legend"));
        const box = element("input", {type: "checkbox"}, label);
        box.checked = true;
        const swatch = element("span", {class: "swatch"}, label);
        swatch.style.background = COLOURS[r % COLOURS.length];
        label.append(run.name);
        box.addEventListener("change", () => {
            if (box.checked) state.hidden.delete(r); else state.hidden.add(r);
            drawAll();
        });
    });
}

function setUp() {
    const on = (id, event, act) => $(id).addEventListener(event, () => { act($(id)); drawAll(); });
    $("smoothing").value = state.smoothing;
    $("smoothing-value").textContent = state.smoothing;
    $("log-y").checked = state.logY;
    on("axis", "change", e => { state.axis = e.value; state.part = null; });
    on("log-x", "change", e => { state.logX = e.checked; state.part = null; });
    on("log-y", "change", e => { state.logY = e.checked; });
    on("reset", "click", () => { state.part = null; });
    on("smoothing", "input", e => {
        state.smoothing = +e.value;
        $("smoothing-value").textContent = e.value;
    });
    $("theme").addEventListener("click", () => {
        const root = document.documentElement;
        const dark = root.dataset.theme ? root.dataset.theme === "dark"
                                        : matchMedia("(prefers-color-scheme: dark)").matches;
        root.dataset.theme = dark ? "light" : "dark";
    });
    addLegend();
    data.charts.forEach(addChart);
    drawAll();
}

setUp();
})();
