// The state of the page as the fragment of its address: view, colours, selection and path. Whatever a fragment says is
// checked, and ignored unless it fits.

const LONGEST = 200000; // characters of a fragment

async function linkOf(app) {
  const { plot, look, path, selection } = app;
  const short = (values) => Array.from(values, (v) => String(Number(v.toPrecision(6)))).join(",");
  const state = new URLSearchParams();
  if (plot.viewport.moved) state.set("view", short([...plot.viewport.centre, plot.viewport.extent]));
  if (app.Q > 2) state.set("axes", app.axes.join(","));
  if (app.pinned || app.Q > 2) state.set("z", short(app.z));
  if (app.pinned) state.set("pin", "1");
  if (app.column && app.column !== app.columns[0]) state.set("colour", app.column.name);
  if (plot.hidden.size) state.set("hide", [...plot.hidden].join(","));
  if (selection.size) state.set("select", await squeezed(runs(selection.rows, app.n)));
  if (path.ends.length === 2) {
    state.set("path", path.ends.map(short).join(";"));
    state.set("route", $("route").value);
    state.set("frames", $("frames").value);
  }
  for (const [name, value] of Object.entries(look)) if (value !== app.ownLook[name]) state.set(name, String(Number.isFinite(value) ? Number(value.toPrecision(4)) : Number(value) || value));
  return `${location.href.split("#")[0]}#${state}`;
}

// So many finite numbers, or null
function numbersIn(text, count) {
  const found = (text ?? "").split(",").map((v) => (/^[-+0-9.e]+$/i.test(v) ? Number(v) : NaN));
  return found.length === count && found.every((v) => Math.abs(v) < 1e9) ? found : null;
}

async function restore(app, fragment) {
  if (fragment.length < 2 || fragment.length > LONGEST) return;
  const state = new URLSearchParams(fragment.slice(1));
  const { plot } = app;
  restoreLook(app, state);
  const axes = numbersIn(state.get("axes"), 2);
  if (app.axisSelects && axes && axes[0] !== axes[1] && axes.every((q) => Number.isInteger(q) && q >= 0 && q < app.Q)) {
    app.axes = axes;
    app.axesChanged();
  }
  const z = numbersIn(state.get("z"), app.Q);
  if (z) {
    app.z.set(z);
    if (app.axisSelects) app.showAxes();
  }
  const column = app.columns.find((one) => one.name === state.get("colour"));
  const feature = app.decodedFeatures.find(({ name }) => `${name} (decoded)` === state.get("colour"));
  if (column) app.colourBy(column);
  else if (feature) await app.colourByDecoded(feature);
  for (const code of (state.get("hide") ?? "").split(",")) if (/^\d+$/.test(code) && app.column?.classes?.[Number(code)] !== undefined) plot.hidden.add(Number(code));
  makeLegend(app);
  const view = numbersIn(state.get("view"), 3);
  if (view && view[2] > 0) plot.viewport.look(view.slice(0, 2), view[2]);
  app.show();
  if (z && state.get("pin") === "1") app.pin(true);
  const rows = state.has("select") ? fromRuns(await stretched(state.get("select"), 8 * app.n + 100), app.n) : null;
  app.selection.change(rows ?? []); // and draws
  plot.sliceChanged();
  const ends = (state.get("path") ?? "").split(";").map((end) => numbersIn(end, app.Q));
  if (ends.length === 2 && ends.every(Boolean)) {
    const frames = numbersIn(state.get("frames"), 1);
    if (frames) $("frames").value = frames[0]; // which keeps it between its limits
    if ([...$("route").options].some((option) => option.value === state.get("route") && !option.disabled)) $("route").value = state.get("route");
    app.path.ends = ends.map((end) => Float64Array.from(end));
    $("path").hidden = $("forget").disabled = false;
    $("forget").disabled = false;
    await app.path.make();
  }
}

function restoreLook(app, state) {
  for (const [name, [low, high]] of Object.entries({ size: [-1, 1], opacity: [0.05, 1] })) {
    const found = numbersIn(state.get(name), 1);
    if (found) app.look[name] = Math.min(Math.max(found[0], low), high);
  }
  for (const name of ["labels", "contours", "fade"]) if (/^[01]$/.test(state.get(name))) app.look[name] = state.get(name) === "1";
  const background = [...$("background").options].find((option) => option.value === state.get("background") && !option.disabled);
  if (background) app.look.background = background.value;
  showLook(app);
}

// Text in few characters that an address may have
async function squeezed(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

// The text again, or "" if there is none of at most so many characters
async function stretched(code, most) {
  try {
    const bytes = Uint8Array.from(atob(code.replace(/-/g, "+").replace(/_/g, "/")), (letter) => letter.charCodeAt(0));
    const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
    const decoder = new TextDecoder();
    let text = "";
    for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
      text += decoder.decode(value, { stream: true });
      if (text.length > most) {
        await reader.cancel();
        return "";
      }
    }
    return text;
  } catch {
    return "";
  }
}

async function copyLink(app) {
  const link = await linkOf(app);
  let copied = true;
  try {
    history.replaceState(null, "", link);
    await navigator.clipboard.writeText(link);
  } catch { // not allowed, for example in a frame
    const field = element("textarea", { value: link });
    document.body.append(field);
    field.select();
    copied = document.execCommand("copy");
    field.remove();
  }
  if (!copied) notice(`The browser does not let this page copy. The link is ${link}`);
  $("link").textContent = copied ? "Copied" : "Not copied";
  setTimeout(() => ($("link").textContent = "Copy link"), 1500);
}
