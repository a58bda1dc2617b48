// The latent space: points over a background, with the axes around them. Whatever moves with the pointer is in an overlay,
// so that hovering redraws nothing else.

const MARGIN = { left: 44, right: 6, top: 6, bottom: 34 }; // pixels, for the axes
const FLUID = 25; // milliseconds that the points may take in a frame while the view moves
const REACH = 9; // pixels from the pointer to the point whose values are shown

class LatentPlot {
  constructor(app) {
    this.app = app;
    for (const id of ["stage", "area", "ticks", "fog", "drawing", "overlay"]) this[`${id === "fog" ? "fogCanvas" : id}`] = $(id);
    this.points = WebGLPoints.on($("points"));
    this.webgl = Boolean(this.points);
    this.points ??= new CanvasPoints($("points"));
    this.hidden = new Set(); // codes of classes
    this.viewport = new Viewport(app.Q === 1);
    this.order = shuffled(app.n);
    this.fogs = { sd: new Fog(this, (z) => app.decoder.sd(z), app.sdGrid) };
    if (app.geometry) this.fogs.volume = new Fog(this, (z) => Math.log10(app.geometry.volume(z)), app.volumeGrid, decades);
    this.density = new Density(this);
    this.tooltip = new Tooltip(app);
    this.share = null; // of the points that are drawn while the view moves
    this.rest = null;
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

  // The place of a point of the latent space in the plane, in pixels
  screen(z) { return this.toScreen(z[this.app.axes[0]], this.app.Q > 1 ? z[this.app.axes[1]] : this.app.plane()[1]); }

  // The class of a point. Numbers have two: known and missing
  code(i) {
    const { column } = this.app;
    return column?.classes ? column.codes[i] : column && Number.isNaN(column.values[i]) ? 1 : 0;
  }

  get fog() { return this.fogs[this.app.look.background] ?? null; }
  get pending() { return Object.values(this.fogs).some((fog) => fog.pending); }
  isShown(i) { return !this.hidden.has(this.code(i)); }

  // ---------------------------------------------------------------------------------------------- the points

  // What is drawn of each point: in a random order, so that no class covers the others, and selected ones last
  marks() {
    const { app } = this;
    const { column, n, selection } = app;
    const chosen = selection.size ? (i) => selection.has(i) : () => true;
    const shown = this.order.filter((i) => this.isShown(i));
    const order = selection.size ? [...shown.filter((i) => !chosen(i)), ...shown.filter(chosen)] : shown;
    const marks = { count: order.length, at: new Float32Array(2 * order.length), colour: new Uint8Array(4 * order.length), look: new Float32Array(2 * order.length) };
    const size = Math.min(Math.max(60 * n ** -0.28, 2.6), 8) * 3 ** app.look.size;
    const colours = Array.from({ length: Math.max(column?.classes?.length ?? 2, 2) }, (_, code) => rgb(column?.values && code ? OTHERS : classColour(column, code)));
    const scale = Array.from({ length: 256 }, (_, k) => shade(k / 255));
    order.forEach((i, k) => {
      const code = this.code(i);
      const isNumber = column?.values && !code;
      const colour = isNumber ? scale[Math.round(255 * ((column.values[i] - column.low) / (column.high - column.low || 1)))] : colours[code];
      const shape = column?.classes ? classShape(code) : 0;
      const alpha = app.look.opacity * (chosen(i) ? 1 : 0.15) * (this.fades?.[i] ?? 1);
      marks.at[2 * k] = this.x(i);
      marks.at[2 * k + 1] = this.y(i);
      for (let c = 0; c < 3; c++) marks.colour[4 * k + c] = colour[c];
      marks.colour[4 * k + 3] = 255 * Math.max(selection.size && chosen(i) ? alpha ** 0.5 : alpha, 0.02);
      marks.look[2 * k] = shape ? 1.25 * size : size;
      marks.look[2 * k + 1] = shape;
    });
    return marks;
  }

  // With three or more dimensions, points fade with their distance from the plane: exp(−½ d²/w²), where w is the lower
  // quartile of the distances between points in the dimensions that are not shown
  fade() {
    const { app } = this;
    const others = Array.from({ length: app.Q }, (_, q) => q).filter((q) => !app.axes.includes(q));
    if (!others.length || app.Q < 3 || !app.look.fade || app.decoder instanceof GridDecoder) return void (this.fades = null);
    const squared = (i, at) => others.reduce((total, q) => total + (app.Z[i * app.Q + q] - at(q)) ** 2, 0);
    const some = Math.min(app.n, 2000);
    const pairs = Float64Array.from({ length: some }, (_, k) => squared(this.order[k], (q) => app.Z[this.order[(k + 1) % app.n] * app.Q + q])).sort();
    const width = pairs[Math.floor(some / 4)] || 1;
    this.fades = Float32Array.from({ length: app.n }, (_, i) => Math.exp(-squared(i, (q) => app.z[q]) / (2 * width)));
  }

  // Something about the points has changed: colours, classes that are hidden, selection, plane
  draw() {
    this.fade();
    this.points.load(this.marks());
    this.paint();
  }

  // ---------------------------------------------------------------------------------------------- painting

  // Draws everything at the next frame
  paint() {
    this.place();
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.paintNow();
    });
  }

  // While the view moves, only as many points are drawn as stay fluid. They are in a random order, so that a part of them
  // looks like all
  moving() {
    this.share ??= Math.min(Math.max(FLUID / this.points.milliseconds(this.viewport), 0.1), 1);
    clearTimeout(this.rest);
    this.rest = setTimeout(() => {
      this.rest = null;
      this.points.draw(this.viewport);
    }, 180);
  }

  paintNow() {
    const { viewport, app } = this;
    const pen = prepared(this.fogCanvas, ...viewport.size);
    pen.fillStyle = ink("panel");
    pen.fillRect(0, 0, ...viewport.size);
    this.fog?.draw(pen);
    this.points.draw(viewport, this.rest ? this.share : 1);
    this.drawAxes();
    const over = prepared(this.drawing, ...viewport.size);
    if (app.Q > 1 && app.look.contours) this.density.drawContours(over);
    if (app.Q > 1 && app.look.labels) this.density.drawLabels(over);
    if (this.lassoLine) drawLine(over, this.lassoLine);
  }

  drawAxes() {
    const { app, viewport } = this;
    const [width, height] = [this.stage.clientWidth, this.stage.clientHeight];
    const pen = prepared(this.ticks, width, height);
    pen.fillStyle = ink("soft");
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    const [w, h] = viewport.size;
    for (const [value, text] of ticks(viewport.range(0), w / 90)) {
      pen.fillText(text, MARGIN.left + viewport.toScreen(value, 0)[0], MARGIN.top + h + 14);
    }
    pen.fillText(`z${app.axes[0]}`, MARGIN.left + w / 2, MARGIN.top + h + 29);
    pen.textAlign = "right";
    // In one dimension the height is a number only if points are coloured by one; classes are in the legend
    if (app.Q > 1 || (app.column?.values && !app.column.unit)) {
      for (const [value, text] of ticks(viewport.range(1), h / 60)) {
        const y = MARGIN.top + viewport.toScreen(0, value)[1];
        if (y > 10 && y < MARGIN.top + h - 2) pen.fillText(text, MARGIN.left - 5, y + 4);
      }
    }
    if (app.Q === 1) return;
    pen.save();
    pen.translate(11, MARGIN.top + h / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    pen.fillText(`z${app.axes[1]}`, 0, 0);
    pen.restore();
  }

  start() {
    this.viewport.fit(this.home(0), this.app.Q > 1 ? this.home(1) : this.app.heightRange);
    this.resize();
    this.draw();
    new ResizeObserver(() => {
      this.resize();
      this.place();
      this.tooltip.hide();
      this.paintNow(); // in the same frame: a canvas that has a new size is empty
      this.stopped();
    }).observe(this.stage);
    listen(this);
    this.stopped();
  }

  resize() {
    const { clientWidth, clientHeight } = this.stage;
    const [width, height] = [clientWidth - MARGIN.left - MARGIN.right, clientHeight - MARGIN.top - MARGIN.bottom];
    this.viewport.resize(width, height);
    Object.assign(this.area.style, { left: `${MARGIN.left}px`, top: `${MARGIN.top}px`, width: `${width}px`, height: `${height}px` });
  }

  // ---------------------------------------------------------------------------------------------- the view

  view() { return { x: this.viewport.range(0), y: this.viewport.range(1) }; }
  toScreen(x, y) { return this.viewport.toScreen(x, y); }

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

  pan(dx, dy) {
    this.viewport.pan(dx, dy);
    this.moving();
    this.tooltip.hide();
    this.paint();
  }

  zoom(factor, px, py) {
    this.viewport.zoom(factor, px, py);
    this.moving();
    this.tooltip.hide();
    this.paint();
    this.stopped();
  }

  reset() {
    this.viewport.fit(this.home(0), this.app.Q > 1 ? this.home(1) : this.app.heightRange);
    this.paint();
    this.stopped();
  }

  // Moves the view if a place is not in it
  reveal(x, y) {
    const view = this.view();
    const within = (v, [low, high]) => v > low + 0.03 * (high - low) && v < high - 0.03 * (high - low);
    if (within(x, view.x) && within(y, view.y)) return;
    this.viewport.look([x, y], this.viewport.extent);
    this.paint();
    this.stopped();
  }

  // A movement has ended, so that the background may need another grid
  stopped() { this.fog?.follow(); }

  // The plane has changed: other axes, or other values of the dimensions that are not shown
  sliceChanged() {
    if (this.app.Q > 2) this.draw();
    this.fog?.follow();
  }

  // ---------------------------------------------------------------------------------------------- rows

  rowsInView() {
    const { x, y } = this.view();
    const inside = (i) => this.x(i) >= x[0] && this.x(i) <= x[1] && this.y(i) >= y[0] && this.y(i) <= y[1];
    return Array.from({ length: this.app.n }, (_, i) => i).filter((i) => this.isShown(i) && inside(i));
  }

  // The point nearest to a pixel, or -1 if there is none within reach
  pointNear([px, py]) {
    const [x, y] = this.viewport.toPlane(px, py);
    const [ux, uy] = this.viewport.unit;
    let best = -1, least = REACH ** 2;
    for (let i = 0; i < this.app.n; i++) {
      const distance = ((this.x(i) - x) / ux) ** 2 + ((this.y(i) - y) / uy) ** 2;
      if (distance < least && this.isShown(i) && !(this.fades?.[i] < 0.1)) [best, least] = [i, distance];
    }
    return best;
  }

  toggle(code, alone) {
    const all = (this.app.column?.classes ?? []).map((_, other) => other);
    if (alone) {
      const already = all.every((other) => this.hidden.has(other) !== (other === code));
      this.hidden = new Set(already ? [] : all.filter((other) => other !== code));
    } else if (!this.hidden.delete(code)) this.hidden.add(code);
    this.draw();
  }

  lasso(line, how) {
    const polygon = line.map((at) => this.viewport.toPlane(...at));
    const found = Array.from({ length: this.app.n }, (_, i) => i).filter((i) => this.isShown(i) && isInside(polygon, this.x(i), this.y(i)));
    this.app.selection.change(found, how);
  }

  drawLasso(line) {
    if (line === this.lassoLine && !line) return;
    this.lassoLine = line;
    this.paint();
  }

  // ---------------------------------------------------------------------------------------------- pointer and overlay

  hover(at) {
    this.app.pointAt(...this.viewport.toPlane(...at));
    this.showTooltip(this.pointNear(at));
  }

  leave() { if (!this.app.pinned) this.tooltip.hide(); }

  showTooltip(i) {
    if (i < 0) return this.tooltip.hide();
    const [x, y] = this.toScreen(this.x(i), this.y(i));
    this.tooltip.show(i, MARGIN.left + x, MARGIN.top + y);
  }

  // Draws pointer, nearest observation and path at their places
  place() {
    const { path, nearest } = this.app;
    const marks = [];
    if (path.points.length) {
      const line = path.line.map((z) => this.screen(z).join()).join(" ");
      marks.push(shape("polyline", { class: "below", points: line }), shape("polyline", { points: line }));
    }
    for (const z of path.ends) {
      const [cx, cy] = this.screen(z);
      marks.push(shape("circle", { class: "end", cx, cy, r: 5.5 }));
    }
    if (nearest) {
      const [cx, cy] = this.screen(nearest.z);
      marks.push(shape("circle", { class: "halo", cx, cy, r: 6 }), shape("circle", { class: "seen", cx, cy, r: 6 }));
    }
    const [x, y] = this.toScreen(...this.app.plane());
    const cross = `M${x - 11} ${y}H${x - 4}M${x + 4} ${y}H${x + 11}M${x} ${y - 11}V${y - 4}M${x} ${y + 4}V${y + 11}`;
    marks.push(shape("path", { class: "halo", d: cross }), shape("path", { class: "pointer", d: cross }));
    this.overlay.replaceChildren(...marks);
  }
}

