// The app: the content of the page, what the user has chosen, and what follows from it.

const HINTS = {
  look: "Drag to pan, scroll to zoom, click to pin the pointer.",
  path: "Click two places to draw a path between them.",
  select: "Draw around points to select them.",
};
const N_SAMPLES = 4;

class App {
  static async read(page) {
    const app = new App();
    Object.assign(app, { page, Q: page.n_components, axes: [0, Math.min(1, page.n_components - 1)], mode: "look" });
    app.Z = await unpack(page.Z); // [n, Q]
    app.n = app.Z.length / app.Q;
    app.rows = await unpack(page.rows);
    app.decoder = await (page.decoder.how === "exact" ? ExactDecoder : GridDecoder).read(page.decoder, app.Q);
    app.background = { ...page.background, sd: await unpack(page.background.sd) };
    app.columns = await Promise.all(page.columns.map(async (column) => ({
      ...column,
      codes: column.codes && (await unpack(column.codes)),
      values: column.values?.data && (await unpack(column.values)),
      cells: column.cells && (await unpack(column.cells)),
    })));
    app.column = app.columns[0];
    app.table = readTable(page.table);
    const { X, Z, places } = page.observed;
    app.observed = { X: await unpack(X), Z: await unpack(Z), places: await unpack(places), low: X.low, step: X.step };
    app.observed.n = app.observed.places.length;
    app.z = new Float64Array(app.Q); // where the pointer is
    app.path = { ends: [], points: [], frames: [] };
    app.selection = [];
    app.setRanges();
    return app;
  }

  setRanges() {
    let low = Infinity, high = -Infinity;
    for (const s of this.background.sd) [low, high] = [Math.min(low, s), Math.max(high, s)];
    // At least a fifth of the maximum, so that small differences look small
    this.sdRange = [low, low + Math.max(high - low, 0.2 * high)];
    // In one dimension, points lie at the height of their class or value
    const { column } = this;
    let spread = 1;
    const random = () => (spread = (spread * 48271) % 2147483647) / 2147483647;
    this.heights = Float32Array.from({ length: this.n }, (_, i) => {
      if (column?.values) return Number.isNaN(column.values[i]) ? column.low : column.values[i];
      return -(column?.codes?.[i] ?? 0) + 0.64 * (random() - 0.5);
    });
    const margin = column?.values ? 0.05 * (column.high - column.low) || 1 : 0.5;
    this.heightRange = column?.values ? [column.low - margin, column.high + margin] : [0.5 - (column?.classes?.length ?? 1), margin];
  }

  async start() {
    this.plot = new LatentPlot(this);
    describe(this);
    makeChart(this);
    makeAxes(this);
    makeLegend(this);
    connect(this);
    await this.plot.start();
    // Begin at the point closest to the mean, where there is something to see
    const middle = this.closest([this.mean(0), this.mean(1)]);
    for (let q = 0; q < this.Q; q++) if (this.axes.includes(q)) this.z[q] = this.Z[middle * this.Q + q];
    this.planeHeight = 0;
    this.show();
    document.documentElement.dataset.ready = "true";
  }

  mean(q) {
    let total = 0;
    for (let i = 0; i < this.n; i++) total += q ? this.plot.y(i) : this.plot.x(i);
    return total / this.n;
  }

