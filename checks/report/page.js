"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const [OP, SAMPLE, SURFACE, DTYPE, STATUS, ERROR, TOLERANCE, UNIT, SOURCE, ULP, COMPONENTWISE,
    SECONDS, CALLS, REPRO, TEXTS] = Array(15).keys();
  const EXACT = data.unit.indexOf("exact"), ULPS = data.unit.indexOf("ulp");
  const attention = ["fail", "stale", "pass", "excluded", "skipped"];

  // Every text below goes through textContent: nothing in the results is ever read as markup.
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children.filter((child) => child !== null));
    return element;
  };

  const rowsOf = new Map();
  for (const row of data.rows) {
    const key = `${row[OP]}/${row[SURFACE]}`;
    if (!rowsOf.has(key)) rowsOf.set(key, []);
    rowsOf.get(key).push(row);
  }

  const real = (value) => (value === "NaN" ? NaN : value === "inf" ? Infinity : value);
  const headroom = (row) => {
    if (row[ERROR] === null) return null;
    const error = real(row[ERROR]);
    if (error === 0) return 0;
    return row[TOLERANCE] ? error / real(row[TOLERANCE]) : Infinity;
  };
  const severity = (share) => (share === null ? -1 : Number.isNaN(share) ? Infinity : share);
  const short = (value) => {
    if (value === null) return "";
    if (typeof value !== "number") return String(value);
    const size = Math.abs(value);
    return size !== 0 && (size < 1e-3 || size >= 1e6)
      ? value.toExponential(2).replace(/\.?0+e/, "e").replace(/e([+-])(\d)$/, "e$10$2") : String(Number(value.toPrecision(3)));
  };
  const used = (share) => {
    if (share === null) return "";
    if (share === 0) return "=";
    if (!Number.isFinite(share)) return Number.isNaN(share) ? "NaN" : "inf";
    if (share >= 10) return `${share < 1e5 ? Math.round(share) : share.toExponential(0)}x`;
    const percent = 100 * share;
    return percent < 0.1 ? "<0.1%" : `${percent < 0.95 ? percent.toFixed(1) : Math.round(percent)}%`;
  };
  const levels = [1e-4, 1e-3, 1e-2, 1e-1, 0.5];
  const colour = (row) => {
    const status = data.status[row[STATUS]];
    if (status !== "pass") return { fail: "f", stale: "s", excluded: "e", skipped: "k" }[status];
    const share = severity(headroom(row));
    return share <= 0 ? "l0" : `l${1 + levels.filter((end) => share > end).length}`;
  };
  const time = (seconds) => (seconds < 1 ? `${short(seconds * 1e3)} ms` : `${short(seconds)} s`);
  const withUnit = (value, unit) => (value === null ? "" : unit === EXACT
    ? (value ? `${short(value)} differ` : "equal") : `${short(value)}${unit === ULPS ? " ulp" : ""}`);
  const repro = (row) => data.repro[row[REPRO]].replace(/[\u0001-\u0004]/g, (mark) => [
    data.op[row[OP]], data.sample[row[SAMPLE]], data.surface[row[SURFACE]], data.dtype[row[DTYPE]],
  ][mark.charCodeAt(0) - 1]);

  // The panel of one cell.
  const panel = document.getElementById("panel");
  let marked = null;

  const detail = (row) => {
    const texts = row[TEXTS] || {};
    const facts = [["reason", texts.reason], ["missing", texts.missing], ["at", texts.worst_index],
      ["got", texts.got], ["expected", texts.expected], ["seed", texts.seed],
      ["tolerance from", row[TOLERANCE] === null ? "" : data.source[row[SOURCE]]],
      ["calls", row[CALLS] || ""]].filter(([, value]) => value);
    const list = make("dl", {}, ...facts.map(([name, value]) =>
      make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))));
    if (texts.link) {
      const web = /^https?:\/\//.test(texts.link);
      const link = web ? make("a", { href: texts.link, rel: "noreferrer" }, texts.link) : texts.link;
      list.append(make("div", {}, make("dt", {}, "link"), make("dd", {}, link)));
    }
    const line = repro(row);
    return make("tr", { class: "detail" }, make("td", { colspan: 9 }, list,
      texts.message ? make("pre", {}, texts.message) : null,
      line ? make("pre", { class: "repro", title: "click to copy" }, line) : null));
  };

  const show = (op, surface) => {
    const rows = [...(rowsOf.get(`${data.op.indexOf(op)}/${data.surface.indexOf(surface)}`) || [])];
    const order = (row) => attention.indexOf(data.status[row[STATUS]]);
    rows.sort((a, b) => order(a) - order(b) || severity(headroom(b)) - severity(headroom(a)));
    const close = make("button", { type: "button", title: "Esc" }, "close");
    close.addEventListener("click", hide);
    const counts = attention.map((name) => [rows.filter((row) => data.status[row[STATUS]] === name).length, name]);
    const body = make("tbody");
    for (const row of rows) {
      const share = headroom(row);
      const status = data.status[row[STATUS]];
      const summary = make("tr", {},
        make("td", {}, make("span", { class: `tag ${status === "skipped" ? "k" : status[0]}` }, status)),
        make("td", {}, data.sample[row[SAMPLE]]), make("td", {}, data.dtype[row[DTYPE]]),
        make("td", { class: `num share ${colour(row)}` }, used(share)),
        make("td", { class: "num" }, withUnit(row[ERROR], row[UNIT])),
        make("td", { class: "num" }, row[UNIT] === EXACT ? (row[TOLERANCE] === null ? "" : "equal") : withUnit(row[TOLERANCE], row[UNIT])),
        make("td", { class: "num" }, short(row[ULP])), make("td", { class: "num" }, short(row[COMPONENTWISE])),
        make("td", { class: "num" }, time(row[SECONDS])));
      const more = detail(row);
      more.hidden = status === "pass" && rows.length > 1;
      summary.style.cursor = "pointer";
      summary.addEventListener("click", () => { more.hidden = !more.hidden; });
      body.append(summary, more);
    }
    const names = [["", ""], ["sample", ""], ["dtype", ""], ["of tolerance", "num"], ["error", "num"],
      ["tolerance", "num"], ["ulp", "num"], ["componentwise", "num"], ["time", "num"]];
    const head = make("tr", {}, ...names.map(([name, style]) => make("th", { class: style }, name)));
    panel.replaceChildren(
      make("div", { class: "head" }, make("h2", {}, `${op} \u00d7 ${surface}`),
        make("span", { class: "soft" }, counts.filter(([n]) => n).map((pair) => pair.join(" ")).join(", ") || "no results"), close),
      make("div", { class: "soft" }, rows.length ? "A click on a sample shows or hides its details." : ""),
      make("table", { class: "list" }, make("thead", {}, head), body));
    panel.hidden = false;
    panel.scrollTop = 0;
    mark(op, surface);
  };

  const mark = (op, surface) => {
    if (marked) marked.classList.remove("at");
    const address = `#${encode(op)}/${encode(surface)}`;
    const link = [...document.querySelectorAll(".matrix td a")].find((a) => a.getAttribute("href") === address);
    marked = link ? link.parentElement : null;
    if (marked) marked.classList.add("at");
  };
  // Python's quote() also escapes what encodeURIComponent leaves alone.
  const encode = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);

  const hide = () => {
    panel.hidden = true;
    if (marked) marked.classList.remove("at");
    if (location.hash.includes("/")) history.replaceState(null, "", location.pathname + location.search);
  };
  const route = () => {
    const [op, surface] = location.hash.slice(1).split("/");
    if (surface === undefined) return;
    show(decodeURIComponent(op), decodeURIComponent(surface));
  };
  addEventListener("hashchange", route);
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (link && link.hash === location.hash && link.hash.includes("/")) route();
    if (event.target.matches("pre.repro") && navigator.clipboard) navigator.clipboard.writeText(event.target.textContent);
  });

  // The filter: a status, a surface, else a part of an op's name (or of surfaces' names where no op
  // has it); "op:", "surface:" and "status:" say which. Surfaces add up, statuses add up, op words must all match.
  const filter = document.getElementById("filter");
  const lines = [...document.querySelectorAll(".matrix tbody tr")].map((line) => ({
    line, op: line.firstElementChild.textContent, cells: [...line.children].slice(1),
  }));
  const heads = [...document.querySelectorAll(".matrix thead th")];
  const statuses = (opIndex, surfaces) => {
    const found = new Set();
    for (const s of surfaces) for (const row of rowsOf.get(`${opIndex}/${s}`) || []) found.add(data.status[row[STATUS]]);
    return found;
  };
  const columns = heads.slice(1).map((_, column) => data.surface.indexOf(columnName(column)));
  function columnName(column) { return heads[column + 1].title.replace(/^sort by /, ""); }

  const apply = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const names = heads.slice(1).map((_, column) => columnName(column).toLowerCase());
    const ops = [], wanted = [], states = [];
    const isOp = (text) => lines.some(({ op }) => op.toLowerCase().includes(text));
    for (const word of words) {
      const [, kind, text] = /^(?:(op|surface|status):)?(.*)$/.exec(word);
      if (kind === "status" || (!kind && data.status.includes(text))) states.push(text);
      else if (!kind && names.includes(text)) wanted.push((name) => name === text);
      else if (kind === "surface" || (!kind && !isOp(text) && names.some((name) => name.includes(text)))) {
        wanted.push((name) => name.includes(text));
      } else ops.push(text);
    }
    const visible = names.map((name) => !wanted.length || wanted.some((fits) => fits(name)));
    heads.slice(1).forEach((head, column) => { head.hidden = !visible[column]; });
    const shownColumns = columns.filter((_, column) => visible[column]);
    let shown = 0;
    for (const { line, op, cells } of lines) {
      const found = states.length ? statuses(data.op.indexOf(op), shownColumns) : null;
      line.hidden = !(ops.every((text) => op.toLowerCase().includes(text))
        && (!found || states.some((state) => [...found].some((name) => name.startsWith(state)))));
      shown += !line.hidden;
      cells.forEach((cell, column) => { cell.hidden = !visible[column]; });
    }
    document.getElementById("count").textContent = words.length ? `${shown} of ${lines.length} ops` : "";
  };
  if (filter) filter.addEventListener("input", apply);

  // A click on a surface sorts by it, what asks for attention first; on "op" by name.
  const weight = (op, surface) => Math.max(-2, ...(rowsOf.get(`${op}/${surface}`) || []).map((row) => {
    const status = data.status[row[STATUS]];
    return status === "fail" ? 1e300 : status === "stale" ? 1e299
      : status === "pass" ? Math.min(severity(headroom(row)), 1e298) : -1.5;
  }));
  heads.forEach((head, place) => head.addEventListener("click", () => {
    heads.forEach((other) => other.classList.toggle("sorted", other === head));
    const surface = place ? columns[place - 1] : null;
    const keyed = lines.map((item) => [surface === null ? 0 : weight(data.op.indexOf(item.op), surface), item]);
    keyed.sort(([a, first], [b, second]) => b - a || (first.op < second.op ? -1 : 1));
    document.querySelector(".matrix tbody").append(...keyed.map(([, item]) => item.line));
  }));

  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  route();
})();
