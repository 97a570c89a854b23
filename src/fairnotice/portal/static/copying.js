// Lines to copy.

/** @param {string} text */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without TLS, or where it is not allowed: the line is there to be marked.
    return false;
  }
}

export function startCopying() {
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-copy]") : null;
    if (!(button instanceof HTMLElement)) return;
    const done = await copy(button.dataset.copy ?? "");
    if (!done) {
      const code = button.parentElement?.querySelector("code");
      if (code) getSelection()?.selectAllChildren(code);
    }
    button.textContent = done ? "Copied" : "Marked";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
}
