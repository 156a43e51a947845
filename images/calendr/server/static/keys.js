// Keys that work anywhere but in a field.
const click = (id) => () => document.getElementById(id)?.click();
const go = (address) => () => location.assign(address);
const undo = () => {
  const shown = document.getElementById("undo-form");
  (shown || document.getElementById("undo-last")).requestSubmit();
};
const view = (name) => () => (document.getElementById(`view-${name}`) ? click(`view-${name}`)() : location.assign(`/${name}`));
const KEYS = {
  c: click("new-event"), t: () => (document.getElementById("today") ? click("today")() : location.assign("/")), j: click("next"), k: click("previous"),
  d: view("day"), w: view("week"), m: view("month"), a: view("agenda"), "/": () => document.getElementById("search-box").focus(), z: undo, "?": go("/shortcuts"),
};

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, textarea, select") || document.getElementById("panel")?.open) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
