// Pictures: the band of an image's ring, its stores, the chart. All text goes in as text.

import { bytes, percent, rate } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

/** An element with properties and children; strings become text. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("aria-")) element.setAttribute(key, value); else element[key] = value;
  }
  element.append(...children);
  return element;
}

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** The band: over each part of the ring the fewest copies, claimed and verified. */
export function band(image) {
  const { claimed, seen } = image;
  const top = Math.max(3, Math.min(8, ...claimed.map((cell) => cell[1])) + 1);
  const height = (copies) => (Math.min(copies, top) / top) * 88;
  const svg = draw("svg", { class: "band", viewBox: `0 0 ${claimed.length} 100`, preserveAspectRatio: "none", role: "img" });
  // Parts that are alike are one shape: a thousand nodes change the band in few places.
  const path = { claimed: "", seen: "", hole: "" };
  claimed.forEach(([share, copies], at) => {
    const column = (kind, from, to) => { if (to > from) path[kind] += `M${at} ${100 - from}V${100 - to}H${at + 1}V${100 - from}Z`; };
    const [seenShare, verified] = seen[at] ?? [0, 0];
    if (copies > 0) {
      column("claimed", 0, height(copies));
      column("seen", 0, verified > 0 ? height(Math.min(verified, copies)) : seenShare * height(1));
    } else {
      // Some chunks of this part are nowhere: as much of one copy is red.
      column("seen", 0, Math.min(seenShare, share) * height(1));
      column("claimed", Math.min(seenShare, share) * height(1), share * height(1));
      column("hole", share * height(1), height(1));
    }
  });
  for (const [kind, shape] of Object.entries(path)) svg.append(draw("path", { class: kind, d: shape }));
  svg.append(draw("line", { class: "one", x1: 0, x2: claimed.length, y1: 100 - height(1), y2: 100 - height(1) }));
  svg.append(draw("line", { class: "base", x1: 0, x2: claimed.length, y1: 99.5, y2: 99.5 }));
  const least = Math.min(...claimed.map((cell) => cell[1]));
  svg.setAttribute("aria-label", `Ring of ${image.name}: at least ${least} copies of each chunk are claimed; ${percent(image.verified)} verified`);
  return svg;
}

/** Puts arcs into lanes so that none overlaps another. */
function lanes(stores) {
  const ends = [];
  const placed = [];
  for (const store of [...stores].sort((a, b) => a[1] - b[1])) {
    const [, start, length] = store;
    const whole = length >= 0.9999;
    let lane = whole ? -1 : ends.findIndex(([from, to]) => start >= to && (start + length <= 1 || start + length - 1 <= from));
    if (lane < 0) lane = ends.push(whole ? [0, 2] : [start, start + length]) - 1;
    else ends[lane][1] = start + length;
    placed.push([lane, store]);
  }
  return [ends.length, placed];
}

/** The stores on the ring, each in its lane; returns what tells the store at a point. */
export function stores(canvas, image, chosen) {
  const [count, placed] = lanes(image.stores);
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const colors = { outline: color("--quiet"), claimed: color("--claimed"), seen: color("--seen"), chosen: color("--focus") };
  const step = Math.min(12, 220 / Math.max(1, count));
  const width = canvas.clientWidth;
  const height = Math.max(12, Math.ceil(count * step));
  const sharp = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  if (canvas.width !== width * sharp || canvas.height !== height * sharp) [canvas.width, canvas.height] = [width * sharp, height * sharp];
  const pen = canvas.getContext("2d");
  pen.setTransform(sharp, 0, 0, sharp, 0, 0);
  pen.clearRect(0, 0, width, height);
  const gap = step > 4 ? 2 : 0;
  const bar = (from, length, top, thick, fill) => {
    pen.fillStyle = fill;
    pen.fillRect(from * width, top, Math.max(1, Math.min(length, 1 - from) * width), thick);
    if (from + length > 1) pen.fillRect(0, top, (from + length - 1) * width, thick);
  };
  for (const [lane, [node, start, length, filled, verified]] of placed) {
    const [top, thick] = [lane * step, step - gap];
    pen.globalAlpha = 0.28;
    bar(start, length, top, thick, colors.outline);
    // An arc fills everywhere at once: its strength shows how far.
    pen.globalAlpha = node === chosen ? 1 : 0.15 + 0.85 * filled;
    if (filled > 0) bar(start, length, top, thick, node === chosen ? colors.chosen : colors.claimed);
    pen.globalAlpha = 0.15 + 0.85 * verified;
    if (verified > 0 && node !== chosen) bar(start, length, top + thick / 2, thick / 2, colors.seen);
  }
  pen.globalAlpha = 1;
  return (x, y) => {
    const [at, lane] = [x / width, Math.floor(y / step)];
    const hit = placed.find(([its, [, start, length]]) => its === lane && ((at >= start && at < start + length) || at < start + length - 1));
    return hit?.[1];
  };
}

const LINES = [["peer", "from peers"], ["origin", "from origins"], ["sent", "to peers"], ["store", "local reads"]];

/** The last two minutes, one line for each kind. */
export function chart(history) {
  const span = 120;
  const now = history.at(-1)?.at ?? 0;
  const top = Math.max(1024, ...history.flatMap((sample) => LINES.map(([kind]) => sample[kind])));
  const svg = draw("svg", { viewBox: "0 0 120 100", preserveAspectRatio: "none", role: "img", "aria-label": "Bytes a second over two minutes" });
  for (const y of [0, 50, 100]) svg.append(draw("line", { x1: 0, x2: span, y1: y, y2: y }));
  for (const [kind] of LINES) {
    const points = history.map((sample) => `${(span - (now - sample.at)).toFixed(2)} ${(100 - (sample[kind] / top) * 100).toFixed(1)}`);
    if (points.length > 1) svg.append(draw("path", { class: kind, d: `M${points.join("L")}` }));
  }
  return [svg, make("p", {}, make("span", {}, "2 min ago"), make("span", {}, `top ${rate(top)}`), make("span", {}, "now"))];
}

/** The four rates with their sums. */
export function rates(sample, traffic) {
  const sums = { peer: traffic.from_peers_bytes, origin: traffic.from_origin_bytes, sent: traffic.to_peers_bytes, store: traffic.from_store_bytes };
  return LINES.map(([kind, words]) => make("div", { className: kind }, make("dt", {}, words),
    make("dd", {}, rate(sample?.[kind] ?? 0), " ", make("small", {}, bytes(sums[kind])))));
}
