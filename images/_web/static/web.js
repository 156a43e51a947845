// What pages of all sites do: links that open as a dialog, the message after an action, suggestions.
import { flush, report } from "./log.js";
import { suggest } from "./suggest.js";

const panel = document.getElementById("panel");
const listeners = [];

// Run `wire` on the page and on everything that is loaded into it later.
export function onContent(wire) {
  listeners.push(wire);
  wire(document);
}

export async function open(address) {
  const answer = await fetch(address, { headers: { "X-Partial": "dialog" } });
  const content = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("#main > .card, main.card");
  if (!content || answer.redirected) {
    location.assign(address);
    return;
  }
  report("navigate", "panel", address);
  content.querySelectorAll('input[name="back"]').forEach((field) => (field.value = here()));
  content.querySelectorAll('a[href^="/events/"]').forEach((link) => link.setAttribute("href", withBack(link.getAttribute("href"))));
  content.classList.add("in-panel");
  panel.replaceChildren(document.adoptNode(content));
  panel.setAttribute("aria-label", content.querySelector("h1, h2")?.textContent.trim() || "Details");
  if (!panel.open) panel.showModal();
  panel.scrollTop = 0;
  listeners.forEach((wire) => wire(panel));
  (panel.querySelector("[autofocus]") || panel.querySelector("h1, h2") || panel).focus();
}

const here = () => {
  const address = new URL(location.href);
  ["session_id", "done"].forEach((name) => address.searchParams.delete(name));
  return address.pathname + address.search;
};

function withBack(address) {
  const url = new URL(address, location.origin);
  url.searchParams.set("back", here());
  return url.pathname + url.search;
}

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (event.target === panel || event.target.closest?.("[data-close]")) {
    if (panel?.open) {
      event.preventDefault();
      panel.close();
    }
    return;
  }
  const link = event.target.closest?.("a[data-dialog]");
  if (!link || !panel) return;
  event.preventDefault();
  flush();
  open(link.href);
});

// The address that a message came with would show it again when the page is loaded again.
const address = new URL(location.href);
if (address.searchParams.has("done")) {
  address.searchParams.delete("done");
  history.replaceState(null, "", address);
}
document.getElementById("dismiss")?.addEventListener("click", () => document.getElementById("toast").remove());

onContent((root) => root.querySelectorAll("[data-suggest]").forEach(suggest));
onContent((root) => root.querySelectorAll("[data-submit]").forEach((field) => field.addEventListener("change", () => field.form.requestSubmit())));
