// The latent space: points over the decoder's standard deviation, drawn by Plotly. Whatever moves with the pointer is in
// an overlay, so that hovering redraws nothing else.

const SLICE = 8; // milliseconds of computing before the browser may handle input
const COARSE = 32; // cells along each axis of the first, coarse background
const FINE = 80;
const PATIENCE = 6000; // milliseconds that the fine background may take
const SVG_POINTS = 4000; // points drawn without WebGL, at most

function hasWebGL() {
  try {
    const canvas = document.createElement("canvas");
    return Boolean(canvas.getContext("webgl2") || canvas.getContext("webgl"));
  } catch {
    return false;
  }
}

// Standard deviations on a grid in the plane shown, computed in time slices. Null if no longer wanted.
async function computeGrid(decoder, pointAt, axes, n, lines, wanted) {
  const sd = new Float32Array(n * lines);
  let rest = performance.now() + SLICE;
  for (let i = 0; i < sd.length; i++) {
    const at = ([low, high], place, count) => low + ((high - low) * place) / Math.max(1, count - 1);
    sd[i] = decoder.sd(pointAt(at(axes[0], i % n, n), lines > 1 ? at(axes[1], Math.floor(i / n), lines) : 0));
    if (performance.now() > rest) {
      await new Promise((resume) => setTimeout(resume));
      if (!wanted()) return null;
      rest = performance.now() + SLICE;
    }
  }
  return { n, lines, axes: axes.map((axis) => [...axis]), sd };
}

class LatentPlot {
  constructor(app) {
    this.app = app;
    this.div = document.getElementById("plot");
    this.overlay = document.getElementById("overlay");
    this.webgl = hasWebGL();
    this.hidden = new Set();
    this.background = app.background;
    this.backgroundKey = this.slice();
    this.version = 0;
  }

  // The plane of the latent space that is shown. A background belongs to one plane
  slice() {
    const { axes, z, Q } = this.app;
    return JSON.stringify([axes, Array.from(z).map((v, q) => (axes.includes(q) || Q === 1 ? null : v))]);
  }

  // A point of the plane as a point of the latent space
  pointAt(x, y) {
    const z = Float64Array.from(this.app.z);
    z[this.app.axes[0]] = x;
    if (this.app.Q > 1) z[this.app.axes[1]] = y;
    return z;
  }

  // The position of point i in the plane. One dimension is a strip with one line per class
  x(i) { return this.app.Z[i * this.app.Q + this.app.axes[0]]; }
  y(i) { return this.app.Q > 1 ? this.app.Z[i * this.app.Q + this.app.axes[1]] : this.app.heights[i]; }

  // Points in groups that are drawn in the same way: { code, index }
  groups() {
    const { column, n } = this.app;
    const step = this.webgl ? 1 : Math.max(1, Math.ceil(n / SVG_POINTS));
    const groups = Array.from({ length: column?.classes?.length || (column ? 2 : 1) }, (_, code) => ({ code, index: [] }));
    for (let i = 0; i < n; i += step) {
      groups[column?.classes ? column.codes[i] : column && Number.isNaN(column.values[i]) ? 1 : 0].index.push(i);
    }
    return groups;
  }

  traces() {
    const { column, n } = this.app;
    const type = this.webgl ? "scattergl" : "scatter";
    this.drawn = this.groups();
    const size = Math.min(Math.max(60 * n ** -0.28, 2.6), 8);
    const opacity = Math.min(Math.max(3.4 * n ** -0.18, 0.45), 0.9);
    const points = this.drawn.map(({ code, index }) => {
      const marker = { size: classShape(code) === "circle" ? size : size * 1.25, opacity, symbol: classShape(code), color: classColour(column, code) };
      if (column?.values) {
        marker.symbol = "circle";
        marker.color = code ? OTHERS : index.map((i) => column.values[i]);
        if (!code) Object.assign(marker, { colorscale: CIVIDIS.map((c, i) => [i / (CIVIDIS.length - 1), c]), cmin: column.low, cmax: column.high });
      }
      return {
        type, mode: "markers", marker, hoverinfo: "none", showlegend: false,
        x: Float32Array.from(index, (i) => this.x(i)), y: Float32Array.from(index, (i) => this.y(i)),
        visible: !this.hidden.has(code),
        selected: { marker: { opacity: 1 } }, unselected: { marker: { opacity: 0.12 } },
      };
    });
    return [this.heatmap(), ...points];
  }

