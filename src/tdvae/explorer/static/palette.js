// Colours, marker shapes and crisp canvases. Samples differ by shape as well as by colour.

const SAMPLE_COLOURS = {
  light: ["#0b6fb8", "#c8500a", "#12855f", "#a8478a", "#8a6d00", "#5b4bc4", "#c02f45", "#00788c"],
  dark: ["#6cb8f2", "#f59a5c", "#4fd0a2", "#e394c8", "#e0c14a", "#a99bff", "#ff8b98", "#56cfe1"],
};
const SHAPES = ["circle", "square", "triangle", "diamond", "cross", "star"];

export function themeName() {
  return document.documentElement.dataset.theme === "dark" ? "dark" : "light";
}

export function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function sampleColour(index) {
  const colours = SAMPLE_COLOURS[themeName()];
  return colours[index % colours.length];
}

export function drawMarker(ctx, index, x, y, size, hollow = false) {
  const shape = SHAPES[index % SHAPES.length];
  const colour = sampleColour(index);
  ctx.save();
  ctx.translate(x, y);
  ctx.beginPath();
  if (shape === "circle") ctx.arc(0, 0, size, 0, 2 * Math.PI);
  else if (shape === "square") ctx.rect(-0.9 * size, -0.9 * size, 1.8 * size, 1.8 * size);
  else polygon(ctx, shape, size);
  ctx.lineWidth = 1.6;
  ctx.strokeStyle = hollow ? colour : themeColour("card");
  ctx.fillStyle = hollow ? themeColour("card") : colour;
  ctx.fill();
  ctx.stroke();
  ctx.restore();
}

function polygon(ctx, shape, size) {
  const corners = { triangle: 3, diamond: 4, cross: 8, star: 10 }[shape];
  for (let corner = 0; corner < corners; corner++) {
    const angle = (2 * Math.PI * corner) / corners - Math.PI / 2;
    const radius = 1.25 * size * (corners > 4 && corner % 2 ? 0.45 : 1);
    ctx.lineTo(radius * Math.cos(angle), radius * Math.sin(angle));
  }
  ctx.closePath();
}

// Ordered colours for a number in 0 … 1, from violet to yellow; each is also brighter than the one before.
const SCALES = {
  light: [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [247, 220, 30]],
  dark: [[124, 84, 190], [86, 122, 204], [52, 160, 164], [110, 206, 112], [253, 236, 90]],
};

export function scaleColour(share) {
  const scale = SCALES[themeName()], place = Math.min(0.9999, Math.max(0, share)) * (scale.length - 1);
  const from = scale[Math.floor(place)], to = scale[Math.floor(place) + 1], part = place % 1;
  return `rgb(${from.map((value, i) => Math.round(value + part * (to[i] - value))).join(",")})`;
}

// A canvas of its size on the page, in the device's pixels; drawing uses the page's pixels.
export function prepareCanvas(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  ctx.font = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
  return { ctx, width, height };
}

export function shortNumber(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
  return text.replaceAll("-", "−");
}
