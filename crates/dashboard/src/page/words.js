// Numbers and states in words. Nothing here knows the document.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes, as the program prints them: 1.5 MiB. */
export function bytes(count) {
  let unit = 0;
  while (count >= 1024 && unit < UNITS.length - 1) { count /= 1024; unit += 1; }
  return `${unit === 0 ? Math.round(count) : count.toFixed(count < 9.95 ? 1 : 0)} ${UNITS[unit]}`;
}

/** Bytes a second. */
export const rate = (count) => `${bytes(count)}/s`;

/** A share from 0 to 1; never 100 % before it is. */
export function percent(share) {
  if (share >= 1) return "100 %";
  const shown = Math.floor(share * 1000) / 10;
  return `${shown >= 10 ? Math.floor(shown) : shown} %`;
}

/** Seconds, as a person says them. */
export function time(seconds) {
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 9.95 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

/** "1 machine", "2 machines". */
export const many = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/** Of each state: how grave it is, its sign, and what it says. */
export const STATES = {
  self: ["", "", "this node"],
  alive: ["", "", "it answers"],
  leaving: ["", "←", "it is drained or about to go, and is asked last"],
  suspect: ["warn", "?", "it did not answer a probe, and may be dead"],
  stalled: ["warn", "…", "it owes chunks and sends nothing"],
  unreachable: ["bad", "✕", "connections to it fail"],
  doubted: ["warn", "!", "it refuses chunks that it claims to hold"],
  dragging: ["warn", "~", "no whole chunk comes from it in time"],
  blamed: ["bad", "!", "it sent wrong bytes or broke the protocol"],
};

export const state = (name) => STATES[name] ?? ["warn", "?", name];

/** The same of a node: a slow link is trouble if its state is none. */
export function look(node) {
  const its = state(node.state);
  return its[0] === "" && node.slow ? ["warn", "~", `${its[2]}, over a link that is slower than others`] : its;
}

/** How many nodes are in trouble, slow, and gone. */
export function health(nodes, gone) {
  const trouble = nodes.filter((node) => state(node.state)[0] !== "").length;
  const slow = nodes.filter((node) => node.slow).length;
  const died = gone.filter((one) => one.how !== "left").length;
  const parts = [[trouble, "in trouble"], [slow, "slow"], [died, "died"], [gone.length - died, "left"]];
  const said = parts.filter(([count]) => count > 0).map(([count, what]) => `${count} ${what}`);
  return trouble + slow + died > 0 ? said : ["all well", ...said];
}

/** What becomes of an image that nobody needs. */
function rubbish({ stays, for_s: seconds, lost_bytes: lost }) {
  if (stays === "") return "it goes now";
  if (stays === "grace" || stays === "settling") return `it goes in ${time(Math.ceil(seconds))}`;
  if (stays === "minority") return "it stays: this node sees at most half of its field";
  return stays === "last-copy" ? `it stays: the last copy of ${bytes(lost)}, which another node may need` : stays;
}

/** The tags that lead to an image now, and those that did before. */
export function tagged(id, tags) {
  const names = (which) => tags.filter(which).map((tag) => tag.name);
  const now = names((tag) => tag.image === id);
  return [now, names((tag) => tag.image !== id && tag.versions.some((version) => version.image === id))];
}

/** How far this node is with a tag that it follows. */
export function followed({ tag, serial, state, why }) {
  const here = serial > 0 ? `this node runs serial ${serial}` : "this node runs no version yet";
  if (state === "ready") return ["", `${tag}: ${here}`];
  return [state === "waiting" ? "warn" : "", `${tag}: ${here}, and ${state === "filling" ? "fetches the next one" : "waits"}${why ? `: ${why}` : ""}`];
}

/** How an image stands: how grave, the sentence, and the reason. */
export function verdict(image, tags) {
  const { name, copies_min: copies, origins } = image;
  const waits = image.stuck > 0;
  if (image.rubbish) return ["", `${name}: nobody needs it any more`, rubbish(image.rubbish)];
  const [now, before] = tagged(image.id, tags);
  if (before.length && !now.length && !waits) {
    const there = origins > 0 || copies > 0;
    return [there ? "" : "warn", `${name}: an earlier version of ${before.join(", ")}`, `kept to go back; the stores hold ${percent(image.coverage)} of it${origins > 0 ? ", its origin has all of it" : there ? "" : ", and no origin is there for the rest"}`];
  }
  if (image.changed) return ["bad", `${name}: the file behind it has changed`, "this node hashes each chunk before it sends it"];
  if (image.origin_may_leave) {
    const each = copies === 1 ? "once" : copies === 2 ? "twice" : `${copies} times`;
    const risk = copies === 1 && image.at_risk ? `; with ${image.at_risk[0]} would go ${percent(image.at_risk[1])} of it` : "";
    return [copies === 1 ? "warn" : "", `${name}: every chunk is held at least ${each}`, `${origins > 0 ? "the origin may leave" : "no origin is needed"}${risk}`];
  }
  const until = origins > 0 ? "the origin should stay until all are" : "no origin is there for the rest";
  if (copies > 0) return ["warn", `${name}: the stores claim every chunk`, `${percent(image.verified)} verified; ${until}`];
  const held = `the stores hold ${percent(image.coverage)} of it`;
  if (origins > 0) return ["warn", `${name}: the origin has to stay`, held];
  return ["bad", `${name}: chunks are in no store, and no origin is there`, waits ? `${held}; readers wait` : held];
}

/** The part of an address in which the members differ. */
export function shortener(addrs) {
  const split = (addr) => { const at = addr.lastIndexOf(":"); return [addr.slice(0, at), addr.slice(at)]; };
  const parts = addrs.map(split);
  const [first] = parts;
  const onePort = parts.every((part) => part[1] === first[1]);
  if (parts.length > 1 && parts.every((part) => part[0] === first[0])) return (addr) => split(addr)[1];
  // Of 192.168.1.7 and 192.168.1.8 the last number is enough, with the dot that says what it is.
  const words = parts.map((part) => part[0].split("."));
  const alike = parts.length > 1 && words.every((word) => word.length === 4)
    ? [2, 1, 0].find((at) => words.every((word) => word.slice(0, at + 1).join() === words[0].slice(0, at + 1).join())) ?? -1 : -1;
  const host = (name) => (alike < 1 || !name.startsWith(`${words[0].slice(0, alike + 1).join(".")}.`) ? name : `.${name.split(".").slice(alike + 1).join(".")}`);
  return (addr) => host(split(addr)[0]) + (onePort || addr.endsWith(":4440") ? "" : split(addr)[1]);
}
