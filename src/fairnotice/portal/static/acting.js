// What may be done: first it is asked what would happen, then it is done, both through the API.

/** @typedef {{sentences: string[], warnings: string[]}} Foresight */
/** @typedef {{detail: string, field?: string | null}} Problem */

const ASK_AGAIN_SECONDS = 5;
const PATIENCE = 250;
// What is postponed is first thought of so much later.
const LATER_SECONDS = 60;

/** @param {string} id */
function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return found;
}

/**
 * What is under way: its address, its key, how often it was asked what would happen, of which body that was told,
 * and from which instant on more notice is counted.
 */
let doing = { url: "", key: "", asked: 0, foreseen: "", from: 0 };
/** @type {number | undefined} */
let timer;

/** Not crypto.randomUUID: that is there under TLS and on this machine only. */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Ask the API.
 * @param {string} method @param {string} url @param {unknown} body @param {string} [key]
 * @returns {Promise<{answer: any, problem: Problem | null, unknown: boolean}>} unknown: it may have been done, or not
 */
export async function ask(method, url, body, key) {
  /** @type {Record<string, string>} */
  const headers = { "Content-Type": "application/json" };
  if (key) headers["Idempotency-Key"] = key;
  if (document.body.dataset.csrf) headers["X-CSRF-Token"] = document.body.dataset.csrf;
  try {
    const response = await fetch(url, { method, headers, body: body === undefined ? null : JSON.stringify(body) });
    const said = response.status === 204 ? {} : await response.json();
    if (response.ok) return { answer: said, problem: null, unknown: false };
    return { answer: null, problem: said, unknown: response.status >= 500 };
  } catch {
    return { answer: null, problem: { detail: "The service does not answer." }, unknown: true };
  }
}

/**
 * What a form says, as the API takes it: what is left empty is left out.
 * @param {HTMLElement} form
 */
export function said(form) {
  /** @type {Record<string, unknown>} */
  const body = {};
  for (const field of form.querySelectorAll("input, select")) {
    if (!(field instanceof HTMLInputElement || field instanceof HTMLSelectElement) || !field.name) continue;
    if (field instanceof HTMLInputElement && field.type === "checkbox") {
      if (field.value !== "on") {
        const chosen = /** @type {string[]} */ (body[field.name] ??= []);
        if (field.checked) chosen.push(field.value);
      } else if (field.checked) body[field.name] = true;
    } else if (field instanceof HTMLInputElement && field.type === "radio") {
      if (field.checked) body[field.name] = field.value;
    } else if (field.value !== "") {
      if (field.type === "number") body[field.name] = Number(field.value);
      else body[field.name] = field.type === "datetime-local" ? utc(field.value) : field.value;
    }
  }
  return body;
}

/** What was typed is meant in UTC, seconds may be missing. @param {string} typed */
function utc(typed) {
  return `${typed.length === 16 ? `${typed}:00` : typed}Z`;
}

/** An instant as a field has it. @param {number} seconds */
function typed(seconds) {
  return new Date(seconds * 1000).toISOString().slice(0, 19);
}

/** @param {Element} button */
function open(button) {
  const { act = "", title = "", form = "none", from = "" } = /** @type {HTMLElement} */ (button).dataset;
  doing = { url: act, key: newKey(), asked: 0, foreseen: "", from: Number(from) };
  byId("doing-title").textContent = title;
  const yes = byId("doing-yes");
  yes.textContent = title.length > 40 ? (button.textContent ?? "Do it").trim() : title;
  yes.classList.toggle("danger", button.classList.contains("danger"));
  const fields = byId("doing-form");
  fields.replaceChildren();
  const template = document.getElementById(`form-${form}`);
  if (template instanceof HTMLTemplateElement) fields.append(template.content.cloneNode(true));
  const notBefore = fields.querySelector("[name=not_before]");
  if (from && notBefore instanceof HTMLInputElement) notBefore.value = typed(doing.from + LATER_SECONDS);
  const dialog = byId("doing");
  if (dialog instanceof HTMLDialogElement) dialog.showModal();
  changed();
  foresee();
}

/** @param {boolean} may */
function confirmable(may) {
  const yes = byId("doing-yes");
  if (yes instanceof HTMLButtonElement) yes.disabled = !may;
}

/** Another thing is meant now: what was told is not about it, and neither is the key. */
function changed() {
  clearTimeout(timer);
  doing.asked += 1;
  doing.key = newKey();
  doing.foreseen = "";
  confirmable(false);
  byId("doing-problem").textContent = "";
  const asking = document.createElement("p");
  asking.className = "muted";
  asking.textContent = "Asking what would happen \u2026";
  byId("foresight").replaceChildren(asking);
}

