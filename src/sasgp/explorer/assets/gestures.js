// The mouse, fingers and keys in the latent space, as what they mean: hover, click, pan, zoom and lasso.

const NEAR = 4; // pixels that a click may move

function listen(plot) {
  const { stage, app } = plot;
  const down = new Map(); // pointers that are pressed: where they were last
  let start = null, lasso = null, frame = 0;

  const spot = (event) => {
    const box = plot.area.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const inside = ([x, y]) => x >= 0 && y >= 0 && x <= plot.viewport.size[0] && y <= plot.viewport.size[1];

  stage.addEventListener("pointerdown", (event) => {
    const at = spot(event);
    if (event.button || !inside(at)) return;
    stage.setPointerCapture(event.pointerId);
    stage.focus({ preventScroll: true });
    plot.leave();
    down.set(event.pointerId, at);
    start = down.size === 1 ? { at, dragged: false } : null; // two fingers do not click
    lasso = down.size === 1 && app.mode === "select" ? [at] : null;
  });

  stage.addEventListener("pointermove", (event) => {
    const at = spot(event);
    if (!down.has(event.pointerId)) {
      if (app.pinned || event.pointerType === "touch") return;
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => (inside(at) ? plot.hover(at) : plot.leave()));
      return;
    }
    const before = down.get(event.pointerId);
    if (start && Math.hypot(at[0] - start.at[0], at[1] - start.at[1]) > NEAR) start.dragged = true;
    if (start && !start.dragged) return;
    down.set(event.pointerId, at);
    if (lasso) {
      lasso.push(at);
      plot.drawLasso(lasso);
    } else if (down.size === 1) plot.pan(at[0] - before[0], at[1] - before[1]);
    else {
      const other = [...down].find(([id]) => id !== event.pointerId)[1];
      const distance = (a) => Math.hypot(a[0] - other[0], a[1] - other[1]) || 1;
      plot.zoom(distance(before) / distance(at), (at[0] + other[0]) / 2, (at[1] + other[1]) / 2);
    }
  });

  const up = (event) => {
    if (!down.delete(event.pointerId)) return;
    if (lasso && start?.dragged) plot.lasso(lasso, event.shiftKey ? "add" : event.altKey ? "remove" : "replace");
    else if (event.type === "pointerup" && start && !start.dragged) app.click(plot.viewport.toPlane(...start.at), event.pointerType === "touch");
    else if (start?.dragged) plot.stopped();
    plot.drawLasso(null);
    start = lasso = null;
  };
  stage.addEventListener("pointerup", up);
  stage.addEventListener("pointercancel", up);
  stage.addEventListener("pointerleave", () => down.size || plot.leave());

  stage.addEventListener("wheel", (event) => {
    const at = spot(event);
    if (!inside(at)) return;
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 30 : 1;
    plot.zoom(1.0015 ** Math.min(Math.max(event.deltaY * lines, -400), 400), ...at);
  }, { passive: false });

  stage.addEventListener("keydown", (event) => key(plot, event));
}

function key(plot, event) {
  const { app } = plot;
  const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (arrow) {
    const view = plot.view();
    const step = event.shiftKey ? 0.1 : 0.02;
    const [x, y] = app.plane();
    const clamp = (v, [low, high]) => Math.min(Math.max(v, low), high);
    app.pointAt(
      clamp(x + arrow[0] * step * (view.x[1] - view.x[0]), view.x),
      clamp(y + arrow[1] * step * (view.y[1] - view.y[0]), view.y),
    );
    plot.showTooltip(plot.pointNear(plot.toScreen(...app.plane())));
    app.speak();
  } else if (event.key === "Enter" || event.key === " ") app.click(app.plane());
  else if (event.key === "Escape") app.letGo();
  else if (event.key === "+" || event.key === "=") plot.zoom(0.7);
  else if (event.key === "-") plot.zoom(1 / 0.7);
  else return;
  event.preventDefault();
}

// Whether a point is inside a polygon, by the edges that a ray from it crosses
function isInside(polygon, x, y) {
  let inside = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
    const [[ax, ay], [bx, by]] = [polygon[i], polygon[j]];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}
