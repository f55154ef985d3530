// The page: asks its node for the field, and shows it. It holds no state but the last two minutes.

import { band, chart, make, rates, stores } from "./draw.js";
import { bytes, followed, health, look, many, percent, rate, shortener, tagged, time, verdict } from "./words.js";

const $ = (id) => document.getElementById(id);
/** More machines than this are small squares. */
const MANY = 60;
const page = { field: null, before: null, history: [], chosen: null, paused: false, failed: 0, tiles: new Map(), speeds: new Map(), progress: [], images: new Map() };

// --- asking -----------------------------------------------------------------------------------

/** A large field is asked for less often: its object is some hundred kilobytes long. */
const pause = () => (page.field?.nodes.length > 200 ? 3000 : 1000);

async function ask() {
  try {
    const answer = await fetch("field.json", { cache: "no-store", signal: AbortSignal.timeout(8000) });
    if (!answer.ok) throw new Error((await answer.text()).trim());
    take(await answer.json());
    live("on", page.paused ? "paused" : "live");
  } catch (error) {
    page.failed += 1;
    live("off", page.failed > 1 || !page.field ? `no answer: ${error.message}` : "no answer");
  }
}

async function run() {
  if (!page.paused && !document.hidden) await ask();
  setTimeout(run, pause());
}

function live(how, words) {
  $("live").className = how;
  if ($("live").lastChild.textContent !== words) $("live").lastChild.textContent = words;
}

function take(field) {
  page.failed = 0;
  const before = page.field;
  const seconds = before ? (field.at_ms - before.at_ms) / 1000 : 0;
  if (before && (field.uptime_s < before.uptime_s || field.nodes[0].id !== before.nodes[0].id)) page.history = [];
  else if (seconds > 0.1) {
    const per = (key) => Math.max(0, field.traffic[key] - before.traffic[key]) / seconds;
    page.history.push({ at: field.at_ms / 1000, peer: per("from_peers_bytes"), origin: per("from_origin_bytes"), sent: per("to_peers_bytes"), store: per("from_store_bytes") });
    page.history = page.history.filter((sample) => sample.at > field.at_ms / 1000 - 120);
    const old = new Map(before.nodes.map((node) => [node.id, node]));
    page.speeds = new Map(field.nodes.map((node) => {
      const was = old.get(node.id) ?? node;
      return [node.id, [(node.received_bytes - was.received_bytes) / seconds, (node.sent_bytes - was.sent_bytes) / seconds]];
    }));
  }
  const names = field.images.map((image) => image.name);
  for (const image of field.images) if (names.filter((name) => name === image.name).length > 1) image.name += ` (${image.id.slice(0, 12)})`;
  for (const image of field.images) image.stuck = field.waits.filter((wait) => wait.image === image.id && wait.why.startsWith("no ")).length;
  page.field = field;
  show();
}

// --- showing ----------------------------------------------------------------------------------

function show() {
  const { field } = page;
  const me = field.nodes[0];
  page.short = shortener(field.nodes.map((node) => node.addr));
  document.title = `${field.images.map((image) => image.name).join(", ") || "no image"} - V-FIELD`;
  $("who").textContent = `${me.addr}${me.zone ? ` in ${me.zone}` : ""}, version ${field.version}, up ${time(field.uptime_s)}, ${field.closed ? "closed field" : "open field"}${field.draining ? ", drained" : ""}`;
  showVerdicts(field);
  showStorm(field);
  showTags(field);
  showImages(field);
  showMachines(field);
  $("rates").replaceChildren(...rates(page.history.at(-1), field.traffic));
  $("chart").replaceChildren(...chart(page.history));
  showWaits(field);
  showNews(field);
  showDetail();
}

function showVerdicts(field) {
  const slow = field.slow.map((line) => ["warn", line, "nodes ask it last; vfield doctor on that machine says more"]);
  const liars = field.nodes.filter((node) => node.state === "blamed").slice(0, 3)
    .map((node) => ["bad", `${node.addr} sent wrong bytes or broke the protocol`, "nothing of it was used, and this node does not ask it for a while; look at that machine's memory, disk and program"]);
  const waiting = field.following.map((one) => [...followed(one), one.serial > 0 ? "that version stays in use" : "the first version is taken as soon as it can be"]).filter(([grave]) => grave !== "");
  const images = [...field.images].sort((a, b) => weight(a, field) - weight(b, field)).map((image) => verdict(image, field.tags));
  const rows = [...liars, ...waiting, ...images, ...slow].map(([grave, sentence, reason]) => {
    return make("p", { className: `verdict ${grave}` }, make("b", { ariaHidden: "true" }, grave === "" ? "✓" : "!"), make("span", {}, sentence, make("small", {}, reason)));
  });
  $("verdicts").replaceChildren(...(rows.length ? rows : [make("p", { className: "verdict warn" }, make("b", {}, "!"), make("span", {}, "This node has no image"))]));
}

