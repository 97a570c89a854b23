// A new rollout: a dry run first, which says in which order and when; then it may be started.
import { ask, newKey, said } from "./acting.js";

/** @typedef {{node: string, announced_at: string, over_at: string}} ForecastNode */
/** @typedef {{order: ForecastNode[], in_the_way: {node: string, why: string}[], ends_at: string | null, warnings: string[]}} Forecast */

const ORDER_SHOWN = 200;

/** @param {string} name @param {string} text @param {...Node} children */
function element(name, text = "", ...children) {
  const made = document.createElement(name);
  made.append(...(text ? [text] : []), ...children);
  return made;
}

/** An instant of the API as people read it. @param {string} instant */
function clock(instant) {
  return `${instant.slice(0, 10)} ${instant.slice(11, 19)} UTC`;
}

/** What the form says, as the API takes it. @param {HTMLFormElement} form */
function asked(form) {
  const body = said(form);
  const days = [...form.querySelectorAll("[data-day]")].filter((day) => day instanceof HTMLInputElement && day.checked);
  const from = form.querySelector("#window-from");
  const hours = form.querySelector("#window-hours");
  if (days.length && from instanceof HTMLInputElement && hours instanceof HTMLInputElement) {
    const [hour = 0, minute = 0] = from.value.split(":").map(Number);
    const weekdays = days.map((day) => Number(/** @type {HTMLElement} */ (day).dataset.day));
    body.windows = [{ weekdays, start_minute: hour * 60 + minute, length_minutes: Number(hours.value) * 60 }];
  }
  return body;
}

/** @param {Forecast} forecast @param {() => void} start */
function told(forecast, start) {
  const box = element("section");
  box.className = "foresight forecast";
  box.append(element("h3", "What would happen, if nobody approves anything early"));
  const ends = forecast.ends_at ? `It would be over at ${clock(forecast.ends_at)}.` : "It would not end by itself.";
  box.append(element("p", `${forecast.order.length} nodes are taken. ${ends}`));
  const list = element("ol");
  for (const one of forecast.order.slice(0, ORDER_SHOWN)) {
    list.append(element("li", `${one.node}: announced ${clock(one.announced_at)}, over ${clock(one.over_at)}`));
  }
  box.append(list);
  if (forecast.order.length > ORDER_SHOWN) box.append(element("p", `and ${forecast.order.length - ORDER_SHOWN} more`));
  const more = element("ul");
  for (const one of forecast.in_the_way) more.append(element("li", `${one.node}: ${one.why}`));
  for (const one of forecast.warnings) more.append(element("li", one));
  if (more.children.length) box.append(element("h3", "In the way"), more);
  const button = element("button", "Start the rollout");
  button.className = "first";
  button.setAttribute("type", "button");
  button.addEventListener("click", start);
  const acts = element("p", "", button);
  acts.className = "acts end";
  box.append(acts);
  return box;
}

export function startRollouts() {
  const form = document.getElementById("rollout-form");
  const forecast = document.getElementById("forecast");
  if (!(form instanceof HTMLFormElement) || !forecast) return;
  /** @param {string} text */
  const refusal = (text) => {
    const problem = element("p", text);
    problem.className = "problem";
    problem.setAttribute("role", "alert");
    return problem;
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = asked(form);
    const key = newKey();
    const { answer, problem } = await ask("POST", "/v1/rollouts", { ...body, dry_run: true });
    if (problem) return forecast.replaceChildren(refusal(problem.detail));
    const start = async () => {
      const begun = await ask("POST", "/v1/rollouts", body, key);
      if (begun.problem) {
        const why = refusal(begun.problem.detail);
        // Where no answer came the same may be asked for again, with the same key: it is done once.
        if (begun.unknown) forecast.replaceChildren(told(answer, start), why);
        else forecast.replaceChildren(why);
        return;
      }
      location.assign(`/rollouts/${encodeURIComponent(begun.answer.id)}`);
    };
    forecast.replaceChildren(told(answer, start));
  });
  // What was changed was not foreseen.
  form.addEventListener("input", () => forecast.replaceChildren());
  form.addEventListener("click", (event) => {
    const pick = event.target instanceof HTMLElement ? event.target.dataset.pick : undefined;
    if (!pick) return;
    for (const box of form.querySelectorAll("[name=nodes]")) /** @type {HTMLInputElement} */ (box).checked = pick === "all";
    forecast.replaceChildren();
  });
}
