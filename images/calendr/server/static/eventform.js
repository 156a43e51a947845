// The event form: fields that do not matter are put away, the end follows the start.
const UNITS = { daily: "day", weekly: "week", monthly: "month", "monthly-weekday": "month", yearly: "year" };

export function wireForm(form) {
  const field = (id) => form.querySelector(`#${id}`);
  const show = () => {
    form.classList.toggle("all-day-on", field("all-day").checked);
    const repeat = field("repeat").value;
    field("repeat-more").hidden = !repeat || repeat === "keep";
    field("repeat-days").hidden = repeat !== "weekly";
    field("repeat-interval").closest(".row").hidden = repeat === "weekdays";
    const unit = UNITS[repeat] || "day";
    field("repeat-unit").textContent = field("repeat-interval").value === "1" ? unit : `${unit}s`;
    field("repeat-until").hidden = field("repeat-end").value !== "until";
    field("repeat-count").hidden = field("repeat-end").value !== "count";
  };
  form.addEventListener("change", show);
  form.addEventListener("input", show);
  show();

  const moment = (name) => new Date(`${field(`${name}-date`).value}T${field("all-day").checked ? "00:00" : field(`${name}-time`).value || "00:00"}`);
  const put = (date) => {
    const two = (n) => String(n).padStart(2, "0");
    field("end-date").value = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    if (!field("all-day").checked) field("end-time").value = `${two(date.getHours())}:${two(date.getMinutes())}`;
  };
  // A weekly event on one day goes along when it is moved to another.
  const dayOf = () => ["SU", "MO", "TU", "WE", "TH", "FR", "SA"][moment("start").getDay()];
  let day = dayOf();
  field("start-date").addEventListener("change", () => {
    const checked = [...form.querySelectorAll('[name="repeat_on"]:checked')];
    if (checked.length === 1 && checked[0].value === day && dayOf()) {
      checked[0].checked = false;
      field(`repeat-on-${dayOf()}`).checked = true;
    }
    day = dayOf();
  });
  let lasts = moment("end") - moment("start");
  ["start-date", "start-time"].forEach((id) => field(id).addEventListener("change", () => {
    const start = moment("start");
    if (lasts >= 0 && !Number.isNaN(start.getTime())) put(new Date(start.getTime() + lasts));
  }));
  ["end-date", "end-time"].forEach((id) => field(id).addEventListener("change", () => (lasts = moment("end") - moment("start"))));
  field("find-time").addEventListener("click", () => {
    const query = new URLSearchParams();
    form.querySelectorAll('#guest-chips input:checked').forEach((box) => query.append("guests", box.value));
    query.set("from", field("start-date").value);
    field("find-time").href = `/find-time?${query}`;
  });
}
