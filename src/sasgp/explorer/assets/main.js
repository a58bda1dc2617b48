// The app: the content of the page, what the user has chosen, and what follows from it.

const HINTS = {
  look: "Drag to pan, scroll to zoom, click to pin the pointer.",
  path: "Click two places to draw a path between them.",
  select: "Draw around points to select them; with Shift to add, with Alt to take away.",
};
const N_SAMPLES = 4;

class App {
  static async read(page) {
    const app = new App();
    Object.assign(app, { page, Q: page.n_components, axes: [0, Math.min(1, page.n_components - 1)], mode: "look" });
    Object.assign(COLOURS, page.palette, { scale: page.palette.scale.map(rgb) });
    app.Z = await unpack(page.Z); // [n, Q]
    app.n = app.Z.length / app.Q;
    app.rows = await unpack(page.rows);
    app.ids = page.ids && (await unpackText(page.ids));
    app.decoder = await (page.decoder.how === "exact" ? ExactDecoder : GridDecoder).read(page.decoder, app.Q);
    app.geometry = Geometry.of(app.decoder, page.decoder);
    const { sd, volume, ...place } = page.background;
    app.sdGrid = { ...place, values: await unpack(sd) };
    app.volumeGrid = volume && { ...place, values: await unpack(volume) };
    app.columns = await Promise.all(page.columns.map(async (column) => ({
      ...column,
      codes: column.codes && (await unpack(column.codes)),
      values: column.values?.data && (await unpack(column.values)),
      cells: column.cells && (await unpack(column.cells)),
      levels: column.levels?.data ? await unpackText(column.levels) : column.levels,
    })));
    app.column = app.columns[0];
    app.table = readTable(page.table);
    const { X, Z, places } = page.observed;
    app.observed = { X: await unpack(X), Z: await unpack(Z), places: await unpack(places), low: X.low, step: X.step };
    app.observed.n = app.observed.places.length;
    app.z = new Float64Array(app.Q); // where the pointer is
    const opacity = Math.min(Math.max(3.4 * app.n ** -0.18, 0.45), 0.9);
    app.look = { size: 0, opacity, labels: false, contours: false, fade: true, background: "sd" };
    app.ownLook = { ...app.look };
    app.selection = new Selection(app);
    app.path = new Path(app);
    app.setHeights();
    return app;
  }

  // In one dimension, points lie at the height of their class or value
  setHeights() {
    const { column } = this;
    const random = generator();
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
    // Begin at the point closest to the mean, where there is something to see
    const middle = this.closest([this.mean(0), this.mean(1)]);
    for (let q = 0; q < this.Q; q++) if (this.axes.includes(q)) this.z[q] = this.Z[middle * this.Q + q];
    this.planeHeight = 0;
    this.plot.start();
    this.show();
    this.selection.recall();
    this.selection.show();
    await restore(this, location.hash);
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
    return this.column ? `${this.column.name} ${columnText(this.column, i)}` : "";
  }

  // A row by its name
  rowName(i) {
    return this.ids?.[i] ? `${this.ids[i]} (row ${this.rows[i]})` : `row ${this.rows[i]}`;
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
      const which = `${this.rowName(place)}${this.column ? `, ${this.label(place)}` : ""}`;
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
    const row = this.observedRow(best);
    const at = observed.Z.subarray(best * Q, (best + 1) * Q);
    // Missing cells of a table are imputed: what is decoded where the row is
    const there = this.table && row.some(Number.isNaN) ? this.decoder.decode(Float64Array.from(at)) : null;
    return { row, there, place: observed.places[best], distance: Math.sqrt(least), z: at };
  }

  // Row k of those that the file contains
  observedRow(k) {
    const { X, low, step } = this.observed;
    const D = this.page.n_features;
    return Float64Array.from(X.subarray(k * D, (k + 1) * D), (v) => low + step * v);
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
      this.path.addEnd(this.z);
    } else if (this.mode === "look") {
      const pinned = !this.pinned || touch;
      this.pointAt(...at);
      this.pin(pinned);
    }
  }

  letGo() {
    this.pin(false);
    if (this.mode === "path") this.path.forget();
    if (this.mode === "select") this.selection.change([]);
  }

  // A pinned pointer stays where it is, with the values of the point there
  pin(pinned) {
    this.pinned = pinned;
    $("pinned").hidden = !pinned;
    this.plot.showTooltip(pinned ? this.plot.pointNear(this.plot.toScreen(...this.plane())) : -1);
  }

  // Goes to a row, wherever it is, and stays there
  goTo(i) {
    this.z.set(this.Z.subarray(i * this.Q, (i + 1) * this.Q));
    this.planeHeight = this.plot.y(i);
    if (this.axisSelects) this.showAxes();
    this.setMode("look");
    this.show();
    this.plot.hidden.delete(this.plot.code(i));
    makeLegend(this);
    this.plot.draw();
    this.plot.reveal(this.plot.x(i), this.plot.y(i));
    this.plot.sliceChanged();
    this.pin(true);
    this.plot.showTooltip(i); // also if other points lie on it
    this.speak();
    this.plot.stage.focus({ preventScroll: true });
  }

  // ---------------------------------------------------------------------------------------------- files

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

  axesChanged() {
    this.showAxes();
    this.path.forget();
    this.plot.tooltip.hide();
    this.plot.draw();
    this.plot.reset();
  }

  setMode(mode) {
    this.mode = mode;
    document.querySelectorAll("[data-mode]").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.mode === mode)));
    $("path").hidden = mode !== "path" && !this.path.frames.length;
    $("hint").textContent = HINTS[mode];
    if (mode !== "look") this.pin(false);
    this.selection.show();
    this.plot.stage.dataset.mode = mode;
  }

  colourBy(column) {
    this.column = column;
    this.plot.hidden.clear();
    this.setHeights();
    if (this.Q === 1) this.plot.reset();
    $("colour").value = column?.name ?? "";
    this.selection.show();
    this.recolour();
  }

  // Features without a column, because the file has no room or no rows: what is decoded at a point can be shown instead
  get decodedFeatures() {
    if (this.table) return [];
    const known = new Set(this.columns.map((column) => column.name.replace(/ \((data|decoded)\)$/, "")));
    return this.page.features.map((name, d) => ({ name, d })).filter(({ name }) => !known.has(name));
  }

  async colourByDecoded({ name, d }) {
    const values = new Float32Array(this.n);
    const pause = breaks();
    $("hint").textContent = `Decoding ${name} …`;
    for (let i = 0; i < this.n; i++) {
      values[i] = this.decoder.feature(Float64Array.from(this.Z.subarray(i * this.Q, (i + 1) * this.Q)), d);
      if (pause.due()) await pause.now();
    }
    $("hint").textContent = HINTS[this.mode];
    const [low, high] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
    const column = { name: `${name} (decoded)`, values, low, high };
    if (!this.columns.some((other) => other.name === column.name)) this.columns.push(column);
    this.colourBy(column);
  }

  recolour() {
    showTheme();
    makeLegend(this);
    showScale(this);
    this.plot.draw();
    this.show();
    this.path.draw();
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
