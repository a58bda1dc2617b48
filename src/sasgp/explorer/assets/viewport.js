// The part of the plane that is shown. Two latent dimensions have the same unit, so that distances can be compared; one
// latent dimension is a strip, whose height is fixed.

class Viewport {
  size = [1, 1]; // pixels
  centre = [0, 0]; // in the plane
  unit = [1, 1]; // of the plane, per pixel
  moved = false;

  constructor(flat) { this.flat = flat; } // whether there is one latent dimension

  // Shows these ranges, and keeps showing them when the size changes
  fit(x, y) {
    this.home = [x, y];
    this.moved = false;
    this.centre = this.home.map(([low, high]) => (low + high) / 2);
    this.unit = this.home.map(([low, high], q) => (high - low) / this.size[q]);
    if (!this.flat) this.unit.fill(Math.max(...this.unit));
  }

  // Another size shows as much of the plane along the shorter side
  resize(width, height) {
    const { extent } = this;
    this.size = [Math.max(width, 1), Math.max(height, 1)];
    if (!this.moved) return this.fit(...this.home);
    if (this.flat) this.unit[1] = (this.home[1][1] - this.home[1][0]) / this.size[1];
    this.look(this.centre, extent);
  }

  range(q) {
    const half = 0.5 * this.unit[q] * this.size[q];
    return [this.centre[q] - half, this.centre[q] + half];
  }

  toScreen(x, y) {
    return [this.size[0] / 2 + (x - this.centre[0]) / this.unit[0], this.size[1] / 2 - (y - this.centre[1]) / this.unit[1]];
  }

  toPlane(px, py) {
    return [this.centre[0] + (px - this.size[0] / 2) * this.unit[0], this.centre[1] - (py - this.size[1] / 2) * this.unit[1]];
  }

  pan(dx, dy) {
    this.moved = true;
    this.centre[0] -= dx * this.unit[0];
    if (!this.flat) this.centre[1] += dy * this.unit[1];
  }

  // Changes the unit by a factor, while the plane stays where it is at this pixel
  zoom(factor, px = this.size[0] / 2, py = this.size[1] / 2) {
    const least = 1e-5 * (this.home[0][1] - this.home[0][0]); // float32 has no more digits
    const width = this.unit[0] * this.size[0] * factor;
    if (width < least || width > 1e3 * (this.home[0][1] - this.home[0][0])) return;
    const before = this.toPlane(px, py);
    this.unit = this.unit.map((unit, q) => (q && this.flat ? unit : unit * factor));
    const after = this.toPlane(px, py);
    this.moved = true;
    this.centre = this.centre.map((v, q) => (q && this.flat ? v : v + before[q] - after[q]));
  }

  // Looks at a place, with this much of the plane along the shorter side
  look(centre, extent) {
    this.moved = true;
    this.centre = this.flat ? [centre[0], this.centre[1]] : [...centre];
    const unit = extent / (this.flat ? this.size[0] : Math.min(...this.size));
    this.unit = this.flat ? [unit, this.unit[1]] : [unit, unit];
  }

  get extent() { return this.flat ? this.unit[0] * this.size[0] : this.unit[0] * Math.min(...this.size); }
}

// Round numbers between low and high, about so many
function ticks([low, high], count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((s) => s * power >= rough) ?? 10);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) found.push([k * step, (k * step).toFixed(Math.min(decimals, 12)).replace("-", "−")]);
  return found;
}

// A canvas of this many pixels of the page, sharp on any screen, and its pen. The processor draws it, not the graphics card:
// Chromium may go on showing a canvas of the card that has only been cleared
function prepared(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}