// A background of one kind, which follows the view: a grid that covers it, first a coarse one and then one as fine as
// PATIENCE allows
class Fog {
  version = 0;
  pending = null;
  places = []; // which the next grid contains besides the view

  constructor(plot, value, grid, shades = shadeRange) {
    Object.assign(this, { plot, value, grid, shades });
    this.key = grid && plot.slice();
    this.range = grid && shades(grid.values);
  }

  draw(pen) {
    if (!this.grid) return;
    const theme = isDark();
    if (this.painted !== this.grid || this.theme !== theme) {
      this.picture = shaded(this.grid, this.range);
      Object.assign(this, { painted: this.grid, theme });
    }
    drawShades(pen, this.picture, this.grid, this.plot.viewport);
  }

  // Whether the grid belongs to this plane, covers the view, and is fine enough for it
  covered() {
    if (!this.grid || this.key !== this.plot.slice()) return false;
    const { x, y } = this.plot.view();
    const fits = ([low, high], [from, to]) => from <= low && high <= to && high - low > 0.3 * (to - from);
    return fits(x, this.grid.axes[0]) && (this.plot.app.Q === 1 || fits(y, this.grid.axes[1]));
  }

  follow() { if (!this.covered() && (!this.pending || this.wantedKey !== this.plot.slice())) this.refresh(); }

