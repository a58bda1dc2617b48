// A path between two places: the shortest in the data, one where the decoder is certain, or a straight one.

class Path {
  constructor(app) {
    this.app = app;
    this.forget();
  }

  // `line` is drawn, and `points` are what is decoded along it
  forget() {
    Object.assign(this, { ends: [], line: [], points: [], frames: [], version: (this.version ?? 0) + 1 });
    $("strip").hidden = $("png").disabled = $("forget").disabled = true;
    $("path-hint").textContent = "Click two places in the latent space.";
    this.app.plot?.place();
  }

  async addEnd(z) {
    if (this.ends.length === 2) this.forget();
    this.ends.push(Float64Array.from(z));
    $("forget").disabled = false;
    $("path-hint").textContent = this.ends.length < 2 ? "Click the other end." : "";
    this.app.plot.place();
    if (this.ends.length === 2) await this.make();
  }

  // The route as a line of points, or null if another one is wanted by now
  async route(kind, wanted) {
    const { app } = this;
    const ends = this.ends.map((z) => Array.from(z));
    if (kind === "shortest" && app.geometry) return app.geometry.shortest(...ends, wanted);
    if (kind !== "certain" || app.Q === 1) return ends;
    const flat = ends.map((z) => app.axes.map((q) => z[q]));
    const grid = await app.plot.fogs.sd.around(flat);
    return wanted() ? cheapestRoute(grid, ...flat).map((at) => Array.from(app.plot.pointAt(...at))) : null;
  }

  async make() {
    const { app } = this;
    if (this.ends.length < 2) return;
    const version = ++this.version;
    $("path-hint").textContent = "Searching for a route …";
    const route = await this.route($("route").value, () => version === this.version);
    if (!route || version !== this.version) return;
    const pieces = $("route").value === "shortest" ? app.geometry?.length(route) : null;
    this.line = route;
    this.points = resampled(route, Number($("frames").value), pieces);
    this.frames = this.points.map((z) => app.decoder.decode(Float64Array.from(z)));
    this.draw();
    $("strip").hidden = false;
    $("png").disabled = false;
    $("path-hint").textContent = `${this.measured(route)}Click a picture to go there.`;
    app.plot.place();
  }

  // How long the route is in the data, beside the straight one
  measured(route) {
    const { geometry } = this.app;
    if (!geometry) return "";
    const size = (some) => geometry.length(resampled(some, 3 * PIECES + 1)).reduce((a, b) => a + b, 0);
    const straight = size(this.ends.map((z) => Array.from(z)));
    const own = route.length > 2 ? `${digits(size(route))}; straight ` : "";
    return `Length in the data ${own}${digits(straight)}. `;
  }

  draw() {
    if (this.frames.length) this.cells = drawStrip($("strip"), this.frames, this.app);
  }

  // The point whose picture is at this pixel of the strip
  pointAt(x) {
    return this.points[Math.floor((x - this.cells.left) / this.cells.width)];
  }
}
