// The controls: they are built here and connected to the app.

function connect(app) {
  const on = (id, event, action) => $(id).addEventListener(event, action);
  document.querySelectorAll("[data-mode]").forEach((button) => button.addEventListener("click", () => app.setMode(button.dataset.mode)));
  on("zoom-in", "click", () => app.plot.zoom(0.7));
  on("zoom-out", "click", () => app.plot.zoom(1 / 0.7));
  on("reset", "click", () => app.plot.reset());
  on("draw", "click", () => app.drawSamples());
  on("route", "change", () => app.path.make());
  on("frames", "input", () => app.path.make());
  on("forget", "click", () => app.path.forget());
  on("png", "click", () => $("strip").toBlob((blob) => app.save(blob, "path.png"), "image/png"));
  on("csv", "click", () => app.save(new Blob([app.selection.csv()], { type: "text/csv" }), "selection.csv"));
  on("deselect", "click", () => app.selection.change([]));
  on("select-view", "click", () => app.selection.change(app.plot.rowsInView()));
  const keep = () => {
    app.selection.keep($("name").value.trim() || `selection ${app.selection.kept.length + 1}`);
    $("name").value = "";
  };
  on("keep-it", "click", keep);
  on("name", "keydown", (event) => event.key === "Enter" && keep());
  on("strip", "click", (event) => {
    const z = app.path.pointAt(event.offsetX);
    if (!z) return;
    app.z.set(z);
    app.show();
  });
  on("theme", "click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    app.recolour();
  });
  darkQuery.addEventListener("change", () => app.recolour());
  showTheme();
  new Picker($("search"), $("hits"), (text) => searchHits(app, text));
  new Picker($("colour"), $("colours"), (text) => colourHits(app, text), { rest: () => app.column?.name ?? "" });
  $("colour-box").hidden = app.columns.length + app.decodedFeatures.length < 2;
  $("link").hidden = location.protocol === "about:"; // a page inside of a notebook has no address
  on("link", "click", () => copyLink(app));
  addEventListener("hashchange", () => location.reload());
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName)) return;
    event.preventDefault();
    $("search").focus();
  });
  connectLook(app);
}

// How points and background are drawn
function connectLook(app) {
  $("options").addEventListener("click", () => {
    $("look").hidden = !$("look").hidden;
    $("options").setAttribute("aria-expanded", String(!$("look").hidden));
  });
  if (!app.geometry) {
    for (const option of [$("background").options[1], $("route").options[0]]) option.disabled = true;
    $("route").value = "certain";
  }
  $("fade-label").hidden = app.Q < 3 || app.decoder instanceof GridDecoder;
  for (const id of ["labels", "contours"]) $(id).parentElement.hidden = app.Q === 1;
  const changes = {
    size: (node) => Number(node.value), opacity: (node) => Number(node.value), labels: (node) => node.checked,
    contours: (node) => node.checked, fade: (node) => node.checked, background: (node) => node.value,
  };
  for (const [name, read] of Object.entries(changes)) {
    $(name).addEventListener(name === "size" || name === "opacity" ? "input" : "change", () => {
      app.look[name] = read($(name));
      showLook(app);
      app.plot.draw();
    });
  }
  showLook(app);
}

function showLook(app) {
  const { look } = app;
  for (const name of ["size", "opacity", "background"]) $(name).value = look[name];
  for (const name of ["labels", "contours", "fade"]) $(name).checked = look[name];
  app.plot.stopped();
  showScale(app);
}

