// Points on a canvas, by WebGL or without. Both have the same methods:
//   load(marks)      marks: { count, at: Float32Array [n, 2], colour: Uint8Array [n, 4], look: Float32Array [n, 2] }
//   draw(viewport, share = 1)   the last ones, which are in front, or all
//   milliseconds(viewport)      how long it takes to draw all of them
// `look` is the diameter in pixels and the shape: 0 circle, 1 triangle, 2 diamond.

const CANVAS_POINTS = 20000; // points drawn without WebGL, at most

const VERTEX = `
attribute vec2 at; attribute vec4 colour; attribute vec2 look;
uniform vec2 scale, shift; uniform float ratio;
varying vec4 fill; varying float shape, size;
void main() {
  gl_Position = vec4(at * scale + shift, 0.0, 1.0);
  gl_PointSize = size = look.x * ratio;
  shape = look.y;
  fill = colour;
}`;

// r is 1 at the edge of a shape
const FRAGMENT = `
precision mediump float;
varying vec4 fill; varying float shape, size;
void main() {
  vec2 p = 2.0 * gl_PointCoord - 1.0;
  float r = length(p);
  if (shape > 1.5) r = abs(p.x) + abs(p.y);
  else if (shape > 0.5) r = max(1.0 + (1.75 * abs(p.x) - p.y - 1.0) / 2.0156, p.y + 0.25);
  float alpha = fill.a * (1.0 - smoothstep(1.0 - 2.0 / size, 1.0, r));
  if (alpha < 0.004) discard;
  gl_FragColor = vec4(fill.rgb * alpha, alpha);
}`;

class WebGLPoints {
  // null if the browser has no WebGL
  static on(canvas) {
    const gl = canvas.getContext("webgl", { antialias: false, premultipliedAlpha: true });
    return gl && new WebGLPoints(canvas, gl);
  }

  constructor(canvas, gl) {
    Object.assign(this, { canvas, gl });
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => {
      this.prepare();
      if (this.marks) this.load(this.marks);
      if (this.viewport) this.draw(this.viewport);
    });
    this.prepare();
  }

  prepare() {
    const { gl } = this;
    const program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    gl.useProgram(program);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    this.place = (name) => gl.getUniformLocation(program, name);
    this.buffers = [["at", 2, gl.FLOAT], ["colour", 4, gl.UNSIGNED_BYTE], ["look", 2, gl.FLOAT]].map(([name, size, type]) => {
      const buffer = gl.createBuffer();
      const at = gl.getAttribLocation(program, name);
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.enableVertexAttribArray(at);
      gl.vertexAttribPointer(at, size, type, type === gl.UNSIGNED_BYTE, 0, 0);
      return [name, buffer];
    });
  }

  load(marks) {
    const { gl } = this;
    this.marks = marks;
    for (const [name, buffer] of this.buffers) {
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.bufferData(gl.ARRAY_BUFFER, marks[name], gl.DYNAMIC_DRAW);
    }
  }

  draw(viewport, share = 1) {
    const { gl, canvas } = this;
    const { size, unit, centre } = (this.viewport = viewport);
    const ratio = devicePixelRatio || 1;
    const [width, height] = size.map((s) => Math.round(s * ratio));
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    gl.viewport(0, 0, width, height);
    const scale = [0, 1].map((q) => 2 / (unit[q] * size[q]));
    gl.uniform2f(this.place("scale"), ...scale);
    gl.uniform2f(this.place("shift"), ...scale.map((s, q) => -s * centre[q]));
    gl.uniform1f(this.place("ratio"), ratio);
    gl.clear(gl.COLOR_BUFFER_BIT);
    const first = Math.floor((1 - share) * this.marks.count);
    gl.drawArrays(gl.POINTS, first, this.marks.count - first);
  }

  // How long all points take. Reading a pixel waits for them
  milliseconds(viewport) {
    const started = performance.now();
    this.draw(viewport);
    this.gl.readPixels(0, 0, 1, 1, this.gl.RGBA, this.gl.UNSIGNED_BYTE, new Uint8Array(4));
    return performance.now() - started;
  }
}

class CanvasPoints {
  constructor(canvas) { this.canvas = canvas; }

  load(marks) { this.marks = marks; }

  milliseconds(viewport) {
    const started = performance.now();
    this.draw(viewport);
    return performance.now() - started;
  }

  draw(viewport, share = 1) {
    const { count, at, colour, look } = this.marks;
    const pen = prepared(this.canvas, ...viewport.size);
    for (let i = Math.max(0, count - CANVAS_POINTS, Math.floor((1 - share) * count)); i < count; i++) {
      const [x, y] = viewport.toScreen(at[2 * i], at[2 * i + 1]);
      const r = look[2 * i] / 2;
      if (x < -r || y < -r || x > viewport.size[0] + r || y > viewport.size[1] + r) continue;
      pen.fillStyle = `rgb(${colour[4 * i]} ${colour[4 * i + 1]} ${colour[4 * i + 2]} / ${colour[4 * i + 3] / 255})`;
      pen.beginPath();
      if (look[2 * i + 1] === 0) pen.arc(x, y, r, 0, 7);
      else outline(look[2 * i + 1]).forEach(([dx, dy]) => pen.lineTo(x + dx * r, y + dy * r));
      pen.fill();
    }
  }
}

// The corners of a triangle or a diamond of radius 1
function outline(shape) {
  return shape === 1 ? [[0, -1], [1, 0.75], [-1, 0.75]] : [[0, -1], [1, 0], [0, 1], [-1, 0]];
}