  heatmap() {
    const { n, lines, axes, sd } = this.background;
    const [low, high] = this.app.sdRange;
    const span = ([from, to], count) => Array.from({ length: count }, (_, i) => from + ((to - from) * i) / (count - 1));
    const single = lines === 1;
    const z = Array.from({ length: single ? 2 : lines }, (_, line) => sd.subarray(single ? 0 : line * n, (single ? 0 : line * n) + n));
    return {
      type: "heatmap", x: span(axes[0], n), y: single ? this.app.heightRange : span(axes[1], lines), z,
      zmin: low, zmax: high, colorscale: [[0, ink("certain")], [1, ink("uncertain")]],
      zsmooth: "fast", showscale: false, hoverinfo: "none",
    };
  }

  layout() {
    const { axes, Q, column, mode } = this.app;
    const axis = (q) => ({
      title: { text: `z${axes[q]}`, standoff: 4, font: { size: 12 } }, range: this.home(q), zeroline: false,
      showgrid: false, tickfont: { size: 11 }, ticks: "", fixedrange: false,
    });
    const y = Q > 1 ? { ...axis(1), scaleanchor: "x", scaleratio: 1 } : {
      range: this.app.heightRange, fixedrange: true, showgrid: false, zeroline: false, ticks: "", tickfont: { size: 11 },
      // Plotly interprets some HTML tags in text, so class names appear only in the legend
      showticklabels: Boolean(column?.values && !column.unit),
    };
    return {
      margin: { l: 44, r: 6, t: 6, b: 34 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: ink("panel"),
      font: { color: ink("soft"), family: "system-ui, sans-serif" }, showlegend: false, hovermode: false,
      dragmode: mode === "select" ? "lasso" : "pan", xaxis: axis(0), yaxis: y,
      uirevision: axes.join(), selectionrevision: axes.join(),
      newselection: { line: { color: ink("accent"), width: 2, dash: "solid" } },
      activeselection: { fillcolor: ink("accent"), opacity: 0.05 },
    };
  }

  // The range that shows all points
  home(q) {
    let low = Infinity, high = -Infinity;
    for (let i = 0; i < this.app.n; i++) {
      const v = q ? this.y(i) : this.x(i);
      if (v < low) low = v;
      if (v > high) high = v;
    }
    const margin = 0.04 * (high - low) || 1;
    return [low - margin, high + margin];
  }

  async draw() {
    await Plotly.react(this.div, this.traces(), this.layout(), { displayModeBar: false, scrollZoom: true, doubleClick: false });
    this.place();
  }

  async start() {
    await this.draw();
    this.div.on("plotly_relayouting", () => this.overlay.classList.add("unseen"));
    this.div.on("plotly_relayout", () => this.moved());
    this.div.on("plotly_selected", (event) => this.app.select(event ? this.rowsOf(event.points) : []));
    this.div.on("plotly_deselect", () => this.app.select([]));
    new ResizeObserver(() => Plotly.Plots.resize(this.div).then(() => this.moved())).observe(document.getElementById("stage"));
    this.listen();
    this.moved();
  }

  rowsOf(points) {
    return points.filter((p) => p.curveNumber > 0).map((p) => this.drawn[p.curveNumber - 1].index[p.pointNumber]).sort((a, b) => a - b);
  }

  rowsInView() {
    const { x, y } = this.view();
    const rows = [];
    for (const { code, index } of this.drawn) {
      if (this.hidden.has(code)) continue;
      for (const i of index) {
        if (this.x(i) >= x[0] && this.x(i) <= x[1] && this.y(i) >= y[0] && this.y(i) <= y[1]) rows.push(i);
      }
    }
    return rows.sort((a, b) => a - b);
  }

  // Shows a selection that was not made with the mouse
  mark(rows) {
    const chosen = new Set(rows);
    const marked = this.drawn.map(({ index }) => (rows.length ? index.flatMap((i, at) => (chosen.has(i) ? [at] : [])) : null));
    Plotly.update(this.div, { selectedpoints: marked }, { selections: [] }, marked.map((_, i) => i + 1));
  }

  toggle(code, alone) {
    const all = this.drawn.map((group) => group.code);
    if (alone) {
      const already = all.every((other) => this.hidden.has(other) !== (other === code));
      this.hidden = new Set(already ? [] : all.filter((other) => other !== code));
    } else if (!this.hidden.delete(code)) this.hidden.add(code);
    Plotly.restyle(this.div, { visible: all.map((other) => !this.hidden.has(other)) }, all.map((_, i) => i + 1));
  }

  // ---------------------------------------------------------------------------------------------- view and pixels

  axesOnScreen() {
    const { xaxis, yaxis } = this.div._fullLayout;
    return { xaxis, yaxis };
  }

  view() {
    const { xaxis, yaxis } = this.axesOnScreen();
    return { x: xaxis.range.map(Number), y: yaxis.range.map(Number) };
  }

  toScreen(x, y) {
    const { xaxis, yaxis } = this.axesOnScreen();
    const view = this.view();
    return [
      ((x - view.x[0]) / (view.x[1] - view.x[0])) * xaxis._length,
      ((view.y[1] - y) / (view.y[1] - view.y[0])) * yaxis._length,
    ];
  }

  // A place of the window as a point of the plane, or null outside the axes
  toPlane(clientX, clientY) {
    const { xaxis, yaxis } = this.axesOnScreen();
    const view = this.view();
    const box = this.div.getBoundingClientRect();
    const px = clientX - box.left - xaxis._offset;
    const py = clientY - box.top - yaxis._offset;
    if (px < 0 || py < 0 || px > xaxis._length || py > yaxis._length) return null;
    return [
      view.x[0] + (px / xaxis._length) * (view.x[1] - view.x[0]),
      view.y[1] - (py / yaxis._length) * (view.y[1] - view.y[0]),
    ];
  }

  zoom(factor) {
    const view = this.view();
    const around = ([low, high]) => [(low + high) / 2 - ((high - low) / 2) * factor, (low + high) / 2 + ((high - low) / 2) * factor];
    return Plotly.relayout(this.div, { "xaxis.range": around(view.x), ...(this.app.Q > 1 && { "yaxis.range": around(view.y) }) });
  }

  reset() {
    return Plotly.relayout(this.div, { "xaxis.range": this.home(0), "yaxis.range": this.app.Q > 1 ? this.home(1) : this.app.heightRange });
  }

  // ---------------------------------------------------------------------------------------------- the background

  // Whether the background belongs to this plane, covers the view, and is fine enough for it
  covered() {
    const view = this.view();
    const fits = ([low, high], [from, to]) => from <= low && high <= to && high - low > 0.3 * (to - from);
    if (this.backgroundKey !== this.slice() || !fits(view.x, this.background.axes[0])) return false;
    return this.app.Q === 1 || fits(view.y, this.background.axes[1]);
  }

  moved() {
    this.place();
    if (!this.covered() && !this.pending) this.refresh();
  }

  // Computes a background for the view: first a coarse one, then one as fine as PATIENCE allows
  refresh() {
    const version = ++this.version;
    const wanted = () => version === this.version;
    this.pending = (async () => {
      await new Promise((resume) => setTimeout(resume, 200)); // the movement may go on
      if (!wanted()) return;
      const key = this.slice();
      const view = this.view();
      const wider = ([low, high]) => [low - 0.15 * (high - low), high + 0.15 * (high - low)];
      const axes = [wider(view.x), wider(view.y)];
      const started = performance.now();
      const pointAt = this.pointAt.bind(this);
      let n = this.app.Q > 1 ? COARSE : 8 * COARSE;
      const compute = () => computeGrid(this.app.decoder, pointAt, axes, n, this.app.Q > 1 ? n : 1, wanted);
      const coarse = await compute();
      if (!coarse) return;
      await this.show(coarse, key);
      const each = (performance.now() - started) / coarse.sd.length;
      n = Math.min(FINE, Math.floor(Math.sqrt(PATIENCE / each)));
      if (this.app.Q === 1 || n <= COARSE) return;
      const fine = await compute();
      if (fine) await this.show(fine, key);
    })().finally(() => {
      if (!wanted()) return;
      this.pending = null;
      if (!this.covered()) this.refresh();
    });
    return this.pending;
  }

  async show(background, key) {
    this.background = background;
    this.backgroundKey = key;
    const { x, y, z } = this.heatmap();
    await Plotly.restyle(this.div, { x: [x], y: [y], z: [z] }, [0]);
  }

  // The plane has changed: other axes, or other values of the dimensions that are not shown
  sliceChanged() {
    if (this.backgroundKey !== this.slice()) this.refresh();
  }

  // Waits for a background that contains these places, however coarse
  async gridAround(places) {
    const inside = () => this.backgroundKey === this.slice() && places.every((place) =>
      place.every((v, q) => v >= this.background.axes[q][0] && v <= this.background.axes[q][1]));
    while (!inside()) {
      if (!this.pending) this.refresh();
      await new Promise((resume) => setTimeout(resume, 50));
    }
    return this.background;
  }

  // ---------------------------------------------------------------------------------------------- pointer and overlay

  listen() {
    const stage = document.getElementById("stage");
    let pressed = null, frame = 0;
    stage.addEventListener("pointermove", (event) => {
      if (event.buttons || this.app.pinned) return;
      cancelAnimationFrame(frame);
      const { clientX, clientY } = event;
      frame = requestAnimationFrame(() => {
        const at = this.toPlane(clientX, clientY);
        if (at) this.app.pointAt(...at);
      });
    }, true);
    // Plotly covers the window while a button is pressed, so these events are caught at the window
    addEventListener("pointerdown", (event) => {
      const inside = stage.contains(event.target) && event.button === 0;
      pressed = inside ? { x: event.clientX, y: event.clientY } : null;
    }, true);
    addEventListener("pointerup", (event) => {
      if (!pressed || Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) > 4) return;
      pressed = null;
      const at = this.toPlane(event.clientX, event.clientY);
      if (at) this.app.click(at, event.pointerType === "touch");
    }, true);
    stage.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const { app } = this;
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (arrow) {
      const view = this.view();
      const step = event.shiftKey ? 0.1 : 0.02;
      const [x, y] = app.plane();
      const clamp = (v, [low, high]) => Math.min(Math.max(v, low), high);
      app.pointAt(
        clamp(x + arrow[0] * step * (view.x[1] - view.x[0]), view.x),
        clamp(y + arrow[1] * step * (view.y[1] - view.y[0]), view.y),
      );
      app.speak();
    } else if (event.key === "Enter" || event.key === " ") app.click(app.plane());
    else if (event.key === "Escape") app.letGo();
    else if (event.key === "+" || event.key === "=") this.zoom(0.7);
    else if (event.key === "-") this.zoom(1 / 0.7);
    else return;
    event.preventDefault();
  }

