// Rows of data as pictures: images on a canvas, tables with one line per feature, long rows as a curve.

const MAX_LINES = 60; // with more features, a curve

function drawImage(canvas, row, image) {
  const { height, width, channels, planes, low, high } = image;
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const invert = image.writing && !isDark(); // writing is dark on light in light colours, and light on dark in dark ones
  const picture = new ImageData(width, height);
  const pixels = width * height;
  for (let i = 0; i < pixels; i++) {
    for (let c = 0; c < 4; c++) {
      const channel = channels === 1 ? 0 : c;
      let shade = 255;
      if (c < 3 || channels === 4) {
        shade = (255 * (row[planes ? channel * pixels + i : i * channels + channel] - low)) / (high - low || 1);
      }
      picture.data[4 * i + c] = invert && c < 3 ? 255 - shade : shade; // clamped by its type
    }
  }
  canvas.getContext("2d", { willReadFrequently: true }).putImageData(picture, 0, 0); // faster for small pictures
}

// One line per feature: ±2 sd as a band, the mean as a dot, the nearest observation as a ring, on the feature's own
// scale. Elements are made once and moved afterwards.
class FeatureLines {
  constructor(parent, page) {
    this.page = page;
    this.lines = page.features.map((name) => {
      const parts = { band: element("i", { className: "band" }), seen: element("i", { className: "seen" }), dot: element("i", { className: "dot" }) };
      parts.value = element("span", { className: "value" });
      const track = element("span", { className: "track" }, parts.band, parts.seen, parts.dot);
      parent.append(element("div", { className: "feature" }, element("span", { className: "name", textContent: name, title: name }), track, parts.value));
      return parts;
    });
  }

  draw(mean, sds, seen, samples = []) {
    this.lines.forEach((line, d) => {
      const low = this.page.low[d];
      const range = this.page.high[d] - low || Math.abs(low) || 1;
      // A sixth of the track is left on either side for values outside the range of the data
      const place = (x) => Math.min(Math.max(16 + (68 * (x - low)) / range, 0), 100);
      line.band.style.left = `${place(mean[d] - 2 * sds[d])}%`;
      line.band.style.width = `${place(mean[d] + 2 * sds[d]) - place(mean[d] - 2 * sds[d])}%`;
      line.dot.style.left = `${place(mean[d])}%`;
      line.seen.style.display = seen ? "" : "none";
      if (seen) line.seen.style.left = `${place(seen[d])}%`;
      line.value.textContent = digits(mean[d]);
      const track = line.dot.parentElement;
      track.querySelectorAll(".draw").forEach((old) => old.remove());
      for (const row of samples) {
        const tick = element("i", { className: "draw" });
        tick.style.left = `${place(row[d])}%`;
        track.append(tick);
      }
    });
  }
}

// Many features: the mean as a curve in a band of ±2 sd, the observation as a thinner curve, all on one scale
class Curve {
  constructor(parent, page) {
    this.page = page;
    this.canvas = element("canvas", { className: "curve" });
    parent.append(this.canvas);
    this.low = Math.min(...page.low);
    this.high = Math.max(...page.high);
  }

  draw(mean, sds, seen, samples = []) {
    const ratio = devicePixelRatio || 1;
    const width = (this.canvas.width = this.canvas.clientWidth * ratio);
    const height = (this.canvas.height = this.canvas.clientHeight * ratio);
    const pen = this.canvas.getContext("2d");
    const margin = 0.15 * (this.high - this.low) || 1;
    const x = (d) => ((d + 0.5) / mean.length) * width;
    const y = (v) => height * (1 - (v - this.low + margin) / (this.high - this.low + 2 * margin));
    const trace = (row) => row.forEach((v, d) => (d ? pen.lineTo(x(d), y(v)) : pen.moveTo(x(d), y(v))));
    pen.fillStyle = ink("band");
    pen.beginPath();
    trace(mean.map((m, d) => m + 2 * sds[d]));
    for (let d = mean.length - 1; d >= 0; d--) pen.lineTo(x(d), y(mean[d] - 2 * sds[d]));
    pen.fill();
    const line = (row, colour, size) => {
      pen.strokeStyle = colour;
      pen.lineWidth = size * ratio;
      pen.beginPath();
      trace(row);
      pen.stroke();
    };
    samples.forEach((row) => line(row, ink("faint"), 0.6));
    if (seen) line(seen, ink("seen"), 1);
    line(mean, ink("accent"), 1.6);
    pen.fillStyle = ink("soft");
    pen.font = `${11 * ratio}px system-ui, sans-serif`;
    pen.fillText(digits(this.high), 4 * ratio, y(this.high) - 3 * ratio);
    pen.fillText(digits(this.low), 4 * ratio, y(this.low) + 11 * ratio);
  }
}
