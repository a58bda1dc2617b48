// The values of the row at the pointer: its id or number, the columns that belong to it, and its picture if it is an image
// that the file contains.

const MOST_LINES = 9;

class Tooltip {
  constructor(app) {
    this.app = app;
    this.box = $("tooltip");
    this.row = -1;
  }

  show(i, x, y) {
    if (i !== this.row || this.column !== this.app.column) this.fill(i);
    this.box.hidden = false;
    const { clientWidth, clientHeight } = this.app.plot.stage;
    const { offsetWidth, offsetHeight } = this.box;
    const left = x + 14 + offsetWidth > clientWidth ? x - 14 - offsetWidth : x + 14;
    const top = Math.min(Math.max(y - offsetHeight / 2, 2), clientHeight - offsetHeight - 2);
    Object.assign(this.box.style, { left: `${Math.max(left, 2)}px`, top: `${top}px` });
  }

  hide() {
    this.row = -1;
    this.box.hidden = true;
  }

  fill(i) {
    const { app } = this;
    Object.assign(this, { row: i, column: app.column });
    const id = app.ids?.[i];
    const head = element("strong", { textContent: id || `row ${app.rows[i]}` });
    const lines = [...(id ? [["row", String(app.rows[i])]] : []), ...this.values(i)];
    const list = element("dl", {}, ...lines.slice(0, MOST_LINES).flatMap(([name, value]) =>
      [element("dt", { textContent: name }), element("dd", { textContent: value })]));
    this.box.replaceChildren(head, list);
    const more = lines.length - MOST_LINES;
    if (more > 0) this.box.append(element("small", { textContent: `and ${grouped(more)} more` }));
    const place = app.page.image ? app.observed.places.indexOf(i) : -1;
    if (place < 0) return;
    const canvas = element("canvas");
    drawImage(canvas, app.observedRow(place), app.page.image);
    head.after(canvas);
  }

  // The column that colours the points first, then the others
  values(i) {
    const { app } = this;
    const columns = [...new Set([app.column, ...app.columns])].filter(Boolean);
    return columns.map((column) => [column.name, columnText(column, i)]);
  }
}

// The value of a row in a column, as a person reads it
function columnText(column, i) {
  if (column.cells) return column.levels[column.cells[i]] ?? "missing";
  return column.classes ? column.classes[column.codes[i]] : scaleText(column.values[i], column, 4);
}