/** Images of now come before those that are kept to go back, and those that nobody needs. */
function weight(image, field) {
  const [now, before] = tagged(image.id, field.tags);
  return image.rubbish ? 2 : before.length && !now.length ? 1 : 0;
}

/** Where each tag leads, and how many nodes have come how far. */
function showTags(field) {
  const names = new Map(field.images.map((image) => [image.id, image.name]));
  const cards = field.tags.map((tag) => {
    const fact = (value, words) => make("span", {}, make("b", {}, value), ` ${words}`);
    const facts = [make("span", {}, "serial ", make("b", {}, String(tag.serial))), fact(String(tag.keep), tag.keep === 1 ? "version kept" : "versions kept")];
    if (tag.rollout < 100) facts.push(fact(`${tag.rollout} %`, "of the nodes follow to the newest"));
    const rows = tag.versions.map((version) => {
      const now = version.image === tag.image;
      const called = names.get(version.image) ?? version.image.slice(0, 12);
      const meter = make("i");
      meter.style.width = `${version.nodes ? (version.filled / version.nodes) * 100 : 0}%`;
      const said = `on ${many(version.nodes, "node")}${version.nodes ? `, ${version.filled} of them filled` : ""}`;
      return make("li", { className: now ? "now" : "" }, make("span", {}, make("b", {}, now ? "now" : "before"), ` serial ${version.serial}: ${called}`), make("span", { className: "quiet" }, said), make("div", { className: "meter" }, meter));
    });
    if (tag.image === null) rows.unshift(make("li", {}, "removed: nobody follows it any more"));
    const own = field.following.filter((one) => one.tag === tag.name).map((one) => make("p", { className: "quiet" }, followed(one)[1].slice(tag.name.length + 2)));
    return make("section", { className: "card" }, make("div", { className: "head" }, make("h2", {}, `Tag ${tag.name}`), make("p", { className: "facts" }, ...facts)), make("ul", { className: "versions" }, ...rows), ...own);
  });
  $("tags").replaceChildren(...cards);
}

/** A storm: stores fill, or much is under way. */
function showStorm(field) {
  const stored = field.nodes.filter((node) => node.capacity_bytes > 0);
  const sum = (key) => stored.reduce((all, node) => all + Math.min(node[key], node.capacity_bytes), 0);
  const [held, capacity] = [sum("held_bytes"), sum("capacity_bytes")];
  const filling = stored.filter((node) => node.held_bytes < node.capacity_bytes * 0.995);
  page.progress = [...page.progress, [field.at_ms, held]].slice(-15);
  const [first, last] = [page.progress[0], page.progress.at(-1)];
  const speed = last[0] > first[0] ? ((last[1] - first[1]) * 1000) / (last[0] - first[0]) : 0;
  const box = $("storm");
  box.hidden = filling.length === 0 || capacity === 0 || speed <= 0;
  if (box.hidden) return;
  const share = held / capacity;
  const left = (capacity - held) / speed;
  const meter = make("i");
  meter.style.width = `${share * 100}%`;
  box.replaceChildren(make("p", {}, make("b", {}, "A storm runs: "), `${many(filling.length, "machine")} of ${stored.length} fill their stores, ${percent(share)} is done at ${rate(speed)}, about ${time(left)} left`), make("div", { className: "meter" }, meter));
}

