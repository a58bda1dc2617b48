// The selected rows, what distinguishes them from the others, and selections that were saved under a name.

const MOST_DIFFERENCES = 8;
const LEAST_DIFFERENCE = 0.1; // in standard deviations
const MOST_CLASSES = 12; // in the mix

class Selection {
  constructor(app) {
    this.app = app;
    this.flags = new Uint8Array(app.n);
    this.rows = [];
    this.kept = []; // { name, rows }
  }

  get size() { return this.rows.length; }
  has(i) { return this.flags[i] === 1; }

  // how: "replace", "add" or "remove"
  change(rows, how = "replace") {
    if (how === "replace") this.flags.fill(0);
    for (const i of rows) this.flags[i] = how === "remove" ? 0 : 1;
    this.rows = Array.from(this.flags.keys()).filter((i) => this.flags[i]);
    this.app.plot.draw();
    this.show();
  }

  show() {
    const { app } = this;
    $("selection").hidden = app.mode !== "select" && !this.size && !this.kept.length;
    $("selected").textContent = this.size ? `${grouped(this.size)} of ${grouped(app.n)} rows` : "nothing selected";
    $("csv").disabled = $("deselect").disabled = !this.size;
    $("keep").hidden = !this.size;
    $("summary").replaceChildren(...(this.size ? summary(app, this) : []));
  }

  // ---------------------------------------------------------------------------------------------- saved selections

  // A place in the browser's storage for pages of these points. There may be none, for example in a notebook
  get place() {
    const sum = this.app.Z.reduce((total, v, i) => (total * 31 + Math.round(1e4 * v) + i) % 1000003, 7);
    return `sasgp selections: ${this.app.page.title.slice(0, 60)}, ${this.app.n}, ${sum}`;
  }

  keep(name) {
    this.kept = [...this.kept.filter((one) => one.name !== name), { name, rows: this.rows }];
    this.store();
  }

  drop(name) {
    this.kept = this.kept.filter((one) => one.name !== name);
    this.store();
  }

  store() {
    try {
      localStorage.setItem(this.place, JSON.stringify(this.kept.map(({ name, rows }) => [name, runs(rows, this.app.n)])));
    } catch {
      // without storage, they last as long as the page
    }
    this.showKept();
  }

  recall() {
    try {
      const found = JSON.parse(localStorage.getItem(this.place)) ?? [];
      this.kept = found.map(([name, text]) => ({ name: String(name), rows: fromRuns(text, this.app.n) })).filter(({ rows }) => rows);
    } catch {
      this.kept = [];
    }
    this.showKept();
  }

  showKept() {
    this.colourColumn();
    $("kept").replaceChildren(...this.kept.map(({ name, rows }) => {
      const take = element("button", { type: "button", className: "take", textContent: `${name} (${grouped(rows.length)})`, title: `Select ${name}` });
      take.addEventListener("click", () => this.change(rows));
      const drop = element("button", { type: "button", className: "drop", textContent: "×", title: `Forget ${name}` });
      drop.setAttribute("aria-label", `Forget ${name}`);
      drop.addEventListener("click", () => this.drop(name));
      return element("li", {}, take, drop);
    }));
  }

  // Saved selections are a column to colour by, too. A row that is in several of them has the class of the last
  colourColumn() {
    const { app } = this;
    const name = "saved selections";
    const at = app.columns.findIndex((column) => column.saved);
    if (at >= 0) app.columns.splice(at, 1);
    if (!this.kept.length) {
      if (app.column?.saved) app.colourBy(app.columns[0] ?? null);
      return;
    }
    const some = this.kept.slice(-(COLOURS.light.length * SHAPES - 1));
    const codes = new Uint8Array(app.n).fill(some.length);
    some.forEach(({ rows }, code) => rows.forEach((i) => (codes[i] = code)));
    const column = { name, saved: true, classes: [...some.map((one) => one.name), "in none"], others: 1, codes };
    app.columns.push(column);
    if (app.column?.saved) app.colourBy(column);
    $("colour-box").hidden = false;
  }

  // ---------------------------------------------------------------------------------------------- export

