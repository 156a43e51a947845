// Calendr's pages: the event form, moving events about, keys.
import { onContent, open } from "./web.js";
import { wireForm } from "./eventform.js";
import { wireGrid } from "./grid.js";
import "./keys.js";

onContent((root) => root.querySelectorAll("#event-form").forEach(wireForm));
onContent((root) => root.querySelectorAll("#find-form").forEach((form) => form.addEventListener("chosen", () => form.requestSubmit())));
document.querySelectorAll(".grid, .month").forEach((grid) => wireGrid(grid, open));