/** One card for each image; kept, so that its picture does not flicker. */
function showImages(field) {
  const ids = field.images.map((image) => image.id);
  for (const [id, card] of page.images) if (!ids.includes(id)) { card.root.remove(); page.images.delete(id); }
  const sorted = [...field.images].sort((a, b) => weight(a, field) - weight(b, field));
  for (const image of sorted) {
    let card = page.images.get(image.id);
    if (!card) {
      const [role, facts, holder, canvas, readout] = [make("span", { className: "role" }), make("p", { className: "facts" }), make("div"), make("canvas", { className: "stores" }), make("p", { className: "readout" })];
      const key = (kind, words) => make("li", {}, make("i", { className: kind }), words);
      const legend = make("ul", { className: "legend" }, key("k-seen", "copies verified"), key("k-claimed", "copies claimed"), key("k-hole", "in no store"), key("k-one", "one copy"), make("li", {}, "left to right: once around the ring; below: each store"));
      const root = make("section", { className: "card" }, make("div", { className: "head" }, make("h2", {}, image.name), role, facts), holder, canvas, readout, legend);
      canvas.setAttribute("role", "img");
      card = { root, role, facts, holder, canvas, readout, at: null };
      page.images.set(image.id, card);
      $("images").append(root);
      root.addEventListener("pointermove", (event) => point(image.id, event));
      canvas.addEventListener("click", (event) => { const store = card.at?.(event.offsetX, event.offsetY); if (store) choose(page.field.nodes[store[0]].id); });
    }
    const fact = (value, words) => make("span", {}, make("b", {}, value), ` ${words}`);
    const [now, before] = tagged(image.id, field.tags);
    const role = image.rubbish ? "rubbish" : now.length ? `now: ${now.join(", ")}` : before.length ? `before: ${before.join(", ")}` : "";
    card.role.textContent = role;
    card.role.hidden = role === "";
    card.root.classList.toggle("old", weight(image, field) > 0);
    card.facts.replaceChildren(fact(bytes(image.size_bytes), "long"), fact(percent(image.coverage), "covered"), fact(percent(image.verified), "verified"), make("span", {}, "fewest copies ", make("b", {}, String(image.copies_min))), fact(String(image.stores.length), "stores"), fact(String(image.origins), image.origins === 1 ? "origin" : "origins"));
    if (image.claimed.length) card.holder.replaceChildren(band(image));
    const chosen = field.nodes.findIndex((node) => node.id === page.chosen);
    card.at = stores(card.canvas, image, chosen);
    card.canvas.setAttribute("aria-label", `${many(image.stores.length, "store")} of ${image.name} on its ring`);
  }
  const cards = sorted.map((image) => page.images.get(image.id).root);
  if (cards.some((card, at) => $("images").children[at] !== card)) $("images").append(...cards);
}

/** Tells what is below the pointer. */
function point(id, event) {
  const card = page.images.get(id);
  const image = page.field.images.find((one) => one.id === id);
  if (!card || !image) return;
  const store = event.target === card.canvas ? card.at?.(event.offsetX, event.offsetY) : undefined;
  if (store) {
    const node = page.field.nodes[store[0]];
    card.readout.textContent = `${node.addr}: ${percent(store[2])} of the ring, ${percent(store[3])} of that filled, ${percent(store[4])} verified`;
  } else if (event.target.closest(".band")) {
    const box = card.holder.getBoundingClientRect();
    const at = Math.min(image.claimed.length - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * image.claimed.length)));
    const [[share, copies], [seenShare, verified]] = [image.claimed[at], image.seen[at]];
    card.readout.textContent = `part ${at + 1} of ${image.claimed.length}: at least ${many(copies, "copy").replace("copys", "copies")} claimed, ${verified} verified; ${percent(share)} of its chunks in stores, ${percent(seenShare)} verified`;
  }
}

function showMachines(field) {
  const zones = new Map();
  for (const node of field.nodes) zones.set(node.zone, [...(zones.get(node.zone) ?? []), node]);
  const origins = field.nodes.filter((node) => node.origin_of.length > 0).length;
  $("counts").textContent = [many(field.nodes.length, "machine"), field.zones > 1 ? many(field.zones, "zone") : "", origins ? many(origins, "origin") : "no origin", ...health(field.nodes, field.gone)].filter(Boolean).join(", ");
  const layout = JSON.stringify([...zones].map(([zone, nodes]) => [zone, nodes.map((node) => node.id)]).concat([field.gone.map((gone) => gone.id)]));
  if (layout !== page.layout) { page.layout = layout; layTiles(field, zones); }
  let most = 1;
  for (const [rx, tx] of page.speeds.values()) most = Math.max(most, rx, tx);
  for (const node of field.nodes) paint(node, most);
  filter();
}

