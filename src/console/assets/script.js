// Makes pages nicer: times in the reader's zone, a page that stays fresh, copying. Everything works without it.
"use strict";

const two = (number) => String(number).padStart(2, "0");

// A time in the reader's zone.
const shown = (at) =>
  `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
  `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;

// How long ago a time is, or ahead.
function away(ms) {
  const seconds = Math.floor(Math.abs(ms) / 1000);
  const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([size]) => seconds >= size) || [1, "s"];
  const text = `${Math.floor(seconds / size)} ${unit}`;
  return ms >= 0 ? `${text} ago` : `in ${text}`;
}

// The time of the service: what it was when the page was made, and what has passed since.
let made = 0;
const serverNow = () => {
  const { now } = document.querySelector("main").dataset;
  return now ? new Date(now).getTime() + performance.now() - made : Date.now();
};

// Shows times in the reader's zone; the zone and UTC stand in the title. In a table of the last week's, how long ago it is.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
function localTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    if (!element.title) element.title = `${shown(at)} ${zone}, ${element.textContent}`;
    const ago = serverNow() - at;
    const isNear = element.closest("td") && Math.abs(ago) < 7 * 86400000;
    element.textContent = isNear ? away(ago) : shown(at);
    if (isNear) element.dataset.exact = shown(at);
  }
}
setInterval(() => localTimes(document), 10000);

// The UTC time of a text in the reader's zone; the text itself if it is none. Today is that of the service.
function toUtc(typed) {
  const text = typed.trim().toLowerCase();
  const day = new Date(serverNow());
  day.setHours(0, 0, 0, 0);
  if (["yesterday", "last night"].includes(text)) day.setDate(day.getDate() - 1);
  if (text === "last night") day.setHours(18);
  if (text === "month") day.setDate(1);
  if (["today", "yesterday", "last night", "month"].includes(text)) return day.toISOString();
  const clock = /^(\d{1,2}):(\d{2})$/.exec(text);
  if (clock && clock[1] < 24 && clock[2] < 60) {
    day.setHours(Number(clock[1]), Number(clock[2]));
    return day.toISOString();
  }
  const parts = /^(\d{4}-\d{2}-\d{2})(?:[ t](\d{2}:\d{2}(?::\d{2})?))?$/.exec(text);
  const at = parts && new Date(`${parts[1]}T${parts[2] || "00:00"}`);
  return at && !Number.isNaN(at.getTime()) ? at.toISOString() : typed;
}

// Days and times that are typed are those of the reader's zone, as those that are shown; the label says which zone. What is
// not touched is sent as it was.
function localFields(root) {
  for (const note of root.querySelectorAll(".zone")) note.textContent = zone;
  for (const link of root.querySelectorAll("a[data-preset]")) {
    const url = new URL(link.href);
    for (const name of ["since", "until"]) {
      const text = url.searchParams.get(name);
      if (text) url.searchParams.set(name, toUtc(text));
    }
    link.href = url;
  }
  for (const input of root.querySelectorAll("input[data-time]")) {
    const given = input.value;
    const at = new Date(given);
    const isTime = /^\d{4}-.*Z$/.test(given) && !Number.isNaN(at.getTime());
    if (isTime) input.defaultValue = shown(at);
    input.form.addEventListener("formdata", (event) => {
      if (input.disabled || !input.value) return;
      event.formData.set(input.name, isTime && input.value === shown(at) ? given : toUtc(input.value));
    });
  }
  for (const fold of root.querySelectorAll("details.fold:not([data-used])")) fold.open = !phone.matches;
}

// On a phone, filters are folded until they are used.
const phone = matchMedia("(max-width: 46rem)");
phone.addEventListener("change", () => {
  for (const fold of document.querySelectorAll("details.fold:not([data-used])")) fold.open = !phone.matches;
});

// Times of day below pictures, in the reader's zone; and what a picture tells about the time that is pointed at, or that the
// arrow keys lead to.
const clockOf = (at) => `${two(at.getHours())}:${two(at.getMinutes())}`;
function pictures(root) {
  for (const text of root.querySelectorAll("text[data-at]")) text.textContent = clockOf(new Date(text.dataset.at));
  for (const box of root.querySelectorAll("[data-readings]")) {
    const readings = box.dataset.readings.trim().split("\n").map((line) => line.split(" "));
    const names = box.dataset.names.split(",");
    const [left, step] = [Number(box.dataset.left), Number(box.dataset.step)];
    const picture = box.querySelector("svg");
    const told = box.nextElementSibling;
    let index = readings.length - 1;
    const tell = (n) => {
      index = Math.min(Math.max(n, 0), readings.length - 1);
      const [at, ...values] = readings[index];
      const text = values.length ? values.map((value, n) => `${value} ${names[n]}`).join(", ") : box.dataset.unknown;
      told.textContent = `${/T00:00/.test(at) ? at.slice(0, 10) : clockOf(new Date(`${at}Z`))}: ${text}`;
    };
    picture.setAttribute("tabindex", "0");
    picture.addEventListener("focus", () => tell(index));
    picture.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      tell(index + by);
    });
    picture.addEventListener("pointermove", (event) => {
      const area = picture.getBoundingClientRect();
      const x = ((event.clientX - area.left) * picture.viewBox.baseVal.width) / area.width;
      tell(Math.floor((x - left) / step));
    });
  }
}