  // Draws pointer, nearest observation and path at their places
  place() {
    const { xaxis, yaxis } = this.axesOnScreen();
    Object.assign(this.overlay.style, { left: `${xaxis._offset}px`, top: `${yaxis._offset}px`, width: `${xaxis._length}px`, height: `${yaxis._length}px` });
    this.overlay.classList.remove("unseen");
    const shape = (tag, attributes) => {
      const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
      return node;
    };
    const marks = [];
    const { ends, points } = this.app.path;
    const [px, py] = this.app.plane();
    if (points.length) {
      const line = points.map((z) => this.toScreen(z[this.app.axes[0]], this.app.Q > 1 ? z[this.app.axes[1]] : py).join()).join(" ");
      marks.push(shape("polyline", { class: "below", points: line }), shape("polyline", { points: line }));
    }
    for (const z of ends) {
      const [cx, cy] = this.toScreen(z[this.app.axes[0]], this.app.Q > 1 ? z[this.app.axes[1]] : py);
      marks.push(shape("circle", { class: "end", cx, cy, r: 5.5 }));
    }
    const { nearest } = this.app;
    if (nearest) {
      const [cx, cy] = this.toScreen(nearest.z[this.app.axes[0]], this.app.Q > 1 ? nearest.z[this.app.axes[1]] : py);
      marks.push(shape("circle", { class: "halo", cx, cy, r: 6 }), shape("circle", { class: "seen", cx, cy, r: 6 }));
    }
    const [x, y] = this.toScreen(px, py);
    const cross = `M${x - 11} ${y}H${x - 4}M${x + 4} ${y}H${x + 11}M${x} ${y - 11}V${y - 4}M${x} ${y + 4}V${y + 11}`;
    marks.push(shape("path", { class: "halo", d: cross }), shape("path", { class: "pointer", d: cross }));
    this.overlay.replaceChildren(...marks);
  }
}