  // The point closest to a place in the plane
  closest([x, y]) {
    let best = 0, least = Infinity;
    for (let i = 0; i < this.n; i++) {
      const distance = (this.plot.x(i) - x) ** 2 + (this.Q > 1 ? (this.plot.y(i) - y) ** 2 : 0);
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  }

  label(i) {
    const { column } = this;
    if (!column) return "";
    const value = column.classes ? column.classes[column.codes[i]] : scaleText(column.values[i], column, 4);
    return `${column.name} ${value}`;
  }

  // ---------------------------------------------------------------------------------------------- at the pointer

  plane() {
    return [this.z[this.axes[0]], this.Q > 1 ? this.z[this.axes[1]] : this.planeHeight ?? 0];
  }

  pointAt(x, y) {
    this.z[this.axes[0]] = x;
    if (this.Q > 1) this.z[this.axes[1]] = y;
    else this.planeHeight = y;
    this.show();
  }

  show(samples = []) {
    const { z, page } = this;
    this.decoded = this.decoder.decode(z);
    this.nearest = this.findNearest();
    const { mean, sd, sds } = this.decoded;
    const seen = this.nearest?.row;
    if (page.image) {
      drawImage(this.canvases.mean, mean, page.image);
      if (seen) drawImage(this.canvases.seen, seen, page.image);
    } else if (this.table) this.chart.draw(this.decoded, seen, this.nearest?.there, samples);
    else this.chart.draw(mean, sds, seen, samples);
    const entries = [...Array.from(z, (v, q) => [`z${q}`, v.toFixed(3)]), ["sd", sd.toPrecision(3)]];
    entries.forEach(([name, value], i) => (this.values[i].textContent = value));
    if (this.nearest) {
      const { place, distance } = this.nearest;
      const which = `row ${this.rows[place]}${this.column ? `, ${this.label(place)}` : ""}`;
      this.caption.textContent = `nearest observation: ${which}, distance ${digits(distance, 2)}`;
      this.caption.title = which;
    }
    if (page.image) $("samples").replaceChildren(...samples.map((row) => {
      const canvas = element("canvas");
      drawImage(canvas, row, page.image);
      return canvas;
    }));
    this.plot.place();
  }

  findNearest() {
    const { observed, z, Q } = this;
    let best = -1, least = Infinity;
    for (let i = 0; i < observed.n; i++) {
      let distance = 0;
      for (let q = 0; q < Q; q++) distance += (observed.Z[i * Q + q] - z[q]) ** 2;
      if (distance < least) [best, least] = [i, distance];
    }
    if (best < 0) return null;
    const D = this.page.n_features;
    const row = Float64Array.from(observed.X.subarray(best * D, (best + 1) * D), (v) => observed.low + observed.step * v);
    const at = observed.Z.subarray(best * Q, (best + 1) * Q);
    // Missing cells of a table are imputed: what is decoded where the row is
    const there = this.table && row.some(Number.isNaN) ? this.decoder.decode(Float64Array.from(at)) : null;
    return { row, there, place: observed.places[best], distance: Math.sqrt(least), z: at };
  }

  // Samples from the decoder at the pointer: m + √c ε, with or without the observation noise
  drawSamples() {
    const { mean, sds, smooth } = this.decoded;
    const sizes = $("noise").checked ? sds : smooth;
    const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
    this.samples = Array.from({ length: N_SAMPLES }, () => mean.map((m, d) => m + sizes[d] * normal()));
    if (this.table) this.samples = this.samples.map((scores) => this.table.map((column) => column.sample(scores, this.decoded)));
    this.show(this.samples);
  }

  speak() {
    $("spoken").textContent = `z ${Array.from(this.z, (v) => v.toFixed(2)).join(", ")}; sd ${digits(this.decoded.sd)}. ${this.caption.textContent}`;
  }

  click(at, touch = false) {
    if (this.mode === "path") {
      this.pointAt(...at);
      this.addEnd();
    } else if (this.mode === "look") {
      const moved = this.pinned && !touch;
      this.pinned = !moved;
      this.pointAt(...at);
      this.showPin();
    }
  }

  letGo() {
    this.pinned = false;
    this.showPin();
    if (this.mode === "path") this.forgetPath();
    if (this.mode === "select") this.deselect();
  }

  showPin() {
    $("pinned").hidden = !this.pinned;
  }

  // ---------------------------------------------------------------------------------------------- path

  async addEnd() {
    if (this.path.ends.length === 2) this.forgetPath();
    this.path.ends.push(Float64Array.from(this.z));
    $("forget").disabled = false;
    $("path-hint").textContent = this.path.ends.length < 2 ? "Click the other end." : "";
    this.plot.place();
    if (this.path.ends.length === 2) await this.makePath();
  }

  async makePath() {
    const { path } = this;
    if (path.ends.length < 2) return;
    let route = path.ends.map((z) => Array.from(z));
    if ($("route").value === "certain" && this.Q > 1) {
      $("path-hint").textContent = "Searching for a route …";
      const flat = path.ends.map((z) => this.axes.map((q) => z[q]));
      const grid = await this.plot.gridAround(flat);
      if (path !== this.path) return;
      route = cheapestRoute(grid, ...flat).map((at) => Array.from(this.plot.pointAt(...at)));
    }
    path.points = resampled(route, Number($("frames").value));
    path.frames = path.points.map((z) => this.decoder.decode(Float64Array.from(z)));
    path.cells = drawStrip($("strip"), path.frames, this);
    $("strip").hidden = false;
    $("png").disabled = false;
    $("path-hint").textContent = `${path.frames.length} decoded points. Bars show their sd. Click a point to go there.`;
    this.plot.place();
  }

  forgetPath() {
    this.path = { ends: [], points: [], frames: [] };
    $("strip").hidden = $("png").disabled = $("forget").disabled = true;
    $("path-hint").textContent = "Click two places in the latent space.";
    this.plot.place();
  }

  // ---------------------------------------------------------------------------------------------- selection and files

  select(rows) {
    this.selection = rows;
    $("selected").textContent = `${grouped(rows.length)} selected`;
    $("csv").disabled = $("deselect").disabled = !rows.length;
  }

  deselect() {
    this.plot.mark([]);
    this.select([]);
  }

  // One line per selected row: its number, its latents, and the columns it can be coloured by
  csv() {
    const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const number = (value, { unit }) => (unit ? timeText(value, unit, true) : String(Number(value.toPrecision(this.table ? 15 : 9))));
    const value = (column, i) => {
      if (column.cells) return column.levels[column.cells[i]] ?? ""; // of a missing cell, -1
      return column.classes ? column.classes[column.codes[i]] : Number.isNaN(column.values[i]) ? "" : number(column.values[i], column);
    };
    // Labels and additional columns, but of the columns of an array only the one that is shown
    const columns = this.columns.filter((column) => this.table || !this.page.features.includes(column.name) || column === this.column);
    const head = ["row", ...Array.from({ length: this.Q }, (_, q) => `z${q}`), ...columns.map((column) => column.name)];
    const lines = this.selection.map((i) => [
      this.rows[i],
      ...Array.from({ length: this.Q }, (_, q) => Number(this.Z[i * this.Q + q].toPrecision(9))), // all digits of a float32
      ...columns.map((column) => value(column, i)),
    ]);
    return [head, ...lines].map((line) => line.map((cell) => quoted(String(cell))).join(",")).join("\n") + "\n";
  }

  save(blob, ending) {
    const name = this.page.title.replace(/[^\p{L}\p{N}_-]+/gu, "-").slice(0, 60).replace(/^-+|-+$/g, "") || "latent";
    const link = element("a", { href: URL.createObjectURL(blob), download: `${name}-${ending}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // ---------------------------------------------------------------------------------------------- controls

  setOthers(value) {
    for (let q = 0; q < this.Q; q++) if (!this.axes.includes(q)) this.z[q] = value(q);
    this.showAxes();
    this.show();
    this.plot.sliceChanged();
  }

  showAxes() {
    this.axisSelects.forEach((select, which) => (select.value = this.axes[which]));
    this.sliders.forEach((label, q) => {
      label.hidden = this.axes.includes(q);
      label.querySelector("input").value = this.z[q];
    });
  }

  async axesChanged() {
    this.showAxes();
    this.deselect();
    this.forgetPath();
    await this.plot.draw();
    await this.plot.reset();
    this.plot.sliceChanged();
  }

  setMode(mode) {
    this.mode = mode;
    document.querySelectorAll("[data-mode]").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.mode === mode)));
    $("path").hidden = mode !== "path" && !this.path.frames.length;
    $("selection").hidden = mode !== "select" && !this.selection.length;
    $("hint").textContent = HINTS[mode];
    if (mode !== "look") {
      this.pinned = false;
      this.showPin();
    }
    this.select(this.selection);
    Plotly.relayout(this.plot.div, { dragmode: mode === "select" ? "lasso" : "pan" });
  }

  async recolour() {
    showTheme();
    makeLegend(this);
    await this.plot.draw();
    this.show();
    if (this.path.frames.length) drawStrip($("strip"), this.path.frames, this);
  }
}

async function start() {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("it needs a browser from 2023 or later");
  }
  window.explorer = await App.read(JSON.parse($("content").textContent));
  await window.explorer.start();
}

start().catch((error) => {
  $("about").textContent = "";
  notice(`This page could not start: ${error.message}.`);
  throw error;
});