/** Ask the law what would happen, now and from time to time: its answer depends on the instant. */
async function foresee() {
  clearTimeout(timer);
  const asked = ++doing.asked;
  const { url } = doing;
  const body = said(byId("doing-form"));
  const { answer, problem } = await ask("POST", `${url}?foresee=true`, body);
  const dialog = byId("doing");
  if (asked !== doing.asked || url !== doing.url || !(dialog instanceof HTMLDialogElement) || !dialog.open) return;
  doing.foreseen = problem ? "" : JSON.stringify(body);
  confirmable(problem === null);
  tell(answer, problem);
  timer = setTimeout(foresee, ASK_AGAIN_SECONDS * 1000);
}

/** @param {Foresight | null} foresight @param {Problem | null} problem */
function tell(foresight, problem) {
  const list = document.createElement("ul");
  /** @param {string} text @param {string} look */
  const add = (text, look = "") => {
    const item = document.createElement("li");
    item.textContent = text;
    item.className = look;
    list.append(item);
  };
  if (problem) add(problem.detail, "warning");
  for (const sentence of foresight?.sentences ?? []) add(sentence);
  for (const warning of foresight?.warnings ?? []) add(warning, "warning");
  const box = byId("foresight");
  // The same again is not read out again.
  if (box.firstElementChild?.outerHTML !== list.outerHTML) box.replaceChildren(list);
}

async function confirm() {
  const { url, key, foreseen } = doing;
  const title = byId("doing-title").textContent;
  const body = said(byId("doing-form"));
  // What a browser filled in by itself was not told either.
  if (foreseen !== JSON.stringify(body)) return;
  clearTimeout(timer);
  const asked = ++doing.asked;
  confirmable(false);
  const { answer, problem, unknown } = await ask("POST", url, body, key);
  // Whoever went back and does something else meanwhile is told below all the same.
  const here = asked === doing.asked && url === doing.url;
  if (problem && here) {
    const again = "It may be done already; asked again, it is done once all the same.";
    byId("doing-problem").textContent = unknown ? `${problem.detail} ${again}` : problem.detail;
    // With the same key, and without asking what a second one would do.
    if (unknown) return confirmable(true);
    doing.key = newKey();
    doing.foreseen = "";
    foresee();
    return;
  }
  if (problem) return toast(problem.detail, [], "bad");
  const dialog = byId("doing");
  if (here && dialog instanceof HTMLDialogElement) dialog.close();
  toast(`${title}: accepted.`, answer.warnings ?? []);
}

/** @param {string} text @param {string[]} more @param {string} look */
export function toast(text, more = [], look = "") {
  const made = document.createElement("p");
  made.className = `toast ${look}`;
  made.textContent = [text, ...more].join(" ");
  byId("toasts").append(made);
  setTimeout(() => made.remove(), 6000);
}

/** @param {HTMLElement} button */
async function remove(button) {
  if (!window.confirm("End every fault, also those that others have set?")) return;
  const { problem } = await ask("DELETE", button.dataset.delete ?? "", undefined);
  if (problem) toast(problem.detail, [], "bad");
}

/** So much more notice than was announced. @param {HTMLElement} button */
function later(button) {
  const field = byId("doing-form").querySelector("[name=not_before]");
  if (!(field instanceof HTMLInputElement)) return;
  field.value = typed(doing.from + Number(button.dataset.later));
  changed();
  foresee();
}

/** @param {MouseEvent} event */
function clicked(event) {
  const button = event.target instanceof Element ? event.target.closest("button") : null;
  if (!button) return;
  if (button.dataset.act) open(button);
  else if (button.dataset.delete) remove(button);
  else if (button.dataset.later) later(button);
  else if (button.id === "doing-no") /** @type {HTMLDialogElement} */ (byId("doing")).close();
}

/** Whoever opened the dialog is where he was, though his button was drawn anew behind it. */
function closed() {
  clearTimeout(timer);
  doing.asked += 1;
  if (document.activeElement !== document.body) return;
  const opener = document.querySelector(`[data-act="${CSS.escape(doing.url)}"]`) ?? byId("main");
  if (opener instanceof HTMLElement) opener.focus({ preventScroll: true });
}

export function startActing() {
  document.addEventListener("click", clicked);
  const dialog = byId("doing");
  dialog.querySelector("form")?.addEventListener("submit", (event) => {
    event.preventDefault();
    confirm();
  });
  dialog.addEventListener("close", closed);
  dialog.addEventListener("input", () => {
    changed();
    timer = setTimeout(foresee, PATIENCE);
  });
}
