// The page's clock: by the service's time, whatever the browser's own clock says.

/** How far the service is ahead of this browser, in seconds. */
let ahead = 0;

/** @param {number} now - the service's time, in seconds of the epoch */
export function serviceTime(now) {
  ahead = now - Date.now() / 1000;
}

/** This instant, by the service's clock, in seconds of the epoch. */
export function now() {
  return Date.now() / 1000 + ahead;
}

const UNITS = /** @type {const} */ ([[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]);

/**
 * A length of time as the service writes it: `12 s`, `4 min 10 s`, `3 d 4 h`.
 * @param {number} seconds
 */
export function lasting(seconds) {
  const whole = Math.max(Math.round(seconds), 0);
  for (const [unit, word, small, smallWord] of UNITS) {
    if (whole >= unit) {
      const rest = Math.floor((whole % unit) / small);
      return `${Math.floor(whole / unit)} ${word}` + (rest ? ` ${rest} ${smallWord}` : "");
    }
  }
  return `${whole} s`;
}

/** @param {Element} element @param {string} text */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Bring up to date all that counts, below this element.
 * @param {ParentNode} below
 */
export function count(below) {
  const instant = now();
  for (const element of below.querySelectorAll("[data-until]")) {
    const left = Number(element.getAttribute("data-until")) - instant;
    say(element, left > 0 ? `in ${lasting(Math.ceil(left))}` : "due");
  }
  for (const element of below.querySelectorAll("[data-since]")) {
    const gone = instant - Number(element.getAttribute("data-since"));
    say(element, gone < 1 ? "just now" : `${lasting(gone)} ago`);
  }
}

/** Where now is on the timeline, in percent; undefined where there is none. */
function here() {
  const axis = document.getElementById("axis");
  if (!axis) return undefined;
  const begins = Number(axis.dataset.begins);
  return (100 * (now() - begins)) / Number(axis.dataset.seconds);
}

function moveNow() {
  const at = here();
  const line = document.getElementById("now-line");
  if (at === undefined || !line) return;
  line.hidden = at < 0 || at > 100;
  line.style.setProperty("--at", `${at}%`);
  for (const bar of document.querySelectorAll("[data-grows]")) {
    const width = Math.max(at - Number(bar.getAttribute("data-grows")), 0.4);
    bar.setAttribute("width", `${width}%`);
  }
}

function tick() {
  count(document);
  moveNow();
  const clock = document.getElementById("clock");
  if (clock) say(clock, `${new Date(now() * 1000).toISOString().slice(11, 19)} UTC`);
}

/** Let all that counts count. */
export function startClock() {
  serviceTime(Number(document.body.dataset.now));
  tick();
  setInterval(tick, 1000);
  // Between two seconds only the line moves.
  setInterval(moveNow, 200);
}

export { tick };
