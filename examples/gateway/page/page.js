// The script of the page. It sends a request when a button is pressed, and draws the
// level that level.js computes.
import { Due, Level, readFields } from "./level.js";

const $ = (id) => document.getElementById(id);
const seconds = () => performance.now() / 1000;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const actions = [...document.querySelectorAll(".action")].map((card) => ({
  card,
  path: card.dataset.path,
  name: card.dataset.name,
  price: Number(card.dataset.price),
  priced: `GET ${card.dataset.path} · ${card.querySelector("small").textContent}`,
  button: card.querySelector("button"),
  due: null, // a Due, once refused
}));
const history = []; // of {level, ok}: the level known from level.at on; whether the request was admitted, undefined for a look

// The header fields that the page shows, in this order, and what they mean.
const meanings = [
  ["Retry-After", "seconds until the same request would be admitted, rounded up"],
  ["X-RateLimit-Remaining", "the largest whole price that a request can pay now"],
  ["X-RateLimit-Reset", "seconds until the bucket is full, rounded up"],
  ["X-RateLimit-Limit", "capacity: the most tokens that the bucket holds"],
  ["RateLimit", "r tokens may be used within the next t seconds"],
  ["RateLimit-Policy", "the bucket holds q tokens at most and, if empty, is full in w seconds"],
];

// ask sends one request and updates the level from its answer.
async function ask(method, path, cost) {
  const sent = seconds();
  const answer = await fetch(path, { method, cache: "no-store", signal: AbortSignal.timeout(10_000) });
  const received = seconds();
  await answer.arrayBuffer();
  const fields = readFields(answer.headers);
  const last = history.at(-1)?.level;
  const level = last ? last.learn(fields, cost, sent, received) : new Level(fields, cost, sent, received);
  return { answer, fields, level, sent, received };
}

// The page sends one request at a time, so that the answers come in the order in which
// the gateway decided.
let turn = Promise.resolve();
let pending = 0; // requests that have not been answered

function inTurn(task) {
  pending++;
  turn = turn.then(task)
    .then(() => report(""), (error) => report(`No usable answer: ${error.message}. Check that the gateway is running.`))
    .then(() => {
      pending--;
      settle();
    });
}

// settle updates the countdowns after an answer, and draws the page.
function settle() {
  const level = history.at(-1)?.level;
  for (const action of actions) {
    action.due?.agree(action.price, level);
    awaitDue(action);
  }
  draw();
}

// look sends a request that costs 0: its header fields report the level.
const look = () => inTurn(async () => {
  const { answer, level } = await ask("HEAD", "/", 0);
  history.push({ level });
  if (history.length === 1) {
    show("HEAD / · 0 tokens", answer);
  }
});

const send = (action) => inTurn(async () => {
  const { answer, fields, level, sent, received } = await ask("GET", action.path, action.price);
  history.push({ level, ok: answer.ok });
  if (answer.ok) {
    action.due = null;
    actions.forEach(({ due, price }) => due?.spent(action.price, price, level));
  } else {
    const due = new Due(fields.retryAfter, sent, received);
    action.due = action.due?.refine(due) ?? due;
  }
  show(action.priced, answer);
  announce(action, answer, fields, received);
});

function announce(action, answer, fields, received) {
  const news = answer.ok
    ? `${fields.remaining} of ${fields.capacity} tokens left, ${fullness(fields.reset, true)}.`
    : `It would be admitted in ${duration(Math.ceil(Math.max(0, action.due.at - received)), true)}.`;
  $("news").textContent = `${action.name}: ${statusOf(answer)}. ${news}`;
}

// awaitDue announces once that a refused request would be admitted now.
function awaitDue(action) {
  clearTimeout(action.timer);
  if (action.due === null) {
    return;
  }
  const left = action.due.at - seconds();
  if (left > 0) {
    action.awaited = true;
    action.timer = setTimeout(awaitDue, Math.min(left * 1000 + 1, 1e9), action);
  } else if (action.awaited) {
    action.awaited = false;
    $("news").textContent = `${action.name} would be admitted now.`;
    draw();
  }
}

