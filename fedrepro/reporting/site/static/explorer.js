// Every printed number next to ours: filters, a table that sorts, and a picture of both. No library, no request.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("fr-data").textContent);
  const rows = data.rows.map((cells, place) =>
    Object.assign({ place }, ...data.columns.map((name, i) => ({ [name]: cells[i] }))));
  const NUMBERS = new Set(["clients", "printed", "ours", "difference", "runs"]);
  const FACETS = [["paper", "Paper"], ["table", "Table"], ["dataset", "Data set"], ["method", "Method"],
    ["metric", "Number"], ["word", "Word"], ["reading", "Reading"], ["provenance", "Provenance"]];
  const several = (name) => new Set(rows.map((row) => row[name])).size > 1;
  const COLUMNS = [["paper", "paper"], ["table", "table"], ["dataset", "data set"], ["clients", "clients"],
    ["method", "method"], ["setting", "setting"], ["metric", "number"], ["printed", "printed"], ["ours", "ours"],
    ["difference", "difference"], ["runs", "runs"], ["word", "word"], ["reading", "reading"],
    ["provenance", "provenance"]].filter(([name]) => several(name));
  const STEP = 200;
  const chosen = {};
  let search = "", sorted = "", down = false, limit = STEP;

  const SVG = "http://www.w3.org/2000/svg";
  const fill = (element, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
  const number = (text) => { const value = parseFloat(text); return Number.isNaN(value) ? -Infinity : value; };
  const signed = (text) => (text && number(text) > 0 ? `+${text}` : text);
  const style = (word) => `fr-word-${Object.keys(data.looks).indexOf(word)}`;
  const what = (row) => [row.paper, row.table, row.dataset, row.clients && `${row.clients} clients`, row.method,
    row.setting].filter(Boolean).join(", ");

  const MARKS = {
    circle: "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z", square: "M-3.6,-3.6h7.2v7.2h-7.2z", triangle: "M0,-4.8L4.6,3.6H-4.6z",
    diamond: "M0,-5L5,0L0,5L-5,0z", cross: "M-3,-3L3,3M-3,3L3,-3", down: "M0,4.8L4.6,-3.6H-4.6z", ring: "M-3.6,0a3.6,3.6 0 1,0 7.2,0a3.6,3.6 0 1,0 -7.2,0z",
  };
  const mark = (word, attributes = {}) => {
    const shape = data.looks[word][2];
    return svg("path", { d: MARKS[shape], class: `fr-mark fr-${shape} ${style(word)}`, ...attributes });
  };

  // colours of the words, one rule a theme
  document.head.append(html("style", {}, Object.entries(data.looks).map(([word, [light, dark]]) =>
    `.${style(word)} { --fr: ${light}; } html[data-theme="dark"] .${style(word)} { --fr: ${dark}; }`).join("\n")));

  const fits = (row, but) => FACETS.every(([name]) => name === but || !(name in chosen) || row[name] === chosen[name])
    && search.toLowerCase().split(/\s+/).every((word) => row.text.includes(word));
  for (const row of rows) row.text = data.columns.map((name) => row[name]).join(" ").toLowerCase();

  const root = document.getElementById("fr-explorer");
  root.replaceChildren();
  const selects = Object.fromEntries(FACETS.filter(([name]) => several(name)).map(([name]) => {
    const select = html("select", { id: `fr-${name}` });
    select.addEventListener("change", () => choose(name, select.value));
    return [name, select];
  }));
  const field = html("input", { type: "search", id: "fr-search", placeholder: "any text" });
  field.addEventListener("input", () => { search = field.value; limit = STEP; draw(); });
  const reset = html("button", { type: "button" }, "Reset");
  reset.addEventListener("click", () => {
    Object.keys(chosen).forEach((name) => delete chosen[name]);
    search = field.value = "";
    sorted = "";
    limit = STEP;
    draw();
  });
  const status = html("p", { role: "status", id: "fr-status" });
  const picture = html("figure", { id: "fr-picture" });
  const readout = html("figcaption", {}, "Point at a mark to read what it is.");
  const head = html("thead"), body = html("tbody");
  const more = html("button", { type: "button", id: "fr-more" });
  more.addEventListener("click", () => { limit += STEP; draw(); });
  root.append(
    html("form", { class: "fr-filters", onsubmit: "return false" },
      html("label", {}, "Search", field),
      ...FACETS.filter(([name]) => name in selects).map(([name, label]) => html("label", {}, label, selects[name])),
      reset),
    status, picture, html("div", { class: "fr-table" }, html("table", { class: "table" }, head, body)), more);

  function choose(name, value) {
    if (value === "*") delete chosen[name]; else chosen[name] = value;
    limit = STEP;
    draw();
  }

  function order(one, other) {
    if (NUMBERS.has(sorted)) return number(one[sorted]) - number(other[sorted]);
    return one[sorted].localeCompare(other[sorted], "en", { numeric: true });
  }

  function draw() {
    const shown = rows.filter((row) => fits(row));
    if (sorted) shown.sort((one, other) => (down ? -1 : 1) * order(one, other) || one.place - other.place);
    for (const [name, select] of Object.entries(selects)) {
      const counts = new Map();
      for (const row of rows) if (fits(row, name)) counts.set(row[name], (counts.get(row[name]) || 0) + 1);
      if (name in chosen && !counts.has(chosen[name])) counts.set(chosen[name], 0);
      const values = [...counts.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
      select.replaceChildren(html("option", { value: "*" }, "all"),
        ...values.map((value) => html("option", { value }, `${value || "none"} (${counts.get(value)})`)));
      select.value = name in chosen ? chosen[name] : "*";
    }
    const plotted = shown.filter((row) => row.x !== "");
    status.textContent = `${shown.length} of ${rows.length} rows, ${plotted.length} of them in the picture`;
    drawPicture(plotted);
    drawHead();
    body.replaceChildren(...shown.slice(0, limit).map(drawRow));
    more.hidden = shown.length <= limit;
    more.textContent = `Show ${Math.min(STEP, shown.length - limit)} more of ${shown.length - limit}`;
    const state = new URLSearchParams({ ...chosen, ...(search && { search }) }).toString();
    if (state !== location.hash.slice(1)) history.replaceState(null, "", state ? `#${state}` : location.pathname);
  }

  function drawHead() {
    head.replaceChildren(html("tr", {}, html("th", {}, html("span", { class: "visually-hidden" }, "details")),
      ...COLUMNS.map(([name, label]) => {
        const button = html("button", { type: "button", "data-column": name }, label);
        button.addEventListener("click", () => { down = sorted === name && !down; sorted = name; draw(); });
        const aria = sorted !== name ? "none" : down ? "descending" : "ascending";
        return html("th", { scope: "col", "aria-sort": aria, class: NUMBERS.has(name) ? "fr-number" : "" }, button);
      })));
  }

  function drawRow(row) {
    const open = html("button", { type: "button", "aria-expanded": "false", "aria-label": `details: ${what(row)}` }, "+");
    const cells = COLUMNS.map(([name]) => {
      let content = row[name];
      if (name === "table") content = html("a", { href: row.page }, row.table);
      if (name === "difference") content = signed(row.difference);
      if (name === "word") content = html("span", { class: `fr-word ${style(row.word)}` }, key(row.word), row.word);
      return html("td", NUMBERS.has(name) ? { class: "fr-number" } : {}, content);
    });
    const line = html("tr", { id: `row-${row.place}` }, html("td", {}, open), ...cells);
    open.addEventListener("click", () => toggle(line, row, open));
    return line;
  }

  function toggle(line, row, open) {
    const was = open.getAttribute("aria-expanded") === "true";
    open.setAttribute("aria-expanded", String(!was));
    open.textContent = was ? "+" : "−";
    if (was) { line.nextSibling.remove(); return; }
    const facts = { "where printed": [row.label, row.table].filter(Boolean).join(", "), partition: row.partition,
      number: row.metric, reading: row.reading, why: row.why,
      interval: row.low && `the difference lies in [${signed(row.low)}, ${signed(row.high)}] (90%)` };
    const list = html("dl", {}, ...Object.entries(facts).filter(([, value]) => value)
      .flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]),
    ...(row.stored ? [html("dt", {}, "its runs"), html("dd", {}, html("code", { class: "fr-command" }, row.stored),
      " lists them, and names the command that computes one again")] : []),
    html("dt", {}, "recompute"), html("dd", {}, html("code", { class: "fr-command" }, row.command)),
    html("dt", {}, "exhibit"), html("dd", {}, html("a", { href: row.page }, `${row.table} on the page of ${row.paper}`)));
    line.after(html("tr", { class: "fr-details" }, html("td", { colspan: COLUMNS.length + 1 }, list)));
  }

  function key(word) {
    return svg("svg", { viewBox: "-6 -6 12 12", width: 12, height: 12, "aria-hidden": "true" }, mark(word));
  }

  function reach(row) {
    const place = rows.filter((one) => fits(one));
    if (sorted) place.sort((one, other) => (down ? -1 : 1) * order(one, other) || one.place - other.place);
    if (place.indexOf(row) >= limit) { limit = place.indexOf(row) + 1; draw(); }
    const line = document.getElementById(`row-${row.place}`);
    const open = line.querySelector("button");
    if (open.getAttribute("aria-expanded") === "false") open.click();
    line.scrollIntoView({ block: "center" });
    open.focus({ preventScroll: true });
  }

  function drawPicture(points) {
    const words = Object.keys(data.looks).filter((word) => points.some((row) => row.word === word));
    const values = points.flatMap((row) => [number(row.x), number(row.y)]);
    const low = Math.max(0, Math.floor((Math.min(...values, 100) - 1) / 10) * 10);
    const high = Math.min(100, Math.ceil((Math.max(...values, low + 10) + 1) / 10) * 10);
    const size = 420, left = 46, top = 10;
    const at = (value) => ((value - low) / (high - low)) * size;
    const x = (value) => left + at(value), y = (value) => top + size - at(value);
    const step = high - low > 40 ? 20 : 10;
    const chart = svg("svg", { viewBox: `0 0 ${left + size + 14} ${top + size + 44}`, role: "img",
      "aria-label": `Ours against printed, ${points.length} accuracies in percent. The table below has the numbers.` });
    for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) {
      chart.append(svg("path", { class: "fr-grid", d: `M${x(tick)},${y(low)}V${y(high)}M${x(low)},${y(tick)}H${x(high)}` }),
        svg("text", { x: x(tick), y: top + size + 18, "text-anchor": "middle" }, tick),
        svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, tick));
    }
    const inside = (value) => Math.max(low, Math.min(high, value));
    const band = [[low, low], [low, low + data.margin], [high - data.margin, high], [high, high],
      [high, high - data.margin], [low + data.margin, low]].map(([a, b]) => `${x(inside(a))},${y(inside(b))}`);
    chart.append(svg("path", { class: "fr-band", d: `M${band.join("L")}z` }),
      svg("path", { class: "fr-same", d: `M${x(low)},${y(low)}L${x(high)},${y(high)}` }),
      svg("text", { x: left + size / 2, y: top + size + 38, "text-anchor": "middle" }, "printed (%)"),
      svg("text", { x: 12, y: top + size / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${top + size / 2})` },
        "ours (%)"));
    const counts = new Map(words.map((word) => [word, points.filter((row) => row.word === word).length]));
    // rare words are drawn last, so that they lie on top
    for (const row of [...points].sort((one, other) => counts.get(other.word) - counts.get(one.word))) {
      const label = `${what(row)}: printed ${row.printed}, ours ${row.ours}, ${row.word}`;
      const point = svg("a", { href: `#row-${row.place}`, tabindex: -1, "aria-label": label },
        mark(row.word, { transform: `translate(${x(number(row.x))} ${y(number(row.y))})` }), svg("title", {}, label));
      point.addEventListener("mouseenter", () => { readout.textContent = label; });
      point.addEventListener("click", (event) => { event.preventDefault(); reach(row); });
      chart.append(point);
    }
    const legend = html("ul", {}, ...words.map((word) => html("li", { class: style(word) }, key(word),
      `${word} (${counts.get(word)})`)));
    picture.replaceChildren(chart, html("div", {}, legend, readout));
    picture.hidden = !points.length;
  }

  function read() {
    const state = new URLSearchParams(location.hash.slice(1));
    for (const [name] of FACETS) {
      if (state.has(name) && name in selects) chosen[name] = state.get(name); else delete chosen[name];
    }
    search = field.value = state.get("search") || "";
    draw();
  }
  window.addEventListener("hashchange", read);
  read();
})();
