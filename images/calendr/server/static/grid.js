// Events taken by the pointer or by Alt and arrows: moved, made longer or shorter; an empty place becomes a new event.
import { attach, report } from "./log.js";

const STEP = 15;
const pad = (n) => String(n).padStart(2, "0");
const textOf = (date, allDay) => `${date.getUTCFullYear()}-${pad(date.getUTCMonth() + 1)}-${pad(date.getUTCDate())}${allDay ? "" : `T${pad(date.getUTCHours())}:${pad(date.getUTCMinutes())}`}`;
// Wall-clock times: reckoned in UTC, so that the browser's own zone does not matter.
const read = (text) => new Date(`${text}:00Z`);
const shift = (date, minutes) => new Date(date.getTime() + minutes * 60000);
const here = () => location.pathname + location.search;

let openPanel;

function send(event, start, end, type) {
  const allDay = "allDay" in event.dataset;
  const [from, to] = [textOf(start, allDay), textOf(end, allDay)];
  report(type, event.id, `${event.dataset.start} - ${event.dataset.end} to ${textOf(start)} - ${textOf(end)}`);
  const query = new URLSearchParams({ start: from, end: to, back: here() });
  if ("series" in event.dataset) {
    openPanel(`/events/${event.dataset.ref}/move?${query}`);
    return;
  }
  const form = document.createElement("form");
  form.method = "post";
  form.action = `/events/${event.dataset.ref}/move`;
  form.hidden = true;
  query.set("_page", document.querySelector('meta[name="page-version"]').content);
  for (const [name, value] of query) form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
  document.body.append(form);
  attach(form);
  form.submit();
}

function track(down, moved, done) {
  let active = false;
  const move = (event) => {
    if (!active && Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < 5) return;
    active = true;
    moved(event);
  };
  const stop = (event) => {
    removeEventListener("pointermove", move);
    removeEventListener("pointerup", stop);
    removeEventListener("pointercancel", stop);
    removeEventListener("keydown", escape, true);
    if (active) {
      // The click that ends a drag comes at once or not at all, and opens nothing.
      const swallow = (click) => { click.preventDefault(); click.stopImmediatePropagation(); };
      addEventListener("click", swallow, { capture: true });
      setTimeout(() => removeEventListener("click", swallow, { capture: true }), 0);
    }
    done(active && event?.type === "pointerup", active);
  };
  const escape = (event) => event.key === "Escape" && stop();
  addEventListener("pointermove", move);
  addEventListener("pointerup", stop);
  addEventListener("pointercancel", stop);
  addEventListener("keydown", escape, true);
}

function wireTimes(grid) {
  const scroll = grid.querySelector(".scroll");
  const columns = [...grid.querySelectorAll(".column")];
  if (!scroll) return;
  const hour = () => columns[0].offsetHeight / 24;
  // On a narrow screen the whole grid scrolls, so that hours and days stay in sight.
  const scroller = getComputedStyle(scroll).overflowY === "visible" ? grid : scroll;
  const kept = sessionStorage.getItem("hours");
  scroller.scrollTop = kept === null ? (Number(grid.dataset.first) / 60 - 0.5) * hour() - 10 : Number(kept);
  scroller.addEventListener("scroll", () => sessionStorage.setItem("hours", String(scroller.scrollTop)), { passive: true });
  const today = grid.querySelector(".head.now");
  if (today && grid.scrollWidth > grid.clientWidth) grid.scrollLeft = today.offsetLeft - 52;
  const columnAt = (x) => columns.find((c) => x < c.getBoundingClientRect().right) || columns[columns.length - 1];
  const minuteAt = (column, y) => Math.max(0, Math.min(1440, ((y - column.getBoundingClientRect().top) / hour()) * 60));

  const drag = (down, block) => {
    const own = block.closest(".column");
    const isResize = down.target.matches(".resize");
    const [start, end] = [read(block.dataset.start), read(block.dataset.end)];
    const grabbed = minuteAt(own, down.clientY);
    let [to, until] = [start, end];
    const style = block.getAttribute("style");
    const place = block.parentElement;
    track(down, (event) => {
      const column = isResize ? own : columnAt(event.clientX);
      const minutes = Math.round((minuteAt(column, event.clientY) - grabbed) / STEP) * STEP;
      const days = (read(`${column.dataset.day}T00:00`) - read(`${own.dataset.day}T00:00`)) / 86400000;
      block.classList.add("lifted");
      if (isResize) {
        until = new Date(Math.max(shift(end, minutes), shift(start, STEP)));
      } else {
        [to, until] = [shift(start, minutes + days * 1440), shift(end, minutes + days * 1440)];
        if (block.parentElement.closest(".column") !== column) column.querySelector("ol").append(place);
      }
      const top = to.getUTCHours() * 60 + to.getUTCMinutes();
      block.style.cssText = `--t:${top};--m:${(until - to) / 60000};--c:0;--of:1;--s:1`;
      const time = block.querySelector(".time");
      if (time) time.textContent = `${textOf(to).slice(11)} – ${textOf(until).slice(11)}`;
    }, (kept, wasMoved) => {
      // Untouched, it must stay where it is: an element that is put elsewhere gets no click.
      if (!wasMoved) return;
      block.classList.remove("lifted");
      if (kept && (to - start || until - end)) {
        send(block, to, until, isResize ? "resize" : "drag");
      } else {
        block.setAttribute("style", style);
        own.querySelector("ol").append(place);
      }
    });
  };

  const draw = (down, column) => {
    const from = Math.floor(minuteAt(column, down.clientY) / 30) * 30;
    let until = from + 30;
    const made = Object.assign(document.createElement("span"), { className: "event drawn" });
    const put = () => (made.style.cssText = `--t:${Math.min(from, until)};--m:${Math.abs(until - from)}`);
    track(down, (event) => {
      const to = Math.round(minuteAt(column, event.clientY) / STEP) * STEP;
      until = to > from ? to : from + STEP;
      put();
      column.append(made);
    }, () => {
      put();
      const time = (m) => `${pad(Math.floor(Math.min(m, 1439) / 60))}:${pad(Math.min(m, 1439) % 60)}`;
      const day = column.dataset.day;
      report("click", `hours-${day}`, `${time(from)} - ${time(until)}`);
      made.remove();
      openPanel(`/events/new?${new URLSearchParams({ date: day, start: time(from), end: time(until), back: here() })}`);
    });
  };

  scroll.addEventListener("pointerdown", (down) => {
    if (down.button || (down.pointerType === "touch")) return;
    const block = down.target.closest(".event");
    const column = down.target.closest(".column");
    if (block?.dataset.ref) {
      down.preventDefault();
      block.focus({ preventScroll: true });
      drag(down, block);
    } else if (!block && column) {
      down.preventDefault();
      draw(down, column);
    }
  });
}

