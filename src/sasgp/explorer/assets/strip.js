// The strip: what is decoded along a path, as pictures side by side, and below each a bar that shows its uncertainty.

const BARS = { gap: 4, height: 30, least: 4, text: 14 }; // pixels

// Draws one picture per frame, and returns where they are: the left of the first, and the width of each
function drawStrip(canvas, frames, { page, table }) {
  const ratio = 2; // sharp on high-resolution screens and in the exported picture
  const named = table || (!page.image && page.features.length <= MAX_LINES);
  const frame = pictureSize(page, table);
  const pen = canvas.getContext("2d");
  pen.font = "11px system-ui, sans-serif";
  const left = named ? Math.min(Math.max(...page.features.map((name) => pen.measureText(name).width)) + 10, 260) : 0;
  const size = { width: left + frames.length * (frame.width + BARS.gap), height: frame.height + BARS.height + BARS.text + 6 };
  Object.assign(canvas, { width: size.width * ratio, height: size.height * ratio });
  Object.assign(canvas.style, { width: `${size.width}px`, height: `${size.height}px` });
  pen.scale(ratio, ratio);
  pen.fillStyle = ink("paper");
  pen.fillRect(0, 0, size.width, size.height);
  pen.imageSmoothingEnabled = false;
  pen.font = "11px system-ui, sans-serif"; // a new size forgets it
  pen.fillStyle = ink("ink");
  if (named) page.features.forEach((name, d) => pen.fillText(shortened(pen, name, left - 8), 0, d * 15 + 11));
  const bars = barsOf(frames.map(({ sd }) => sd));
  const picture = document.createElement("canvas");
  frames.forEach((decoded, i) => {
    const x = left + i * (frame.width + BARS.gap);
    if (table) drawCells(pen, x, frame.width, table, decoded);
    else {
      if (page.image) drawImage(picture, decoded.mean, page.image);
      else drawColumn(picture, decoded.mean, page);
      pen.drawImage(picture, x, 0, frame.width, frame.height);
    }
    pen.fillStyle = ink("accent");
    pen.fillRect(x, frame.height + 4 + BARS.height - bars[i].height, frame.width, bars[i].height);
    pen.fillStyle = ink("soft");
    pen.textAlign = "center";
    pen.fillText(bars[i].text, x + frame.width / 2, size.height - 2);
    pen.textAlign = "left";
  });
  return { left, width: frame.width + BARS.gap, bars };
}

function pictureSize(page, table) {
  if (table) return { width: 62, height: table.length * 15 };
  if (!page.image) return { width: 40, height: page.features.length <= MAX_LINES ? page.features.length * 15 : 200 };
  const side = Math.max(64, page.image.width);
  return { width: side, height: Math.round((side * page.image.height) / page.image.width) };
}

// Bars from the least to the greatest standard deviation of a path, and as many decimals as show the difference
function barsOf(sds) {
  const [low, high] = [Math.min(...sds), Math.max(...sds)];
  const range = high - low > 1e-6 * high ? high - low : 0;
  const decimals = Math.min(Math.max(Math.ceil(-Math.log10((range || high) / 4)), 0), 6);
  return sds.map((sd) => ({
    height: range ? BARS.least + ((BARS.height - BARS.least) * (sd - low)) / range : BARS.height / 2,
    text: sd >= 1e5 || high < 1e-4 ? sd.toExponential(1) : sd.toFixed(decimals),
  }));
}

// A row of a table as a column of colours, each feature on its own scale
function drawColumn(canvas, row, page) {
  Object.assign(canvas, { width: 1, height: row.length });
  const picture = new ImageData(1, row.length);
  row.forEach((v, d) => picture.data.set([...shade((v - page.low[d]) / (page.high[d] - page.low[d] || 1)), 255], 4 * d));
  canvas.getContext("2d").putImageData(picture, 0, 0);
}

// The cells of a decoded row in words: numbers on the colours of their scale, levels as strong as they are probable
function drawCells(pen, x, width, table, decoded) {
  pen.textAlign = "center";
  table.forEach((column, c) => {
    const found = column.read(decoded);
    let text, colour, strength = 1;
    if (column.levels) {
      [text, strength] = [column.text(found.code), found.shares[found.code]];
      colour = classColour({ classes: column.levels, others: 0 }, found.code);
    } else {
      text = column.text(found.value);
      colour = `rgb(${shade(column.place(found.value)).map(Math.round).join()})`;
    }
    pen.globalAlpha = 0.1 + 0.4 * strength; // pale enough for text
    pen.fillStyle = colour;
    pen.fillRect(x, c * 15, width, 14);
    pen.globalAlpha = 1;
    pen.fillStyle = ink("ink");
    pen.fillText(shortened(pen, text, width - 4), x + width / 2, c * 15 + 11);
  });
  pen.textAlign = "left";
}

function shortened(pen, name, width) {
  if (pen.measureText(name).width <= width) return name;
  let letters = Array.from(name);
  while (letters.length && pen.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}