function report(problem) {
  $("problem").hidden = problem === "";
  $("problem").textContent = problem;
}

// show shows an answer at length, and puts it at the top of a list of the newest 50.
function show(request, answer) {
  $("request").textContent = request;
  setBadge($("status"), answer, statusOf(answer));
  const shown = meanings.filter(([name]) => answer.headers.has(name));
  $("fields").replaceChildren(...shown.map(([name, meaning]) => fill("field", {
    ".name": name, ".value": answer.headers.get(name), "dd": meaning,
  })));
  const entry = fill("entry", {
    ".request": request,
    ".figures": shown.filter(([name]) => /-/.test(name) && !/Limit$|Policy/.test(name))
      .map(([name]) => `${name.replace("X-RateLimit-", "")} ${answer.headers.get(name)}`).join(" · "),
  });
  setBadge(entry.querySelector(".badge"), answer, answer.status);
  $("log").prepend(entry);
  [...$("log").children].slice(50).forEach((old) => old.remove());
}

const statusOf = (answer) => `${answer.status} ${answer.statusText}`;

function setBadge(badge, answer, text) {
  badge.textContent = text;
  badge.dataset.ok = answer.ok;
}

// fill returns a copy of a template with texts in it, by selector.
function fill(template, texts) {
  const copy = $(template).content.firstElementChild.cloneNode(true);
  for (const [selector, text] of Object.entries(texts)) {
    copy.querySelector(selector).textContent = text;
  }
  return copy;
}

// duration returns whole seconds as text in the two largest units, in short or as words
// for a screen reader.
function duration(s, aloud = false) {
  const units = [[86400, "d", "day"], [3600, "h", "hour"], [60, "min", "minute"], [1, "s", "second"]];
  const first = Math.max(0, units.findIndex(([size]) => s >= size || size === 1));
  return units.slice(first, first + 2)
    .map(([size, short, long], i) => [Math.floor((i === 0 ? s : s % units[first][0]) / size), short, long])
    .filter(([n], i) => i === 0 || n > 0)
    .map(([n, short, long]) => (aloud ? `${n.toLocaleString("en")} ${long}${n === 1 ? "" : "s"}` : `${n.toLocaleString("en")}\u00a0${short}`))
    .join(" ");
}

const fullness = (s, aloud) => (s > 0 ? `full in ${duration(s, aloud)}` : "full");

// draw shows the level and the countdowns as they are now.
function draw() {
  const now = seconds();
  actions.forEach((action) => drawAction(action, now));
  const level = history.at(-1)?.level;
  if (level) {
    drawReading(level, now);
    drawVessel(level, now);
    drawChart(level, now);
  }
}

// drawAction shows when a request would be admitted. For a request that was refused, the
// refusals say when; for others, the level does.
function drawAction({ card, price, due }, now) {
  const level = history.at(-1)?.level;
  if (!level) {
    return;
  }
  const left = (due?.at ?? level.reaches(price)) - now;
  const whole = due ? due.at - due.from : price / level.slow;
  card.dataset.state = left > 0 ? "waiting" : due ? "due" : "";
  set(card.querySelector(".due"), left > 0 ? `admitted in ${duration(Math.ceil(left))}` : due ? "admitted now: retry" : "admitted now");
  card.querySelector("progress").value = left > 0 && whole > 0 ? Math.max(0, 1 - left / whole) : 1;
}

function drawReading(level, now) {
  const [low, high] = level.range(now);
  const untilFull = Math.ceil(level.reaches(level.capacity) - now);
  const exact = high - low < 0.1;
  set($("about"), exact ? "" : "about ");
  set($("tokens"), (Math.floor((exact ? low : (low + high) / 2) * 10 + 1e-6) / 10).toLocaleString("en", { minimumFractionDigits: 1 }));
  set($("capacity"), level.capacity.toLocaleString("en"));
  set($("full"), fullness(untilFull));
  const text = `${Math.floor(low)} of ${level.capacity} tokens, ${fullness(untilFull, true)}`;
  const meter = $("vessel");
  if (meter.getAttribute("aria-valuetext") !== text) { // at each whole token, and at each second until full
    meter.setAttribute("aria-valuemax", level.capacity);
    meter.setAttribute("aria-valuenow", Math.floor(low));
    meter.setAttribute("aria-valuetext", text);
  }
}