// Bars and the month's lines move by whole days.
function wireDays(grid) {
  const cells = [...grid.querySelectorAll(".cell, .column")];
  const dayAt = (event, among) => among.find((c) => {
    const box = c.getBoundingClientRect();
    return event.clientX >= box.left && event.clientX < box.right && (c.matches(".column") || (event.clientY >= box.top && event.clientY < box.bottom));
  })?.dataset.day;
  grid.querySelectorAll(".bars").forEach((bars) => bars.addEventListener("pointerdown", (down) => {
    const bar = down.target.closest("[data-ref]");
    if (!bar || down.button || down.pointerType === "touch") return;
    down.preventDefault();
    bar.focus({ preventScroll: true });
    const grabbed = dayAt(down, cells);
    let days = 0;
    track(down, (event) => {
      const day = dayAt(event, cells);
      if (day && grabbed) days = (read(`${day}T00:00`) - read(`${grabbed}T00:00`)) / 86400000;
      bar.style.transform = `translate(${event.clientX - down.clientX}px, ${event.clientY - down.clientY}px)`;
      bar.classList.add("lifted");
    }, (kept) => {
      bar.style.transform = "";
      bar.classList.remove("lifted");
      if (kept && days) send(bar, shift(read(bar.dataset.start), days * 1440), shift(read(bar.dataset.end), days * 1440), "drag");
    });
  }));
}

function wireKeys(grid) {
  grid.addEventListener("keydown", (event) => {
    const block = event.target.closest?.("[data-ref]");
    if (!block) return;
    if (event.key === "Delete" || event.key === "Backspace") {
      event.preventDefault();
      openPanel(`/events/${block.dataset.ref}/delete?${new URLSearchParams({ back: here() })}`);
      return;
    }
    const steps = { ArrowUp: -STEP, ArrowDown: STEP, ArrowLeft: -1440, ArrowRight: 1440 };
    if (!event.altKey || !(event.key in steps)) return;
    event.preventDefault();
    const [start, end] = [read(block.dataset.start), read(block.dataset.end)];
    const allDay = "allDay" in block.dataset;
    const minutes = steps[event.key] * (allDay && Math.abs(steps[event.key]) < 1440 ? 7 * 1440 / STEP : 1);
    if (event.shiftKey) {
      const until = shift(end, allDay ? Math.sign(minutes) * 1440 : minutes);
      if (until > start) send(block, start, until, "resize");
    } else {
      send(block, shift(start, minutes), shift(end, minutes), "drag");
    }
  });
}

export function wireGrid(grid, open) {
  openPanel = open;
  grid.addEventListener("dragstart", (event) => event.preventDefault());
  wireTimes(grid);
  wireDays(grid);
  wireKeys(grid);
}
