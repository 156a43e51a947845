// What a person does on a page, told to the server: clicks, what fields become, keys, and what the site's own scripts report.
const version = () => document.querySelector('meta[name="page-version"]')?.content;
let seen = [];
let timer = 0;

export function report(event_type, element_id, value) {
  seen.push({ event_type, element_id: element_id || null, value: value === undefined ? null : value, url: location.pathname + location.search });
  clearTimeout(timer);
  timer = setTimeout(flush, 60);
}

export function flush() {
  clearTimeout(timer);
  if (!seen.length) return;
  const body = JSON.stringify({ page: version(), events: seen });
  seen = [];
  // A beacon outlives the page, so nothing is lost when it is left.
  if (!navigator.sendBeacon("/interactions", new Blob([body], { type: "application/json" }))) fetch("/interactions", { method: "POST", body, keepalive: true });
}

// A form takes along what was seen before it, so that the log keeps the order.
export function attach(form) {
  let field = form.querySelector('input[name="_seen"]');
  if (!field) {
    field = document.createElement("input");
    field.type = "hidden";
    field.name = "_seen";
    form.append(field);
  }
  field.value = JSON.stringify(seen);
  seen = [];
  clearTimeout(timer);
}

const named = (target) => target?.closest?.("[id]")?.id || "";
const text = (element) => (element.getAttribute("aria-label") || element.textContent || "").trim().replace(/\s+/g, " ").slice(0, 120);
const valueOf = (field) => (field.type === "checkbox" || field.type === "radio" ? `${field.value}${field.checked ? "" : " (off)"}` : field.value);

document.addEventListener("click", (event) => {
  const acted = event.target.closest?.('a, button, summary, input, select, textarea, label, [role="option"], [data-log]');
  if (!acted) return;
  report("click", acted.id || named(acted), acted.matches("input, select, textarea") ? valueOf(acted) : text(acted));
  if (acted.matches("a")) flush();
}, true);
document.addEventListener("input", (event) => {
  const field = event.target;
  const last = seen[seen.length - 1];
  if (last?.event_type === "input" && last.element_id === (field.id || field.name)) seen.pop();
  report("input", field.id || field.name, valueOf(field));
}, true);
document.addEventListener("change", (event) => report("change", event.target.id || event.target.name, valueOf(event.target)), true);
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches?.("input, textarea, select");
  if (event.key === "Shift" || event.key === "Control" || event.key === "Alt" || event.key === "Meta") return;
  if (typing && event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey) return;
  const keys = [event.ctrlKey && "Control", event.altKey && "Alt", event.metaKey && "Meta", event.shiftKey && event.key.length > 1 && "Shift", event.key];
  report("key", named(event.target), keys.filter(Boolean).join("+"));
}, true);
document.addEventListener("submit", (event) => {
  const form = event.target;
  report("submit", form.id, event.submitter?.id || "");
  if (form.method === "post") attach(form);
  else flush();
}, true);
addEventListener("pagehide", flush);
document.addEventListener("visibilitychange", () => document.visibilityState === "hidden" && flush());