  // One line per selected row: its number, its id, its latents, and the columns it can be coloured by
  csv() {
    const { app } = this;
    const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const number = (value, { unit }) => (unit ? timeText(value, unit, true) : String(Number(value.toPrecision(app.table ? 15 : 9))));
    const value = (column, i) => {
      if (column.cells) return column.levels[column.cells[i]] ?? ""; // of a missing cell, -1
      return column.classes ? column.classes[column.codes[i]] : Number.isNaN(column.values[i]) ? "" : number(column.values[i], column);
    };
    // Labels and additional columns, but of the columns of an array only the one that is shown
    const columns = app.columns.filter((column) => app.table || !app.page.features.includes(column.name) || column === app.column);
    const head = ["row", ...(app.ids ? ["id"] : []), ...Array.from({ length: app.Q }, (_, q) => `z${q}`), ...columns.map((column) => column.name)];
    const lines = this.rows.map((i) => [
      app.rows[i],
      ...(app.ids ? [app.ids[i]] : []),
      ...Array.from({ length: app.Q }, (_, q) => Number(app.Z[i * app.Q + q].toPrecision(9))), // all digits of a float32
      ...columns.map((column) => value(column, i)),
    ]);
    return [head, ...lines].map((line) => line.map((cell) => quoted(String(cell))).join(",")).join("\n") + "\n";
  }
}

// Rows as the lengths of runs outside and inside of the selection, in turns
function runs(rows, n) {
  const lengths = [];
  let next = 0;
  for (let k = 0; k < rows.length; ) {
    let end = k + 1;
    while (end < rows.length && rows[end] === rows[end - 1] + 1) end++;
    lengths.push(rows[k] - next, end - k);
    next = rows[end - 1] + 1;
    k = end;
  }
  return [n, ...lengths].map((length) => length.toString(36)).join(".");
}

// Null if the text is not of n rows
function fromRuns(text, n) {
  const lengths = String(text).split(".").map((length) => (/^[0-9a-z]{1,7}$/.test(length) ? parseInt(length, 36) : NaN));
  if (lengths.shift() !== n || lengths.some(Number.isNaN) || lengths.reduce((a, b) => a + b, 0) > n) return null;
  const rows = [];
  let at = 0;
  lengths.forEach((length, k) => {
    if (k % 2) for (let i = 0; i < length; i++) rows.push(at + i);
    at += length;
  });
  return rows;
}

// ---------------------------------------------------------------------------------------------------- the summary

function summary(app, selection) {
  const column = app.column?.classes ? app.column : app.columns.find((one) => one.classes);
  const found = [];
  if (column) found.push(element("h3", { textContent: column.name, title: column.name }), mix(column, selection));
  if (selection.size === app.n) return found;
  if (app.page.image && app.observed.n) found.push(...meanImages(app, selection));
  const lines = differences(app, selection, column);
  if (lines.length) {
    found.push(element("h3", { title: "The difference of the means, in standard deviations" }, "unlike the rest", element("span", { className: "note", textContent: "selection / rest" })));
    found.push(element("div", { className: "differences" }, ...lines));
  }
  return found;
}

// A line with a name, a bar and a note. The bar is from one share of its width to another
function barLine(name, from, to, note, colour, title = name) {
  const bar = element("i");
  Object.assign(bar.style, { left: `${100 * Math.min(from, to)}%`, width: `${100 * Math.abs(to - from)}%`, background: colour });
  return element("div", { className: "difference", title }, element("span", { className: "name", textContent: name }), element("span", { className: "bar" }, bar), element("span", { className: "note", textContent: note }));
}

// How many of the selected rows are of each class, the most frequent first
function mix(column, selection) {
  const counts = column.classes.map(() => 0);
  for (const i of selection.rows) counts[column.codes[i]] += 1;
  const order = counts.map((_, code) => code).filter((code) => counts[code]).sort((a, b) => counts[b] - counts[a]);
  const lines = order.slice(0, MOST_CLASSES).map((code) => barLine(
    column.classes[code], 0, counts[code] / selection.size, `${grouped(counts[code])}, ${percent(counts[code] / selection.size)}`, classColour(column, code),
  ));
  if (order.length > MOST_CLASSES) lines.push(element("div", { className: "note", textContent: `and ${order.length - MOST_CLASSES} more classes` }));
  return element("div", { className: "differences mix" }, ...lines);
}