// Shows the buttons that copy the text beside them.
function copyButtons(root) {
  for (const button of root.querySelectorAll("button.copy")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.parentElement.classList.add("short");
    const text = button.parentElement.querySelector("code");
    if (button.parentElement.matches(".id")) text.title = text.textContent;
    button.addEventListener("click", () =>
      navigator.clipboard.writeText(text.textContent));
  }
}

// A second click on a button that acts does nothing: the form is on its way.
function singleClicks(root) {
  for (const form of root.querySelectorAll('form[method="post"]')) {
    form.addEventListener("submit", (event) => {
      if (form.dataset.sent) event.preventDefault();
      form.dataset.sent = "yes";
    });
  }
}

// Checks all boxes of a list.
function pickAll(root) {
  for (const all of root.querySelectorAll("input[data-pick-all]")) {
    all.hidden = false;
    all.addEventListener("change", () => {
      for (const box of all.form.querySelectorAll('input[type="checkbox"][name]')) box.checked = all.checked;
    });
  }
}

// Shows those fields only that what is chosen has. A choice that is not shown itself has none.
function ofKind(root) {
  for (const form of root.querySelectorAll("form.act")) {
    // A field that is not shown is disabled, and asks for nothing.
    for (const input of form.querySelectorAll("[data-needed] :is(input:not([type=checkbox]), select, textarea)")) input.required = true;
    const show = () => {
      for (const field of form.querySelectorAll("[data-of]")) {
        const by = form.elements[field.dataset.by];
        if (!by) continue;
        const isOff = Boolean(by.closest?.("[data-of]")?.hidden);
        field.hidden = isOff || !field.dataset.of.split(" ").includes(by.value);
        field.querySelectorAll(".of").forEach((note) => { note.hidden = true; });
        field.querySelectorAll("input, select, textarea").forEach((input) => { input.disabled = field.hidden; });
      }
      // An object of which nothing is shown has no frame.
      for (const group of form.querySelectorAll("fieldset:not([data-of])")) {
        group.hidden = ![...group.querySelectorAll(".field")].some((field) => !field.hidden) && !group.closest(".field");
      }
    };
    form.addEventListener("change", show);
    show();
  }
}

// What is typed in a form is kept in this tab, so that a service that was killed, a session that ended or a page that was left
// loses none of it. It is its person's alone: another one who logs in here takes it away. Secrets are not kept.
const person = document.querySelector(".me span")?.textContent.split(" · ")[0];
const draftOf = (form) => `draft ${person} ${form.getAttribute("action")} ${form.querySelector("[name=id], [name=name][type=hidden]")?.value || ""}`;
const isKept = (field) => field.name && !field.matches("[type=hidden], [type=password], [type=file], .secret");
function drafts() {
  const store = window.sessionStorage;
  for (const key of Object.keys(store)) {
    if (person && key.startsWith("draft ") && !key.startsWith(`draft ${person} `)) store.removeItem(key);
  }
  const sent = store.getItem("sent");
  store.removeItem("sent");
  const form = document.querySelector("form.act");
  // What was sent and led to another page is done.
  if (sent && person && (!form || draftOf(form) !== sent)) store.removeItem(sent);
  if (!form || !person) return;
  const key = draftOf(form);
  const fields = [...form.elements].filter(isKept);
  const kept = JSON.parse(store.getItem(key) || "{}");
  // The answer to a form that was sent has what was typed already, and its address has no query.
  if (location.search) {
    let isFilled = false;
    for (const field of fields) {
      const value = kept[field.name + (field.type === "radio" || field.type === "checkbox" ? ` ${field.value}` : "")];
      if (value === undefined) continue;
      if (typeof value === "boolean") field.checked = value;
      else field.value = value;
      if (!isChanged(field)) continue;
      isFilled = true;
      field.closest("details")?.setAttribute("open", "");
    }
    form.querySelector(".kept").hidden = !isFilled;
    form.dispatchEvent(new Event("change"));
  }
  form.addEventListener("input", () => {
    const typed = {};
    for (const field of fields.filter(isChanged)) {
      const isBox = field.type === "radio" || field.type === "checkbox";
      typed[field.name + (isBox ? ` ${field.value}` : "")] = isBox ? field.checked : field.value;
    }
    store.setItem(key, JSON.stringify(typed));
  });
  form.addEventListener("reset", () => {
    store.removeItem(key);
    form.querySelector(".kept").hidden = true;
  });
  form.addEventListener("submit", () => store.setItem("sent", key));
}