function layTiles(field, zones) {
  const focused = document.activeElement?.dataset?.id;
  page.tiles.clear();
  const natural = new Intl.Collator("en", { numeric: true });
  const boxes = [...zones].sort(([a], [b]) => natural.compare(a, b)).map(([zone, nodes]) => {
    const sorted = [...nodes].sort((a, b) => (b.state === "self") - (a.state === "self") || natural.compare(a.addr, b.addr));
    const tiles = sorted.map((node) => {
      const tile = make("button", { type: "button", tabIndex: -1 }, make("b"), make("small"), make("em"));
      tile.dataset.id = node.id;
      page.tiles.set(node.id, tile);
      return tile;
    });
    if (zone === field.nodes[0].zone) {
      const gone = field.gone.filter((one) => !page.tiles.has(one.id));
      tiles.push(...gone.map((one) => make("span", { className: "tile gone", title: `${one.addr} ${one.how} ${time(one.ago_s)} ago` }, make("b", {}, page.short(one.addr)), make("small", {}, one.how), make("em", {}, "†"))));
    }
    const head = make("h3", {}, zone || (zones.size > 1 ? "without a zone" : "One zone"), make("span", {}, many(nodes.length, "machine")));
    return make("div", { className: "zone" }, head, make("div", { className: "tiles" }, ...tiles));
  });
  $("zones").className = field.nodes.length > MANY ? "many" : "";
  $("zones").replaceChildren(...boxes);
  const first = page.tiles.get(focused) ?? page.tiles.values().next().value;
  if (first) first.tabIndex = 0;
  if (focused && page.tiles.has(focused)) page.tiles.get(focused).focus();
}

function paint(node, most) {
  const tile = page.tiles.get(node.id);
  const [grave, sign, words] = look(node);
  const [rx, tx] = page.speeds.get(node.id) ?? [0, 0];
  const full = node.capacity_bytes > 0 ? Math.min(1, node.held_bytes / node.capacity_bytes) : 0;
  const mark = sign || (node.origin_of.length ? "★" : node.gateway ? "◆" : "");
  const role = node.origin_of.length ? "origin" : node.capacity_bytes > 0 ? `${percent(full)} of ${bytes(node.capacity_bytes)}` : node.zone === page.field.nodes[0].zone ? "no store" : "other zone";
  const busy = rx + tx > 1024 ? rate(rx + tx) : "";
  const label = `${node.addr}: ${words}; ${role}${node.gateway ? "; gateway" : ""}${busy ? `; ${rate(rx)} from it, ${rate(tx)} to it` : ""}`;
  const seen = `${label}|${mark}|${node.id === page.chosen}|${Math.round((rx / most) * 50)}|${Math.round((tx / most) * 50)}`;
  if (tile.dataset.seen === seen) return;
  tile.dataset.seen = seen;
  tile.className = `tile ${grave} ${node.state === "self" ? "self" : ""} ${node.id === page.chosen ? "lit" : ""}`;
  tile.setAttribute("aria-label", label);
  tile.title = label;
  const [name, small, em] = tile.children;
  name.textContent = node.state === "self" ? "this node" : page.short(node.addr);
  small.textContent = !grave ? busy || role : ["alive", "self"].includes(node.state) ? "slow link" : node.state;
  em.textContent = mark;
  for (const [key, value] of [["--fill", full], ["--rx", rx / most], ["--tx", tx / most]]) tile.style.setProperty(key, Math.max(0, value).toFixed(3));
}

/** Dims what is not looked for. */
function filter() {
  const wanted = $("find").value.trim().toLowerCase();
  let found = 0;
  for (const node of page.field?.nodes ?? []) {
    const text = `${node.addr} ${node.zone} ${node.state} ${node.id} ${node.origin_of.length ? "origin" : ""} ${node.gateway ? "gateway" : ""} ${node.slow ? "slow" : ""}`.toLowerCase();
    const hit = wanted === "" || text.includes(wanted);
    found += hit;
    page.tiles.get(node.id)?.classList.toggle("dim", !hit);
  }
  $("find").setAttribute("aria-description", wanted ? `${found} found` : "");
}

