// A text field with suggestions (an ARIA combobox): what is chosen becomes a checked box above it, and is sent under the field's name.
import { report } from "./log.js";

export function suggest(input) {
  const options = JSON.parse(document.getElementById(input.dataset.suggest).textContent);
  const chips = document.getElementById(input.dataset.chips);
  const list = document.createElement("ul");
  list.setAttribute("role", "listbox");
  list.id = `${input.id}-list`;
  list.setAttribute("aria-label", "Suggestions");
  list.hidden = true;
  input.after(list);
  input.setAttribute("role", "combobox");
  input.setAttribute("aria-controls", list.id);
  input.setAttribute("aria-expanded", "false");
  input.setAttribute("aria-autocomplete", "list");
  input.autocomplete = "off";
  let at = -1;

  const close = () => {
    list.hidden = true;
    at = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const chosen = () => [...chips.querySelectorAll("input:checked")].map((box) => box.value);
  const add = (value, label) => {
    input.value = "";
    close();
    if (!value || chosen().includes(value)) return;
    const chip = document.createElement("label");
    const box = Object.assign(document.createElement("input"), { type: "checkbox", name: input.name, value, checked: true, id: `${input.id}-${value}` });
    chip.append(box, document.createTextNode(label || value));
    chips.append(chip);
    report("change", input.id, value);
    input.dispatchEvent(new Event("chosen", { bubbles: true }));
  };
  const mark = (n) => {
    at = n;
    [...list.children].forEach((option, i) => option.setAttribute("aria-selected", String(i === n)));
    if (list.children[n]) {
      input.setAttribute("aria-activedescendant", list.children[n].id);
      list.children[n].scrollIntoView({ block: "nearest" });
    }
  };
  const show = () => {
    const asked = input.value.trim().toLowerCase();
    const taken = chosen();
    const found = options.filter((o) => !taken.includes(o.value) && `${o.label} ${o.value}`.toLowerCase().includes(asked)).slice(0, 8);
    list.replaceChildren(...found.map((o, n) => {
      const option = document.createElement("li");
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", "false");
      option.id = `${input.id}-option-${n}`;
      const detail = Object.assign(document.createElement("span"), { className: "muted small", textContent: o.value });
      option.append(Object.assign(document.createElement("span"), { textContent: o.label }), detail);
      option.addEventListener("pointerdown", (event) => event.preventDefault());
      option.addEventListener("click", () => add(o.value, o.label));
      option.dataset.value = o.value;
      option.dataset.label = o.label;
      return option;
    }));
    list.hidden = !asked || !found.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
    mark(list.hidden ? -1 : 0);
  };
  input.addEventListener("input", () => {
    if (/[,;]/.test(input.value)) {
      input.value.split(/[,;]/).map((t) => t.trim()).filter(Boolean).forEach((t) => add(t, options.find((o) => o.value === t || o.label === t)?.label));
      input.value = "";
    }
    show();
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const count = list.children.length;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) show();
      else mark((at + (event.key === "ArrowDown" ? 1 : count - 1)) % count);
    } else if (event.key === "Enter" && input.value.trim()) {
      event.preventDefault();
      const option = list.hidden ? null : list.children[at];
      add(option ? option.dataset.value : input.value.trim(), option?.dataset.label);
    } else if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  });
}
