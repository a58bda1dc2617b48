// Reads arrays that `packing.py` wrote: base64, compressed, one byte plane after another.

const ARRAYS = {
  uint8: Uint8Array, int16: Int16Array, int32: Int32Array, float32: Float32Array, float64: Float64Array,
};

function inflated({ data }) {
  const text = atob(data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")));
}

// A list of text
function unpackText(packed) {
  return inflated(packed).json();
}

async function unpack(packed) {
  const planes = new Uint8Array(await inflated(packed).arrayBuffer());
  const Kind = ARRAYS[packed.kind];
  const size = Kind.BYTES_PER_ELEMENT;
  const count = planes.length / size;
  const raw = new Uint8Array(planes.length);
  for (let p = 0; p < size; p++) {
    for (let i = 0; i < count; i++) raw[i * size + p] = planes[p * count + i];
  }
  const array = new Kind(raw.buffer); // little-endian, as on every machine with a browser
  if (!packed.scale) return array;
  const out = new Float32Array(count);
  const columns = packed.scale.length;
  for (let i = 0; i < count; i++) out[i] = array[i] * packed.scale[i % columns];
  return out;
}