function showWaits(field) {
  const owing = field.nodes.filter((node) => node.owes).sort((a, b) => b.owes[2] - a.owes[2]);
  const name = (node) => { const link = make("button", { type: "button" }, node.addr); link.addEventListener("click", () => choose(node.id)); return link; };
  const bar = (seconds) => { const fill = make("i"); fill.style.width = `${Math.min(100, Math.max(2, 25 * (3 + Math.log10(Math.max(seconds, 1e-3)))))}%`; return make("div", { className: "bar" }, fill); };
  const grave = (seconds) => (seconds > 3 ? "bad" : seconds > 0.3 ? "warn" : "");
  const rows = owing.slice(0, 6).map((node) => {
    const [requests, demands, oldest] = node.owes;
    const what = `${many(requests, "answer")} under way${demands ? `, ${demands} of them for readers` : ", none for a reader"}`;
    return make("div", { className: `wait ${grave(oldest)}` }, make("span", {}, "this node waits for ", name(node)), make("b", {}, time(oldest)), bar(oldest), make("small", {}, what));
  });
  const images = new Map(field.images.map((image) => [image.id, image.name]));
  const reads = field.waits.slice(0, 6).map((wait) => {
    const peer = wait.peer === null ? null : field.nodes[wait.peer];
    const why = make("small", {}, wait.why, ...(peer ? [": ", name(peer)] : []), wait.askers ? `; ${many(wait.askers, "request")} of other nodes wait for it too` : "");
    return make("div", { className: `wait ${peer ? grave(wait.for_s) : wait.for_s > 0.3 ? "bad" : ""}` }, make("span", {}, `a reader of ${images.get(wait.image) ?? "?"} waits for chunk ${wait.chunk}`), make("b", {}, time(wait.for_s)), bar(wait.for_s), why);
  });
  const rest = Math.max(0, owing.length - 6);
  $("waits-count").textContent = [field.awaited ? `${many(field.awaited, "chunk")} awaited by readers` : "no read waits", rest ? `${rest} more peers asked` : ""].filter(Boolean).join(", ");
  $("waits").replaceChildren(...reads, ...rows);
}

function showNews(field) {
  const warnings = field.warnings.slice(-5).reverse().map((text) => make("li", { className: "warning" }, `⚠ ${text}`));
  const events = field.events.slice(-12).reverse().map((one) => make("li", {}, one.text, " ", make("small", {}, `${time(Math.max(0, (field.at_ms - one.at_ms) / 1000))} ago`)));
  $("news").hidden = warnings.length + events.length === 0;
  $("news-list").replaceChildren(...warnings, ...events);
}

// --- one machine ------------------------------------------------------------------------------

function choose(id) {
  page.chosen = id;
  if (page.field) show();
  if (id) $("detail").focus({ preventScroll: true });
}

function showDetail() {
  const box = $("detail");
  const node = page.field.nodes.find((one) => one.id === page.chosen);
  box.hidden = !node;
  if (!node) return;
  const [grave, , words] = look(node);
  const [rx, tx] = page.speeds.get(node.id) ?? [0, 0];
  const facts = [["State", node.state === "self" ? "this node, whose view this is" : `${node.state}: ${words}`], ["Id", node.id], ["Zone", node.zone || "without a name"]];
  if (node.origin_of.length) facts.push(["Origin of", node.origin_of.join(", ")]);
  if (node.gateway) facts.push(["Role", "gateway: chunks enter its zone through it"]);
  if (node.capacity_bytes) facts.push(["Store", `${bytes(node.held_bytes)} of ${bytes(node.capacity_bytes)}, ${percent(node.held_bytes / node.capacity_bytes)}`]);
  if (node.link_bytes_per_s) facts.push(["Link", `${Math.round((node.link_bytes_per_s * 8) / 1e6)} Mbit/s, as it measured`]);
  const at = page.field.nodes.indexOf(node);
  for (const image of page.field.images) {
    const store = image.stores.find((one) => one[0] === at);
    if (store) facts.push([image.name, `${percent(store[2])} of the ring, ${percent(store[3])} of that filled, ${percent(store[4])} verified by this node`]);
  }
  if (node.state !== "self") {
    facts.push(["From it", `${rate(rx)}, ${bytes(node.received_bytes)} in all`], ["To it", `${rate(tx)}, ${bytes(node.sent_bytes)} in all`]);
    facts.push(["It owes", node.owes ? `${many(node.owes[0], "answer")} (${node.owes[1]} for readers), the oldest for ${time(node.owes[2])}` : "nothing"]);
  }
  const rows = facts.flatMap(([key, value]) => [make("dt", {}, key), make("dd", {}, value)]);
  const title = make("h2", { className: grave }, node.addr);
  const list = box.querySelector("dl");
  if (list && box.dataset.id === node.id) { list.replaceChildren(...rows); return; }
  box.dataset.id = node.id;
  const close = make("button", { type: "button", ariaLabel: "Close" }, "✕");
  close.addEventListener("click", leave);
  box.replaceChildren(make("div", { className: "head" }, title, close), make("dl", {}, ...rows));
}

