// What may be done: first it is asked what would happen, then it is done, both through the API.
import { now } from "./clock.js";

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

/** What is under way: its address, its key, and how often it was asked what would happen. */
let doing = { url: "", key: "", asked: 0 };
/** @type {number | undefined} */
let timer;

/** Not crypto.randomUUID: that is there under TLS and on this machine only. */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Ask the API.
 * @param {string} method @param {string} url @param {unknown} body @param {string} [key]
 * @returns {Promise<{answer: any, problem: Problem | null}>}
 */
export async function ask(method, url, body, key) {
  /** @type {Record<string, string>} */
  const headers = { "Content-Type": "application/json" };
  if (key) headers["Idempotency-Key"] = key;
  if (document.body.dataset.csrf) headers["X-CSRF-Token"] = document.body.dataset.csrf;
  try {
    const response = await fetch(url, { method, headers, body: body === undefined ? null : JSON.stringify(body) });
    const said = response.status === 204 ? {} : await response.json();
    return response.ok ? { answer: said, problem: null } : { answer: null, problem: said };
  } catch {
    return { answer: null, problem: { detail: "The service does not answer. Try again in a moment." } };
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
  doing = { url: act, key: newKey(), asked: 0 };
  byId("doing-title").textContent = title;
  const yes = byId("doing-yes");
  yes.textContent = title.length > 40 ? (button.textContent ?? "Do it").trim() : title;
  const fields = byId("doing-form");
  fields.replaceChildren();
  const template = document.getElementById(`form-${form}`);
  if (template instanceof HTMLTemplateElement) fields.append(template.content.cloneNode(true));
  const notBefore = fields.querySelector("[name=not_before]");
  if (from && notBefore instanceof HTMLInputElement) notBefore.value = typed(Number(from) + LATER_SECONDS);
  byId("doing-problem").textContent = "";
  byId("foresight").replaceChildren();
  const dialog = byId("doing");
  if (dialog instanceof HTMLDialogElement) dialog.showModal();
  foresee();
}

/** Ask the law what would happen, now and from time to time: its answer depends on the instant. */
async function foresee() {
  clearTimeout(timer);
  const asked = ++doing.asked;
  const { url } = doing;
  const { answer, problem } = await ask("POST", `${url}?foresee=true`, said(byId("doing-form")));
  const dialog = byId("doing");
  if (asked !== doing.asked || url !== doing.url || !(dialog instanceof HTMLDialogElement) || !dialog.open) return;
  const yes = byId("doing-yes");
  if (yes instanceof HTMLButtonElement) yes.disabled = problem !== null;
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
  const { url, key } = doing;
  clearTimeout(timer);
  doing.asked += 1;
  const yes = byId("doing-yes");
  if (yes instanceof HTMLButtonElement) yes.disabled = true;
  const { answer, problem } = await ask("POST", url, said(byId("doing-form")), key);
  if (problem) {
    byId("doing-problem").textContent = problem.detail;
    doing.key = newKey();
    timer = setTimeout(foresee, ASK_AGAIN_SECONDS * 1000);
    if (yes instanceof HTMLButtonElement) yes.disabled = false;
    return;
  }
  const dialog = byId("doing");
  if (dialog instanceof HTMLDialogElement) dialog.close();
  toast(`${byId("doing-title").textContent}: accepted.`, answer.warnings ?? []);
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
  const { problem } = await ask("DELETE", button.dataset.delete ?? "", undefined);
  if (problem) toast(problem.detail, [], "bad");
}

/** More notice, from what is in the field, or from now. @param {HTMLElement} button */
function later(button) {
  const field = byId("doing-form").querySelector("[name=not_before]");
  if (!(field instanceof HTMLInputElement)) return;
  const from = field.value ? Date.parse(utc(field.value)) / 1000 : now();
  field.value = typed(from + Number(button.dataset.later));
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

export function startActing() {
  document.addEventListener("click", clicked);
  const dialog = byId("doing");
  dialog.querySelector("form")?.addEventListener("submit", (event) => {
    event.preventDefault();
    confirm();
  });
  dialog.addEventListener("close", () => clearTimeout(timer));
  dialog.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(foresee, PATIENCE);
  });
}
