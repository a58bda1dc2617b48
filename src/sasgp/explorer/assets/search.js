// The search: rows by their number or id, classes of any column, and columns by name.

const MOST_HITS = 60;

function searchHits(app, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return { hits: [], more: 0 };
  const kinds = [rowHits(app, wanted), classHits(app, wanted), columnHits(app, wanted)];
  const all = kinds.flat();
  // Of each kind some, so that many rows do not push the others out
  const few = Math.ceil(MOST_HITS / kinds.length);
  let spare = kinds.reduce((total, hits) => total + Math.max(0, few - hits.length), 0);
  const hits = kinds.flatMap((some) => {
    const more = Math.min(spare, Math.max(0, some.length - few));
    spare -= more;
    return some.slice(0, few + more);
  });
  return { hits, more: all.length - hits.length };
}

// What begins with the text comes before what contains it
function matching(names, wanted) {
  const found = [[], []];
  names.forEach((name, i) => {
    const at = name.toLowerCase().indexOf(wanted);
    if (at >= 0) found[at ? 1 : 0].push(i);
  });
  return found.flat();
}

function rowHits(app, wanted) {
  const number = /^(row\s*)?(\d+)$/.exec(wanted)?.[2];
  const found = number === undefined ? [] : Array.from(app.rows.keys()).filter((i) => String(app.rows[i]) === number);
  const others = app.ids ? matching(app.ids, wanted) : [];
  return [...new Set([...found, ...others])].map((i) => ({
    text: app.ids?.[i] || `row ${app.rows[i]}`,
    note: app.ids?.[i] ? `row ${app.rows[i]}` : app.column ? app.label(i) : "",
    choose: () => app.goTo(i),
  }));
}

// A class: its rows are selected
function classHits(app, wanted) {
  return app.columns.filter((column) => column.classes).flatMap((column) => {
    const names = column.levels ?? column.classes;
    const codes = column.levels ? column.cells : column.codes;
    const found = matching(names, wanted);
    if (!found.length) return [];
    const rows = new Map(found.map((code) => [code, []]));
    codes.forEach((code, i) => rows.get(code)?.push(i));
    return found.filter((code) => rows.get(code).length).map((code) => ({
      text: `${column.name}: ${names[code]}`,
      note: `select ${grouped(rows.get(code).length)} row${rows.get(code).length === 1 ? "" : "s"}`,
      choose: () => app.selection.change(rows.get(code)),
    }));
  });
}

// A column: points are coloured by it
function columnHits(app, wanted) {
  return matchingColumns(app, wanted).map(({ name, choose }) => ({ text: name, note: "colour by it", choose }));
}

// The columns to colour by that a text is part of, all of them without one
function colourHits(app, text) {
  const found = matchingColumns(app, text.trim().toLowerCase());
  const hits = found.slice(0, 200).map(({ name, note, choose }) => ({ text: name, note, choose }));
  return { hits, more: found.length - hits.length };
}

// Columns by name, and features that can be decoded
function matchingColumns(app, wanted) {
  const note = (column) => (column.classes ? `${column.classes.length} classes` : `${scaleText(column.low, column)} – ${scaleText(column.high, column)}`);
  const all = [
    ...app.columns.map((column) => ({ name: column.name, note: note(column), choose: () => app.colourBy(column) })),
    ...app.decodedFeatures.map((feature) => ({ name: feature.name, note: "decoded", choose: () => app.colourByDecoded(feature) })),
  ];
  return matching(all.map(({ name }) => name), wanted).map((c) => all[c]);
}