function set(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

function drawVessel(level, now) {
  const [low, high] = level.range(now);
  $("water").style.height = `${(100 * low) / level.capacity}%`;
  $("band").style.height = `${(100 * high) / level.capacity}%`;
  $("drop").hidden = low >= level.capacity;
}

// In the chart, time runs to the right and tokens run upwards. The present is at the
// fraction nowAt of the width. The margins hold text, so they grow with the size of
// letters. The right margin holds the labels of the vertical axis.
const nowAt = 0.62;
const margin = { top: 0.875, bottom: 1.25, right: 5 }; // rem

function drawChart(level, now) {
  const s = scales(level, now);
  while (history.length > 1 && history[1].level.at < now - s.past) {
    history.shift();
  }
  drawFrame(level, s);
  drawLevels(level, s);
  drawMarks(s);
}

// scales returns the sizes of the chart, and functions that return the pixel of an
// instant (x) and of a number of tokens (y).
function scales(level, now) {
  const { clientWidth: all, clientHeight: height } = $("chart");
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const width = all - Math.min(margin.right * rem, all / 2);
  const [top, bottom] = [margin.top * rem, height - margin.bottom * rem];
  const past = Math.min(Math.max(level.capacity / level.slow, 8), 120);
  const ahead = (past * (1 - nowAt)) / nowAt;
  const x = (t) => (nowAt + ((t - now) / past) * nowAt) * width;
  const y = (tokens) => top + (1 - tokens / level.capacity) * (bottom - top);
  const point = (t, tokens) => `${x(t).toFixed(1)} ${y(tokens).toFixed(1)}`;
  return { width, height, rem, top, now, past, ahead, x, y, point };
}

function drawFrame({ capacity }, { width, height, rem, top, now, past, ahead, x, y }) {
  path("frame", `M0 ${y(0)}H${width}V${top}`);
  path("cap-line", `M0 ${y(capacity)}H${width}`);
  path("price-lines", actions.map(({ price }) => `M0 ${y(price)}H${width}`).join(""));
  path("now-line", `M${x(now)} ${top}V${y(0)}`);
  const named = [{ name: "full", tokens: capacity }, ...actions.map(({ name, price }) => ({ name: name.toLowerCase(), tokens: price })), { name: "", tokens: 0 }];
  nameLines(named.map((line) => ({ ...line, y: y(line.tokens) })), width + 0.3 * rem, rem);
  place($("past-text"), 2, height - 5, `−${Math.round(past)} s`);
  place($("now-text"), x(now), height - 5, "now");
  place($("ahead-text"), width, height - 5, width - x(now) < 4.5 * rem ? "" : `+${Math.round(ahead)} s`);
}

function drawLevels(level, { now, ahead, x, y, point }) {
  const known = history.map(({ level }, i) => ({ level, from: level.at, to: history[i + 1]?.level.at ?? now }));
  const lows = known.flatMap((k) => corners(k, 0));
  const highs = known.flatMap((k) => corners(k, 1));
  const future = corners({ level, from: now, to: now + ahead }, 0);
  const line = (corners) => corners.map(([t, tokens]) => point(t, tokens)).join("L");
  path("trace", `M${line(lows)}`);
  path("area", `M${x(lows[0][0]).toFixed(1)} ${y(0)}L${line(lows)}V${y(0)}Z`);
  path("range", `M${line(lows)}L${line(highs.reverse())}Z`);
  path("ahead", `M${line(future)}`);
}

// drawMarks draws a mark for each request of this page, and one for the instant at which
// a refused request would be admitted.
function drawMarks({ now, ahead, top, x, y, point }) {
  const marks = { true: "", false: "" };
  const placed = [];
  for (const { level, ok } of history.filter((h) => h.ok !== undefined)) {
    const at = { x: x(level.at), y: y(level.low) };
    const step = at.y > (top + y(0)) / 2 ? -apart : apart;
    const isFree = () => placed.every((p) => Math.hypot(p.x - at.x, p.y - at.y) >= apart);
    while (!isFree() && at.y >= top && at.y <= y(0)) {
      at.y += step;
    }
    placed.push(at);
    marks[ok] += `M${at.x.toFixed(1)} ${at.y.toFixed(1)}${ok ? "h0" : "m-4 -4l8 8m0 -8l-8 8"}`;
  }
  path("admitted", marks.true);
  path("refused", marks.false);
  path("due-marks", actions.filter(({ due }) => due?.at > now && due.at < now + ahead)
    .map(({ due, price }) => `M${point(due.at, price)}V${y(0)}m-3 0h6`).join(""));
}

// apart is the least distance of two marks, in pixels. Marks that would be closer are
// drawn above each other.
const apart = 11;

// nameLines writes a name and a number beside each line. Lines that are too close to each
// other share one text, beside the highest of them.
function nameLines(lines, x, distance) {
  const groups = [];
  for (const line of lines.sort((a, b) => a.y - b.y)) {
    const above = groups.at(-1);
    if (above && line.y - above[0].y < distance) {
      above.push(line);
    } else {
      groups.push([line]);
    }
  }
  document.querySelectorAll(".level-text").forEach((text, i) => {
    const group = groups[i] ?? [];
    place(text, x, (group[0]?.y ?? 0) + 4, group.length ? axisText(group) : "");
  });
}

function axisText(group) {
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const figures = [...new Set(group.map(({ tokens }) => short.format(tokens)))];
  return `${figures[0]} ${group.map(({ name }) => name).filter((name) => name).join(", ")}`.trim();
}

// corners returns the points at which the line of the low (0) or high (1) level bends.
function corners({ level, from, to }, side) {
  const [start, rate] = side === 0 ? [level.low, level.slow] : [level.high, level.fast];
  const full = level.at + (level.capacity - start) / rate;
  const times = from < full && full < to ? [from, full, to] : [from, to];
  return times.map((t) => [t, level.range(t)[side]]);
}

function path(id, d) {
  $(id).setAttribute("d", d);
}

function place(element, x, y, text) {
  element.setAttribute("x", x.toFixed(1));
  element.setAttribute("y", y.toFixed(1));
  set(element, text);
}

// animate draws 25 times a second, since the chart moves by only a few pixels a second.
// It draws twice a second if the user prefers reduced motion.
function animate() {
  lookIfAsleep();
  draw();
  setTimeout(() => requestAnimationFrame(animate), calm.matches ? 500 : 40);
}

// The monotonic clock of a browser may stand still while the machine sleeps. Then the
// wall clock moves ahead of it, and the level has risen unnoticed: the page looks again.
// If the wall clock was only set, the look does no harm.
const lead = () => Date.now() / 1000 - seconds();
let lastLead = lead();

function lookIfAsleep() {
  if (Math.abs(lead() - lastLead) > 1) {
    lastLead = lead();
    look();
  }
}

// Other clients may use the same bucket, so the page looks each second while it is visible.
function lookEachSecond() {
  if (!document.hidden && pending === 0) {
    look();
    listClients();
  }
  setTimeout(lookEachSecond, 1000);
}

// listClients shows the most limited clients, if the gateway lists them.
async function listClients() {
  if (!$("clients")) {
    return;
  }
  try {
    const answer = await fetch("/clients", { cache: "no-store", signal: AbortSignal.timeout(10_000) });
    const clients = await answer.json();
    $("nobody").hidden = clients.length > 0;
    $("clients").replaceChildren(...clients.map(({ client, tokens, full }) => fill("client", {
      ".name": client, ".left": tokens.toFixed(1), ".wait": duration(Math.ceil(full)),
    })));
  } catch {
    // look reports the error
  }
}

for (const action of actions) {
  action.button.addEventListener("click", () => send(action));
  action.button.addEventListener("keydown", (press) => press.repeat && press.preventDefault()); // a key held down sends one request
}
addEventListener("focus", look);
addEventListener("online", look);
lookEachSecond();
animate();