// What distinguishes the selection: the difference between its mean and that of the rest, in standard deviations. Of a
// class, the same with 1 for its rows and 0 for others
function differences(app, selection, shown) {
  const found = [];
  const add = (column, name, values, rows, text) => {
    const one = compared(values, rows, selection);
    if (one && Math.abs(one.size) >= LEAST_DIFFERENCE) found.push({ column, name, ...one, text });
  };
  const all = Array.from({ length: app.n }, (_, i) => i);
  for (const column of app.columns) {
    if (column === shown || column.saved) continue;
    if (column.values) add(column, column.name, column.values, all, (v) => scaleText(v, column));
    else column.classes.forEach((name, code) => {
      const isIn = Float32Array.from(column.codes, (other) => (other === code ? 1 : 0));
      add(column, `${column.name}: ${name}`, isIn, all, percent);
    });
  }
  const known = new Set(app.columns.map((column) => column.name));
  const { observed } = app;
  app.page.features.forEach((name, d) => { // columns that the file has no room for, from the rows that it contains
    if (known.has(name) || known.has(`${name} (data)`) || app.table?.[d].levels) return;
    const D = app.page.n_features;
    add(null, name, Float64Array.from({ length: observed.n }, (_, k) => observed.X[k * D + d]), observed.places, (v) => digits(v));
  });
  found.sort((a, b) => Math.abs(b.size) - Math.abs(a.size));
  const most = Math.abs(found[0]?.size);
  return found.slice(0, MOST_DIFFERENCES).map(({ column, name, size, inside, outside, text }) => {
    const title = `${name}: ${text(inside)} in the selection, ${text(outside)} in the rest; ${digits(size, 2)} standard deviations`;
    const line = barLine(name, 0.5, 0.5 + (0.5 * size) / most, `${text(inside)} / ${text(outside)}`, ink("accent"), title);
    if (!column) return line;
    const button = element("button", { type: "button", className: "plain", title: `Colour by ${column.name}` }, ...line.firstChild.childNodes);
    button.addEventListener("click", () => app.colourBy(column));
    line.firstChild.replaceWith(button);
    button.classList.add("name");
    return line;
  });
}

// Means inside and outside of the selection, and their difference in standard deviations. Null if one side is empty
function compared(values, rows, selection) {
  const sums = [[0, 0], [0, 0]]; // of the rest and of the selection: number, sum
  let total = 0;
  rows.forEach((i, k) => {
    if (!Number.isFinite(values[k])) return;
    const side = sums[selection.has(i) ? 1 : 0];
    side[0] += 1;
    side[1] += values[k];
    total += values[k];
  });
  if (!sums[0][0] || !sums[1][0]) return null;
  const mean = total / (sums[0][0] + sums[1][0]);
  let squares = 0;
  for (const v of values) if (Number.isFinite(v)) squares += (v - mean) ** 2;
  const deviation = Math.sqrt(squares / (sums[0][0] + sums[1][0]));
  const [outside, inside] = sums.map(([count, sum]) => sum / count);
  return deviation > 1e-12 * Math.abs(mean) ? { inside, outside, size: (inside - outside) / deviation } : null;
}

// Images: the mean of the selected rows, and that of the others
function meanImages(app, selection) {
  const D = app.page.n_features;
  const means = [new Float64Array(D), new Float64Array(D)];
  const counts = [0, 0];
  for (let k = 0; k < app.observed.n; k++) {
    const side = selection.has(app.observed.places[k]) ? 1 : 0;
    counts[side] += 1;
    for (let d = 0; d < D; d++) means[side][d] += app.observed.X[k * D + d];
  }
  if (!counts[0] || !counts[1]) return [];
  const figures = [1, 0].map((side) => {
    const canvas = element("canvas");
    drawImage(canvas, means[side].map((sum) => app.observed.low + (app.observed.step * sum) / counts[side]), app.page.image);
    const text = `mean of ${grouped(counts[side])} ${side ? "selected" : "other"} rows`;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", text);
    return element("figure", {}, canvas, element("figcaption", { textContent: text }));
  });
  return [element("div", { className: "pair means" }, ...figures)];
}