function leave() {
  const tile = page.tiles.get(page.chosen);
  choose(null);
  tile?.focus();
}

// --- keys and buttons -------------------------------------------------------------------------

function walk(from, key) {
  const tiles = [...page.tiles.values()];
  const at = tiles.indexOf(from);
  const box = from.getBoundingClientRect();
  const middle = box.left + box.width / 2;
  // The nearest tile of the next row that has one there.
  const vertical = (down) => tiles.map((tile) => [tile, tile.getBoundingClientRect()])
    .filter(([, its]) => (down ? its.top >= box.bottom - 1 : its.bottom <= box.top + 1))
    .sort(([, a], [, b]) => (down ? a.top - b.top : b.top - a.top) || Math.abs(a.left + a.width / 2 - middle) - Math.abs(b.left + b.width / 2 - middle))[0]?.[0];
  const to = { ArrowLeft: () => tiles[at - 1], ArrowRight: () => tiles[at + 1], ArrowUp: () => vertical(false), ArrowDown: () => vertical(true), Home: () => tiles[0], End: () => tiles.at(-1) }[key]?.();
  if (!to) return;
  for (const tile of tiles) tile.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}

const dark = () => document.documentElement.dataset.theme === "dark";
function theme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").textContent = dark() ? "Light" : "Dark";
  if (page.field) showImages(page.field);
}
const system = matchMedia("(prefers-color-scheme: dark)");
// A browser may refuse storage; the page does without.
const memory = { get: () => { try { return localStorage.getItem("theme"); } catch { return null; } }, set: (name) => { try { localStorage.setItem("theme", name); } catch { /* It lasts until the page is closed. */ } } };
theme(memory.get() ?? (system.matches ? "dark" : "light"));
system.addEventListener("change", () => { if (!memory.get()) theme(system.matches ? "dark" : "light"); });

const actions = {
  p: () => { page.paused = !page.paused; $("pause").setAttribute("aria-pressed", page.paused); $("pause").textContent = page.paused ? "Go on" : "Pause"; live("on", page.paused ? "paused" : "live"); },
  t: () => { theme(dark() ? "light" : "dark"); memory.set(document.documentElement.dataset.theme); },
  "?": () => { $("keys").hidden = !$("keys").hidden; $("help").setAttribute("aria-expanded", !$("keys").hidden); },
  "/": () => $("find").focus(),
};
$("pause").addEventListener("click", actions.p);
$("theme").addEventListener("click", actions.t);
$("help").addEventListener("click", actions["?"]);
$("find").addEventListener("input", filter);
$("zones").addEventListener("click", (event) => { const tile = event.target.closest("button.tile"); if (tile) choose(tile.dataset.id === page.chosen ? null : tile.dataset.id); });
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") { if (page.chosen) leave(); else { $("find").value = ""; filter(); $("find").blur(); } return; }
  if (event.target === $("find")) { if (event.key === "Enter") { event.preventDefault(); [...page.tiles.values()].find((tile) => !tile.classList.contains("dim"))?.focus(); } return; }
  const tile = event.target.closest?.("button.tile");
  if (tile && /^(Arrow|Home|End)/.test(event.key)) { event.preventDefault(); walk(tile, event.key); return; }
  if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
});
addEventListener("resize", () => { if (page.field) showImages(page.field); });
addEventListener("visibilitychange", () => { if (!document.hidden && !page.paused) ask(); });

const key = (kind, words, sign = "") => make("li", {}, make("i", { className: kind }, sign), words);
$("machine-legend").replaceChildren(key("k-water", "how full its store is"), key("k-in", "from it to this node"), key("k-out", "from this node to it"), key("", "origin", "★"), key("", "gateway", "◆"), key("", "in trouble", "!"), key("", "gone", "†"));
run();