function makeChart(app) {
  const { page } = app;
  app.caption = element("figcaption");
  const pictures = $("pictures");
  if (page.image) {
    app.canvases = { mean: element("canvas"), seen: element("canvas") };
    const figures = [element("figure", {}, app.canvases.mean, element("figcaption", { textContent: "decoded mean" }))];
    if (app.observed.n) figures.push(element("figure", {}, app.canvases.seen, app.caption));
    pictures.append(element("div", { className: "pair" }, ...figures));
    app.canvases.mean.setAttribute("role", "img");
    app.canvases.mean.setAttribute("aria-label", "The decoded mean at the pointer");
    app.canvases.seen.setAttribute("role", "img");
    app.canvases.seen.setAttribute("aria-label", "The nearest observation");
  } else {
    const mark = (name, text) => [element("i", { className: name }), `${text}  `];
    const band = page.table ? `${100 * page.table.interval.share} % interval` : "±2 sd";
    const key = element("p", { className: "key" }, ...mark("dot", "mean"), ...mark("band", band), ...(app.observed.n ? mark("seen", "nearest observation") : []));
    const box = element("div", { className: "features", tabIndex: 0 });
    box.setAttribute("aria-label", page.table ? "Decoded columns" : "Decoded features");
    pictures.append(key, box, app.caption);
    if (page.table) app.chart = new TableChart(box, app.table);
    else app.chart = new (page.features.length <= MAX_LINES ? FeatureLines : Curve)(box, page);
  }
  app.values = [];
  const names = [...Array.from({ length: app.Q }, (_, q) => `z${q}`), "sd"];
  $("readout").append(...names.map((name) => {
    const value = element("dd", { id: `value-${name}` });
    app.values.push(value);
    return element("div", {}, element("dt", { textContent: name }), value);
  }));
  // A decoder on a grid does not know how much of its uncertainty is noise
  $("noise").checked = $("noise-label").hidden = app.decoder instanceof GridDecoder;
}

// With more than two dimensions: which two are shown, and the values of the others
function makeAxes(app) {
  if (app.Q < 3 || app.decoder instanceof GridDecoder) return;
  const bar = $("axes");
  bar.hidden = false;
  const choose = (which) => {
    const select = element("select");
    select.setAttribute("aria-label", which ? "Vertical axis" : "Horizontal axis");
    for (let q = 0; q < app.Q; q++) select.append(element("option", { value: q, textContent: `z${q}` }));
    select.addEventListener("change", () => {
      const chosen = Number(select.value);
      if (app.axes[1 - which] === chosen) app.axes[1 - which] = app.axes[which];
      app.axes[which] = chosen;
      app.axesChanged();
    });
    return select;
  };
  app.axisSelects = [choose(0), choose(1)];
  app.sliders = Array.from({ length: app.Q }, (_, q) => {
    const values = Array.from({ length: app.n }, (_, i) => app.Z[i * app.Q + q]);
    const [low, high] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [0, 0]);
    const slider = element("input", { type: "range", min: low, max: high, step: (high - low) / 200 || 1, value: 0 });
    slider.addEventListener("input", () => {
      app.z[q] = Number(slider.value);
      app.show();
      app.plot.sliceChanged();
    });
    return element("label", {}, `z${q} `, slider);
  });
  const take = element("button", { type: "button", textContent: "From nearest point", title: "Set the other dimensions to those of the point closest to the pointer" });
  take.addEventListener("click", () => {
    const point = app.closest(app.plane());
    app.setOthers((q) => app.Z[point * app.Q + q]);
  });
  const zero = element("button", { type: "button", textContent: "All at 0" });
  zero.addEventListener("click", () => app.setOthers(() => 0));
  bar.append(element("label", {}, "axes ", app.axisSelects[0], " ", app.axisSelects[1]), ...app.sliders, take, zero);
  app.showAxes();
}

function makeLegend(app) {
  const { column } = app;
  const legend = $("legend");
  if (!column) return legend.replaceChildren();
  if (!column.classes) {
    const ramp = element("span", { className: "ramp" });
    ramp.style.background = `linear-gradient(90deg, ${COLOURS.scale.map((colour) => `rgb(${colour})`).join()})`;
    return legend.replaceChildren(element("span", {}, `${column.name} `, scaleText(column.low, column), ramp, scaleText(column.high, column)));
  }
  const draw = ["M6 1A5 5 0 1 0 6 11A5 5 0 1 0 6 1Z", "M6 1L11.5 11H.5Z", "M6 0L12 6L6 12L0 6Z"];
  legend.replaceChildren(...column.classes.map((name, code) => {
    const path = shape("path", { d: draw[classShape(code)], fill: classColour(column, code) });
    const svg = shape("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, path);
    const button = element("button", { type: "button", title: name }, svg, element("span", { className: "name", textContent: name }));
    button.setAttribute("aria-pressed", String(!app.plot.hidden.has(code)));
    button.addEventListener("click", (event) => {
      app.plot.toggle(code, event.shiftKey);
      [...legend.children].forEach((other, i) => other.setAttribute("aria-pressed", String(!app.plot.hidden.has(i))));
    });
    return button;
  }));
}

function showTheme() {
  $("theme").textContent = isDark() ? "Light" : "Dark";
  $("theme").title = `Change to ${isDark() ? "light" : "dark"} colours`;
}
