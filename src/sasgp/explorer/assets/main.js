// The page: what it knows, what the user has chosen, and what follows from that.

const $ = (id) => document.getElementById(id);
const grouped = (number) => number.toLocaleString("en-US");

const HINTS = {
  look: "Drag pans, scrolling zooms, a click pins the pointer.",
  path: "Click two places for a path between them.",
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
    })));
    app.column = app.columns[0];
    const { X, Z, places, support } = page.observed;
    app.observed = { X: await unpack(X), Z: await unpack(Z), places: await unpack(places), low: X.low, step: X.step, support };
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
    // At least a fifth, so that a decoder equally certain everywhere looks so
    this.sdRange = [low, low + Math.max(high - low, 0.2 * high)];
    // A space of one dimension: points at the height of their class or value
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
    this.describe();
    this.makeChart();
    this.makeAxes();
    this.makeLegend();
    this.connect();
    await this.plot.start();
    // Begin at a point in the middle of the data, where there is something to see
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

  // The point that is drawn closest to a place of the plane
  closest([x, y]) {
    let best = 0, least = Infinity;
    for (let i = 0; i < this.n; i++) {
      const distance = (this.plot.x(i) - x) ** 2 + (this.Q > 1 ? (this.plot.y(i) - y) ** 2 : 0);
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  }

  // ---------------------------------------------------------------------------------------------- words

  describe() {
    const { page, decoder } = this;
    document.title = $("title").textContent = page.title;
    $("title").title = page.title;
    const size = decoder instanceof ExactDecoder ? ` · ${grouped(decoder.S)} support points` : "";
    $("about").textContent = `${page.model} · ${grouped(page.n_points)} points · ${grouped(page.n_features)} features · ${this.Q} latent dimension${this.Q > 1 ? "s" : ""}${size}`;
    const notes = [];
    if (decoder instanceof ExactDecoder) {
      const { mean, sd } = page.decoder.error;
      notes.push(`Mean and standard deviation are computed here, from the model's support points with the formulas of predict. Rounding for this file changes them by ${digits(Math.max(mean, sd), 1)} of the data's range at the most, measured at 256 places.`);
    } else {
      const cells = page.decoder.cells.join(" × ");
      const where = this.Q > 2 ? " It covers the plane of z0 and z1, with the other dimensions at 0." : "";
      this.notice(`The browser does not know this model's decoder, a kernel of its own perhaps. What is decoded here is read off a grid of ${cells} points that was computed beforehand, with straight lines between them: close to what predict says, but not the same.${where}`);
    }
    if (!this.plot.webgl) {
      const shown = this.n > SVG_POINTS ? ` Only ${grouped(Math.ceil(this.n / Math.ceil(this.n / SVG_POINTS)))} of ${grouped(this.n)} points are shown.` : "";
      this.notice(`This browser has no WebGL, or has it switched off, so points are drawn more slowly without it.${shown} Everything else works; to see all of it, switch on hardware acceleration or open the page in another browser.`);
    }
    if (this.n < page.n_points) notes.push(`${grouped(this.n)} of ${grouped(page.n_points)} points are shown, chosen at random. Selections contain those only.`);
    if (this.observed.n) {
      const which = this.observed.support ? `the model's support set (${grouped(this.observed.n)} rows)` : `${grouped(this.observed.n)} of ${grouped(page.n_points)} rows`;
      notes.push(`The nearest observation is looked for among ${which}, which this file contains${page.image ? " in 256 shades" : ""}.`);
    }
    if (page.n_columns_left_out) notes.push(`${grouped(page.n_columns_left_out)} columns of the data are not in this file to colour by: it would be too large.`);
    const alike = decoder.relative.every((s) => Math.abs(s - 1) < 1e-6);
    notes.push(`The background is the standard deviation of a new observation, noise included. ${alike ? "It is the same for every feature." : "Features differ in theirs by a factor; shown is the mean over features."}`);
    notes.push("This file needs no network and sends nothing.");
    $("notes").replaceChildren(...notes.map((text) => element("li", { textContent: text })));
    $("hint").textContent = HINTS.look;
    const ramp = element("span", { className: "ramp" });
    $("sd-scale").replaceChildren("predictive sd ", digits(this.sdRange[0]), ramp, digits(this.sdRange[1]));
  }

  notice(text) {
    $("notices").append(element("p", { className: "notice", textContent: text }));
  }

  label(i) {
    const { column } = this;
    if (!column) return "";
    const value = column.classes ? column.classes[column.codes[i]] : digits(column.values[i], 4);
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
    const { mean, sd } = this.decoded;
    const seen = this.nearest?.row;
    if (page.image) {
      drawImage(this.canvases.mean, mean, page.image);
      if (seen) drawImage(this.canvases.seen, seen, page.image);
    } else this.chart.draw(mean, this.decoder.spread(sd), seen, samples);
    const entries = [...Array.from(z, (v, q) => [`z${q}`, v.toFixed(3)]), ["sd", sd.toPrecision(3)]];
    entries.forEach(([name, value], i) => (this.values[i].textContent = value));
    if (this.nearest) {
      const { place, distance } = this.nearest;
      const which = place >= 0 ? `row ${this.rows[place]}${this.column ? `, ${this.label(place)}` : ""}` : "a support point";
      this.caption.textContent = `nearest observation: ${which}, at a distance of ${digits(distance, 2)}`;
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
    return { row, place: observed.places[best], distance: Math.sqrt(least), z: observed.Z.subarray(best * Q, (best + 1) * Q) };
  }

  // Rows that the decoder holds possible at the pointer: m + √c ε, with or without the observations' noise
  drawSamples() {
    const { mean, sd } = this.decoded;
    const size = $("noise").checked ? sd : Math.sqrt(Math.max(0, sd * sd - this.decoder.noise));
    const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
    const sizes = this.decoder.spread(size);
    this.samples = Array.from({ length: N_SAMPLES }, () => mean.map((m, d) => m + sizes[d] * normal()));
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
      $("path-hint").textContent = "Looking for a route …";
      const flat = path.ends.map((z) => this.axes.map((q) => z[q]));
      const grid = await this.plot.gridAround(flat);
      if (path !== this.path) return;
      route = cheapestRoute(grid, ...flat).map((at) => Array.from(this.plot.pointAt(...at)));
    }
    path.points = resampled(route, Number($("frames").value));
    path.frames = path.points.map((z) => this.decoder.decode(Float64Array.from(z)));
    path.cells = drawStrip($("strip"), path.frames, this.page, this.sdRange);
    $("strip").hidden = false;
    $("png").disabled = false;
    $("path-hint").textContent = `${path.frames.length} decoded points; the bars are their sd. Click one to go there.`;
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

  // A line for every selected row: its number, latents, and what it is coloured by
  csv() {
    const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const value = (column, i) => (column.classes ? column.classes[column.codes[i]] : Number.isNaN(column.values[i]) ? "" : String(Number(column.values[i].toPrecision(9))));
    // Those that are no columns of the data: the label and what came with it; and the one that is shown
    const columns = this.columns.filter((column) => !this.page.features.includes(column.name) || column === this.column);
    const head = ["row", ...Array.from({ length: this.Q }, (_, q) => `z${q}`), ...columns.map((column) => column.name)];
    const lines = this.selection.map((i) => [
      this.rows[i],
      ...Array.from({ length: this.Q }, (_, q) => Number(this.Z[i * this.Q + q].toPrecision(9))), // float32 in full
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

  makeChart() {
    const { page } = this;
    this.caption = element("figcaption");
    const pictures = $("pictures");
    if (page.image) {
      this.canvases = { mean: element("canvas"), seen: element("canvas") };
      const figures = [element("figure", {}, this.canvases.mean, element("figcaption", { textContent: "decoder's mean" }))];
      if (this.observed.n) figures.push(element("figure", {}, this.canvases.seen, this.caption));
      pictures.append(element("div", { className: "pair" }, ...figures));
      this.canvases.mean.setAttribute("role", "img");
      this.canvases.mean.setAttribute("aria-label", "The decoder's mean at the pointer");
      this.canvases.seen.setAttribute("role", "img");
      this.canvases.seen.setAttribute("aria-label", "The nearest observation");
    } else {
      const mark = (name, text) => [element("i", { className: name }), `${text}  `];
      const key = element("p", { className: "key" }, ...mark("dot", "mean"), ...mark("band", "±2 sd"), ...(this.observed.n ? mark("seen", "nearest observation") : []));
      const box = element("div", { className: "features", tabIndex: 0 });
      box.setAttribute("aria-label", "Decoded features");
      pictures.append(key, box, this.caption);
      this.chart = new (page.features.length <= MAX_LINES ? FeatureLines : Curve)(box, page);
    }
    this.values = [];
    const names = [...Array.from({ length: this.Q }, (_, q) => `z${q}`), "sd"];
    $("readout").append(...names.map((name) => {
      const value = element("dd", { id: `value-${name}` });
      this.values.push(value);
      return element("div", {}, element("dt", { textContent: name }), value);
    }));
    // A decoder on a grid does not say which part of its uncertainty is noise
    $("noise").checked = $("noise-label").hidden = this.decoder instanceof GridDecoder;
  }

  // More than two dimensions: which two are shown, and where the others are
  makeAxes() {
    if (this.Q < 3 || this.decoder instanceof GridDecoder) return;
    const bar = $("axes");
    bar.hidden = false;
    const choose = (which) => {
      const select = element("select");
      select.setAttribute("aria-label", which ? "Vertical axis" : "Horizontal axis");
      for (let q = 0; q < this.Q; q++) select.append(element("option", { value: q, textContent: `z${q}` }));
      select.addEventListener("change", () => {
        const chosen = Number(select.value);
        if (this.axes[1 - which] === chosen) this.axes[1 - which] = this.axes[which];
        this.axes[which] = chosen;
        this.axesChanged();
      });
      return select;
    };
    this.axisSelects = [choose(0), choose(1)];
    this.sliders = Array.from({ length: this.Q }, (_, q) => {
      const values = Array.from({ length: this.n }, (_, i) => this.Z[i * this.Q + q]);
      const [low, high] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [0, 0]);
      const slider = element("input", { type: "range", min: low, max: high, step: (high - low) / 200 || 1, value: 0 });
      slider.addEventListener("input", () => {
        this.z[q] = Number(slider.value);
        this.show();
        this.plot.sliceChanged();
      });
      return element("label", {}, `z${q} `, slider);
    });
    const take = element("button", { type: "button", textContent: "From nearest point", title: "Give the other dimensions the values of the point closest to the pointer" });
    take.addEventListener("click", () => {
      const point = this.closest(this.plane());
      this.setOthers((q) => this.Z[point * this.Q + q]);
    });
    const zero = element("button", { type: "button", textContent: "All at 0" });
    zero.addEventListener("click", () => this.setOthers(() => 0));
    bar.append(element("label", {}, "axes ", this.axisSelects[0], " ", this.axisSelects[1]), ...this.sliders, take, zero);
    this.showAxes();
  }

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

  makeLegend() {
    const { column } = this;
    const legend = $("legend");
    if (!column) return legend.replaceChildren();
    if (!column.classes) {
      const ramp = element("span", { className: "ramp" });
      ramp.style.background = `linear-gradient(90deg, ${CIVIDIS.join()})`;
      return legend.replaceChildren(element("span", {}, `${column.name} `, digits(column.low), ramp, digits(column.high)));
    }
    const draw = { circle: "M6 1A5 5 0 1 0 6 11A5 5 0 1 0 6 1Z", "triangle-up": "M6 1L11.5 11H.5Z", diamond: "M6 0L12 6L6 12L0 6Z" };
    legend.replaceChildren(...column.classes.map((name, code) => {
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      svg.setAttribute("viewBox", "0 0 12 12");
      svg.setAttribute("aria-hidden", "true");
      path.setAttribute("d", draw[classShape(code)]);
      path.setAttribute("fill", classColour(column, code));
      svg.append(path);
      const button = element("button", { type: "button", title: name }, svg, element("span", { className: "name", textContent: name }));
      button.setAttribute("aria-pressed", String(!this.plot.hidden.has(code)));
      button.addEventListener("click", (event) => {
        this.plot.toggle(code, event.shiftKey);
        [...legend.children].forEach((other, i) => other.setAttribute("aria-pressed", String(!this.plot.hidden.has(i))));
      });
      return button;
    }));
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
    this.showTheme();
    this.makeLegend();
    await this.plot.draw();
    this.show();
    if (this.path.frames.length) drawStrip($("strip"), this.path.frames, this.page, this.sdRange);
  }

  showTheme() {
    $("theme").textContent = isDark() ? "Light" : "Dark";
    $("theme").title = `Change to ${isDark() ? "light" : "dark"} colours`;
  }

  connect() {
    const on = (id, event, action) => $(id).addEventListener(event, action);
    document.querySelectorAll("[data-mode]").forEach((button) => button.addEventListener("click", () => this.setMode(button.dataset.mode)));
    on("zoom-in", "click", () => this.plot.zoom(0.7));
    on("zoom-out", "click", () => this.plot.zoom(1 / 0.7));
    on("reset", "click", () => this.plot.reset());
    on("draw", "click", () => this.drawSamples());
    on("route", "change", () => this.makePath());
    on("frames", "input", () => this.makePath());
    on("forget", "click", () => this.forgetPath());
    on("png", "click", () => $("strip").toBlob((blob) => this.save(blob, "path.png"), "image/png"));
    on("csv", "click", () => this.save(new Blob([this.csv()], { type: "text/csv" }), "selection.csv"));
    on("deselect", "click", () => this.deselect());
    on("select-view", "click", () => {
      const rows = this.plot.rowsInView();
      this.plot.mark(rows);
      this.select(rows);
    });
    on("strip", "click", (event) => {
      const { left, width } = this.path.cells;
      const z = this.path.points[Math.floor((event.offsetX - left) / width)];
      if (!z) return;
      this.z.set(z);
      this.show();
    });
    on("theme", "click", () => {
      document.documentElement.dataset.theme = isDark() ? "light" : "dark";
      this.recolour();
    });
    darkQuery.addEventListener("change", () => this.recolour());
    this.showTheme();
    $("colour-label").hidden = this.columns.length < 2;
    $("colour").append(...this.columns.map((column, i) => element("option", { value: i, textContent: column.name })));
    on("colour", "change", async () => {
      this.column = this.columns[Number($("colour").value)];
      this.plot.hidden.clear();
      this.select([]);
      this.setRanges();
      await this.recolour();
    });
  }
}

async function start() {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("it needs a browser of 2023 or newer");
  }
  window.explorer = await App.read(JSON.parse($("content").textContent));
  await window.explorer.start();
}

start().catch((error) => {
  $("about").textContent = "";
  $("notices").append(Object.assign(document.createElement("p"), { className: "notice", textContent: `This page could not start: ${error.message}.` }));
  throw error;
});
