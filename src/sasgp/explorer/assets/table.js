// A decoded row of a table: one block per column, in the user's units. Numbers have the mean as a dot on the interval,
// levels a bar of probability each, and the nearest observation is written beside. Elements are made once.

const MOST_LEVELS = 8; // bars of a column; of more levels, the most probable or those around the median

const percent = (p) => (p < 0.005 ? "<1 %" : p > 0.995 ? ">99 %" : `${Math.round(100 * p)} %`);
const span = (className, textContent = "") => element("span", { className, textContent });

class TableChart {
  constructor(parent, columns) {
    this.blocks = columns.map((column) => new (column.levels ? LevelBlock : NumberBlock)(parent, column));
  }

  // `seen` has the cells of the nearest row, and `there` is what is decoded at its latents, for missing cells
  draw(decoded, seen, there, samples = []) {
    this.blocks.forEach((block, i) => block.draw(decoded, seen && { cell: seen[i], there }, samples.map((row) => row[i])));
  }
}

class Block {
  constructor(parent, column, body) {
    this.column = column;
    this.value = span("value");
    this.own = span("own");
    const name = element("span", { className: "name", textContent: column.name, title: `${column.name}: ${column.kind}` });
    parent.append(element("div", { className: "column" }, element("div", { className: "head" }, name, this.value), body, this.own));
  }

  // The observed cell, or what is imputed in its place
  drawOwn(seen) {
    this.own.hidden = !seen;
    if (!seen) return;
    const missing = Number.isNaN(seen.cell);
    this.own.textContent = missing ? `missing; imputed ${this.read(this.column.read(seen.there))}` : this.column.own(seen.cell);
    this.own.classList.toggle("imputed", missing);
    this.own.classList.toggle("long", this.own.textContent.length > 12);
    this.own.title = this.own.textContent;
  }
}

class NumberBlock extends Block {
  constructor(parent, column) {
    const parts = { band: element("i", { className: "band" }), seen: element("i", { className: "seen" }), dot: element("i", { className: "dot" }) };
    const track = element("span", { className: "track" }, parts.band, parts.seen, parts.dot);
    super(parent, column, track);
    Object.assign(this, parts, { track });
    track.title = `The line is from ${column.text(column.low)} to ${column.text(column.high)}`;
  }

  read({ value, low, high }) {
    return `${this.column.text(value)} (${this.column.text(low)} – ${this.column.text(high)})`;
  }

  draw(decoded, seen, samples) {
    // A sixth of the track is left on either side for values outside the range of the data
    const place = (x) => Math.min(Math.max(16 + 68 * this.column.place(x), 0), 100);
    const found = this.column.read(decoded);
    this.value.textContent = this.value.title = this.read(found);
    this.band.style.left = `${place(found.low)}%`;
    this.band.style.width = `${Math.max(place(found.high) - place(found.low), 0.5)}%`;
    this.dot.style.left = `${place(found.value)}%`;
    this.drawOwn(seen);
    this.seen.hidden = !seen;
    if (seen) {
      const missing = Number.isNaN(seen.cell);
      this.seen.style.left = `${place(missing ? this.column.read(seen.there).value : seen.cell)}%`;
      this.seen.classList.toggle("imputed", missing);
    }
    this.track.querySelectorAll(".draw").forEach((old) => old.remove());
    for (const value of samples) {
      const tick = element("i", { className: "draw" });
      tick.style.left = `${place(value)}%`;
      this.track.append(tick);
    }
  }
}

class LevelBlock extends Block {
  constructor(parent, column) {
    const box = span("levels");
    super(parent, column, box);
    this.lines = Array.from({ length: Math.min(column.levels.length, MOST_LEVELS) }, () => {
      const parts = { name: span("name"), bar: element("i"), share: span("share") };
      parts.line = element("span", { className: "level" }, parts.name, element("span", { className: "bar" }, parts.bar), parts.share);
      box.append(parts.line);
      return parts;
    });
  }

  read({ code, shares }) {
    return `${this.column.text(code)}, ${percent(shares[code])}`;
  }

  // The levels that have a bar: all, or the most probable, or of an order those around the median
  shown({ code, shares }) {
    const { levels, type } = this.column;
    const all = levels.map((_, i) => i);
    if (levels.length <= MOST_LEVELS) return all;
    if (type !== "scale") return all.sort((a, b) => shares[b] - shares[a]).slice(0, MOST_LEVELS);
    const first = Math.min(Math.max(code - MOST_LEVELS / 2, 0), levels.length - MOST_LEVELS);
    return all.slice(first, first + MOST_LEVELS);
  }

  draw(decoded, seen, samples) {
    const found = this.column.read(decoded);
    this.value.textContent = this.value.title = this.read(found);
    this.drawOwn(seen);
    this.shown(found).forEach((code, i) => {
      const { line, name, bar, share } = this.lines[i];
      name.textContent = name.title = this.column.levels[code];
      bar.style.width = `${100 * found.shares[code]}%`;
      share.textContent = `${percent(found.shares[code])}${"•".repeat(samples.filter((drawn) => drawn === code).length)}`;
      line.classList.toggle("seen", seen?.cell === code);
    });
  }
}