function enhance(root) {
  localTimes(root);
  localFields(root);
  pictures(root);
  copyButtons(root);
  singleClicks(root);
  pickAll(root);
  ofKind(root);
}

// Whether a field has another value than the page gave it.
function isChanged(field) {
  if (field.options) return [...field.options].some((option) => option.selected !== option.defaultSelected && field.value !== "");
  return field.value !== field.defaultValue || field.checked !== field.defaultChecked;
}

// Whether the reader is busy with the page: nothing is replaced under the hands.
function isBusy(main) {
  const active = document.activeElement;
  const types = active && main.contains(active) && active.matches("input, select, textarea, button, summary, a, svg, abbr, [data-word]");
  const selected = String(document.getSelection() || "") !== "";
  const isTyped = [...main.querySelectorAll("input:not([type=hidden]), textarea, select")].some(isChanged);
  // Between press and release of a button nothing moves: the click would be lost.
  return types || selected || isTyped || main.matches(":active");
}

// Asks for the page again, and replaces the main part if something was committed since, unless the reader is busy with it:
// then a note says so. After a request that failed, the page says since when it is old, and greys what it says about now.
// A page that stays as it is, such as a form, asks only whether the service answers.
function keepFresh(main) {
  const stale = () => document.getElementById("stale");
  const paused = () => document.getElementById("paused");
  if (!stale()) return;
  const isLive = Boolean(main.dataset.live);
  const seconds = Number(main.dataset.live || 10);
  let version = null;
  let updated = new Date();
  let answered = updated;
  let hasFailed = false;
  let isOver = false;
  let isNewer = false;
  const tell = () => {
    const isOld = isOver || (hasFailed && Date.now() - answered > (3 * seconds + 2) * 1000);
    main.classList.toggle("stale", isOld);
    if (paused()) paused().hidden = isOld || !isNewer;
    if (stale().hidden !== isOld) return;
    stale().querySelector("strong").textContent =
      `${two(updated.getHours())}:${two(updated.getMinutes())}:${two(updated.getSeconds())}`;
    stale().querySelector("a").hidden = !isOver;
    stale().hidden = !isOld;
  };
  const ask = async (path, headers) => {
    const answer = await fetch(path,
      { headers, cache: "no-store", redirect: "error", signal: AbortSignal.timeout(10000) });
    if (![200, 304].includes(answer.status)) throw new Error(answer.statusText);
    answered = new Date();
    hasFailed = false;
    return answer;
  };
  const look = async () => {
    if (document.hidden || isOver) return;
    const begun = new Date();
    if (!isLive) {
      await ask("/livez", {});
      updated = begun;
      return;
    }
    const answer = await ask(location.href, { "oncebox-poll": "1", ...(version && { "if-none-match": version }) });
    isNewer = answer.status !== 304;
    if (!isNewer) updated = begun;
    if (!isNewer || isBusy(main)) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("main[data-live]");
    isOver = !fresh;
    if (!fresh || isBusy(main)) return;
    version = answer.headers.get("etag");
    updated = begun;
    isNewer = false;
    const open = [...main.querySelectorAll("details[open]")].map((element) => element.id);
    const notice = main.querySelector(".notice[role=status]");
    main.replaceChildren(...fresh.childNodes);
    main.dataset.now = fresh.dataset.now;
    made = performance.now();
    for (const id of open) if (id) document.getElementById(id)?.setAttribute("open", "");
    if (notice && !main.querySelector(".notice[role=status]")) main.querySelector(".head")?.after(notice);
    enhance(main);
  };
  setInterval(() => look().catch(() => { hasFailed = true; }).finally(tell), seconds * 1000);
}

// A page that the browser kept, as after logging out and going back, is asked for again.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

// What an action did is said once: a page that is loaded again, or kept as a bookmark, does not say it again.
function sayOnce() {
  const here = new URL(location.href);
  if (!here.searchParams.has("did")) return;
  here.searchParams.delete("did");
  history.replaceState(history.state, "", here);
}

enhance(document);
drafts();
sayOnce();
const main = document.querySelector("main");
if (main) keepFresh(main);
