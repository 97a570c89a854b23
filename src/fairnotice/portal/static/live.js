// What changes on the page, as the service sends it: parts, each an element in its box.
import { count, serviceTime, tick } from "./clock.js";

/** @typedef {[id: string, box: string, order: string, html: string | null]} Part */
/** @typedef {{revision: number, now: number, build: string, state: string, whole: boolean, parts: Part[]}} Message */

const RETRY_SECONDS = [0.5, 1, 2, 3, 5];
// The service says something at least every five seconds.
const SILENCE_SECONDS = 12;

/** @type {EventSource | undefined} */
let source;
let tries = 0;
/** @type {number | undefined} */
let watch;
/** @type {number | undefined} */
let again;

/** @param {"live" | "lost" | "still" | "gone"} is @param {string} text */
function show(is, text) {
  const connection = document.getElementById("connection");
  if (!connection || connection.dataset.is === is) return;
  connection.dataset.is = is;
  const says = connection.querySelector(".says");
  if (says) says.textContent = text;
}

function address() {
  const { revision = "", process = "", state = "" } = document.body.dataset;
  const page = location.pathname + location.search;
  return `/live?${new URLSearchParams({ page, revision, process, state })}`;
}

export function connect() {
  clearTimeout(again);
  source?.close();
  source = new EventSource(address());
  source.onopen = () => {
    tries = 0;
    show("live", "live");
    expect();
  };
  source.onmessage = (event) => {
    expect();
    take(event.data);
  };
  source.onerror = lost;
}

/** A connection that says nothing any more is none. */
function expect() {
  clearTimeout(watch);
  watch = setTimeout(lost, SILENCE_SECONDS * 1000);
}

function lost() {
  clearTimeout(watch);
  source?.close();
  source = undefined;
  show("lost", "connection lost, trying again");
  const seconds = RETRY_SECONDS[Math.min(tries, RETRY_SECONDS.length - 1)] ?? 5;
  tries += 1;
  clearTimeout(again);
  again = setTimeout(retry, seconds * 1000);
}

/** Whoever is signed out meanwhile is asked to sign in; a page that is gone says so. */
async function retry() {
  try {
    const answer = await fetch(location.href, { method: "HEAD", redirect: "manual" });
    if (answer.type === "opaqueredirect" || answer.status === 401) return location.reload();
    if (answer.status === 404) return show("gone", "not there any more");
  } catch {
    return lost();
  }
  return connect();
}

/** @param {string} text */
function take(text) {
  const begun = performance.now();
  /** @type {Message} */
  const message = JSON.parse(text);
  const { dataset } = document.body;
  if (dataset.build !== message.build) return location.reload();
  serviceTime(message.now);
  apply(message);
  dataset.revision = String(message.revision);
  dataset.state = message.state;
  tick();
  // How long an update takes is measured by `python -m bench portal`.
  performance.measure("update", { start: begun, detail: message.revision });
}

/** @param {Message} message */
function apply(message) {
  const focused = document.activeElement;
  const part = focused?.closest("[id]");
  /** @type {Map<string, Set<string>>} */
  const kept = new Map();
  for (const [id, box, order, html] of message.parts) {
    if (html === null) document.getElementById(id)?.remove();
    else {
      put(id, box, order, html);
      kept.set(box, (kept.get(box) ?? new Set()).add(id));
    }
  }
  if (message.whole) sweep(kept);
  if (focused && part && !focused.isConnected) refocus(part.id, focused);
}

/** Take away what is no more. @param {Map<string, Set<string>>} kept */
function sweep(kept) {
  for (const box of document.querySelectorAll("[data-box]")) {
    for (const child of [...box.children]) {
      if (!kept.get(box.id)?.has(child.id)) child.remove();
    }
  }
}

const parser = document.createElement("template");

/** @param {string} id @param {string} box @param {string} order @param {string} html */
function put(id, box, order, html) {
  parser.innerHTML = html;
  const made = parser.content.firstElementChild;
  if (!(made instanceof HTMLElement)) return;
  count(made);
  const there = document.getElementById(id);
  if (there instanceof HTMLElement && (there.dataset.order ?? "") === order) {
    there.replaceWith(made);
    return;
  }
  there?.remove();
  const inside = document.getElementById(box);
  if (!inside) return;
  if (!there) made.dataset.new = "";
  inside.insertBefore(made, inside.children[place(inside, order)] ?? null);
}

/** Where in its box a part belongs: parts are in the order of what they say. @param {HTMLElement} box @param {string} order */
function place(box, order) {
  let [low, high] = [0, box.children.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    const child = /** @type {HTMLElement} */ (box.children[middle]);
    if ((child.dataset.order ?? "") <= order) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Whoever was at a button that was drawn anew still is. @param {string} part @param {Element} focused */
function refocus(part, focused) {
  const url = focused.getAttribute("data-act") ?? focused.getAttribute("href");
  const alike = url && [...(document.getElementById(part)?.querySelectorAll("[data-act], a") ?? [])].find(
    (one) => (one.getAttribute("data-act") ?? one.getAttribute("href")) === url,
  );
  // Where there is none any more he is on the page still, and not before it.
  const near = alike || document.getElementById("main");
  if (near instanceof HTMLElement) near.focus({ preventScroll: true });
}

export function startLive() {
  // At an address at which nothing is nothing changes.
  if (document.querySelector("[data-nothing]")) return;
  connect();
  // A page that nobody sees needs no connection, of which browsers have few.
  document.addEventListener("visibilitychange", () => {
    clearTimeout(again);
    if (document.hidden) {
      clearTimeout(watch);
      source?.close();
      source = undefined;
    } else if (!source) connect();
  });
}