  refresh() {
    const { plot } = this;
    const { app } = plot;
    const version = ++this.version;
    const wanted = () => version === this.version;
    this.wantedKey = plot.slice();
    this.pending = (async () => {
      await new Promise((resume) => setTimeout(resume, 200)); // the movement may go on
      if (!wanted()) return;
      const key = plot.slice();
      const wider = ([low, high]) => [low - 0.15 * (high - low), high + 0.15 * (high - low)];
      const { x, y } = plot.view();
      const axes = [x, y].map((range, q) => wider([Math.min(range[0], ...this.places.map((at) => at[q])), Math.max(range[1], ...this.places.map((at) => at[q]))]));
      const started = performance.now();
      let n = app.Q > 1 ? COARSE : 8 * COARSE;
      const compute = () => computeGrid(this.value, plot.pointAt.bind(plot), axes, n, app.Q > 1 ? n : 1, wanted);
      const coarse = await compute();
      if (!coarse) return;
      this.show(coarse, key);
      const each = (performance.now() - started) / coarse.values.length;
      n = Math.min(FINE, Math.floor(Math.sqrt(PATIENCE / each)));
      if (app.Q === 1 || n <= COARSE) return;
      const fine = await compute();
      if (fine) this.show(fine, key);
    })().finally(() => {
      if (!wanted()) return;
      this.pending = null;
      if (!this.covered()) this.refresh();
    });
    return this.pending;
  }

  show(grid, key) {
    Object.assign(this, { grid, key });
    if (!this.range) {
      this.range = this.shades(grid.values);
      showScale(this.plot.app);
    }
    this.plot.paint();
  }

  // Waits for a grid that contains these places, however coarse
  async around(places) {
    const inside = () => this.grid && this.key === this.plot.slice() && places.every((place) =>
      place.every((v, q) => v >= this.grid.axes[q][0] && v <= this.grid.axes[q][1]));
    this.places = places;
    while (!inside()) {
      if (!this.pending) this.refresh();
      await new Promise((resume) => setTimeout(resume, 50));
    }
    this.places = [];
    return this.grid;
  }
}

// 0 … n − 1 in an order that is random, and always the same
function shuffled(n) {
  const order = Array.from({ length: n }, (_, i) => i);
  const random = generator();
  for (let i = n - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

function drawLine(pen, line) {
  pen.beginPath();
  line.forEach(([x, y]) => pen.lineTo(x, y));
  pen.closePath();
  pen.globalAlpha = 0.08;
  pen.fillStyle = pen.strokeStyle = ink("accent");
  pen.fill();
  pen.globalAlpha = 1;
  pen.lineWidth = 2;
  pen.stroke();
}
