// The ad lab: state, one request at a time per part, and the picture of a page.
// Text from models and users is only ever set as text, never as markup.

const state = {
  model: null, query: "", pages: {a: [], b: []}, clicks: {a: [], b: []}, compare: false,
  texts: Object.create(null), bids: Object.create(null), reserve: 0, lambda: 0, objective: "clicks", slots: 4,
};
// `model`: the name and the version that gave the predictions of the pages
// `ads`: the pairs of the query; `others`: other ads that can be put on its page
const answers = {a: null, b: null, ads: [], others: [], models: [], model: null, comparison: null, outcomes: {}};
// The ad in the form. From the first key it is on the page and in the state, under the name `ad`, which is
// null before. `original` is the ad that it stands in for, null where it is new; `before` is the text that
// `original` had, null where that is an ad of the model.
let draft = {ad: null, original: null, before: null};
let token = sessionStorage.getItem("reclick-token") || "";

const $ = (id) => document.getElementById(id);
const percent = (x) => (x < 0.0995 ? (100 * x).toFixed(1) : (100 * x).toFixed(0)) + "\u00a0%";
// Three decimals, or two digits of a number that they would make 0.00…
const short = (x) => { const size = Math.abs(x); return size >= 10 ? x.toFixed(1) : size >= 0.01 || size < 1e-6 ? x.toFixed(3) : x.toPrecision(2); };

// ---- elements

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, run] of Object.entries(value)) made.addEventListener(event, run);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

function drawing(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function interval(low, mean, high, name) {
  const at = (x) => 100 * Math.min(1, Math.max(0, x));
  const svg = drawing("svg", {class: "interval", viewBox: "0 0 100 10", preserveAspectRatio: "none",
    role: "img", "aria-label": `${name} ${percent(mean)}, ${percent(low)} to ${percent(high)}`});
  svg.append(
    drawing("rect", {class: "track", x: 0, y: 4, width: 100, height: 2}),
    drawing("rect", {class: "range", x: at(low), y: 2, width: Math.max(1, at(high) - at(low)), height: 6}),
    drawing("rect", {class: "mean", x: Math.max(0, at(mean) - 1), y: 0, width: 2, height: 10}));
  return svg;
}

function say(text) { $("message").textContent = text; }

// ---- requests

const running = {};

async function ask(part, path, body) {
  // The last request of a part wins: earlier ones are given up.
  running[part]?.abort();
  const control = new AbortController();
  running[part] = control;
  const headers = {"content-type": "application/json"};
  if (token) headers.authorization = `Bearer ${token}`;
  let response;
  try {
    // Below the address of this page, which a proxy may serve under a prefix.
    response = await fetch(new URL(path.slice(1), document.baseURI), {method: body ? "POST" : "GET", headers, signal: control.signal,
      body: body ? JSON.stringify(body) : undefined});
  } catch (error) {
    if (error.name !== "AbortError") say("The service cannot be reached.");
    return null;
  }
  if (response.status === 401) {
    if (headers.authorization) say("That token is not the service's. Enter the one that it was started with.");
    $("token-form").hidden = false;
    $("token").focus();
    return null;
  }
  const content = await response.json().catch(() => null);
  if (!response.ok) return {problem: content?.message || `Error ${response.status}`};
  if (content?.version) followVersion(content);
  return content;
}

const QUIET = 2000; // milliseconds: replicas with different versions must not make the page ask without end
let refreshed = 0;

// A model was replaced while the page was open: read the list of models again, and ask for everything.
async function followVersion({model, version}) {
  const listed = answers.models.find((each) => each.name === model);
  if (!listed || listed.version === version || Date.now() - refreshed < QUIET) return;
  refreshed = Date.now();
  const result = await ask("models", "/v1/models");
  if (!result?.models?.length) return;
  listModels(result.models);
  if (state.query) choose(state.query, {keep: true});
}

function listModels(models) {
  answers.models = models;
  $("model").replaceChildren(...models.map((each) => element("option", {value: each.name, selected: each.name === state.model}, `${each.name} (${each.type})`)));
}

const newTexts = (ads) => ads.filter((ad) => state.texts[ad]).map((ad) => ({ad, ...state.texts[ad]}));
const asPage = (name) => ({query: state.query, ads: state.pages[name], clicks: state.clicks[name]});

// ---- the query and its ads

let matches = [], selected = -1;

async function suggest() {
  const prefix = $("query").value;
  const result = await ask("queries", `/v1/queries?limit=10&prefix=${encodeURIComponent(prefix)}` +
    (state.model ? `&model=${encodeURIComponent(state.model)}` : ""));
  if (!result || result.problem) return;
  matches = result.queries;
  selected = -1;
  const list = $("queries");
  list.replaceChildren(...matches.map((match, i) => element("li", {role: "option", id: `match-${i}`,
    "aria-selected": "false", on: {mousedown: (event) => { event.preventDefault(); choose(match.query, {listed: true}); }}},
    element("span", {}, match.query), element("span", {class: "note"}, Math.round(match.sessions).toLocaleString("en")))));
  open(matches.length > 0 && document.activeElement === $("query"));
}

function open(yes) {
  $("queries").hidden = !yes;
  $("query").setAttribute("aria-expanded", String(yes));
  if (!yes) $("query").removeAttribute("aria-activedescendant");
}

function move(step) {
  if (!matches.length) return;
  open(true);
  selected = (selected + step + matches.length) % matches.length;
  for (const [i, item] of [...$("queries").children].entries()) {
    item.setAttribute("aria-selected", String(i === selected));
    if (i === selected) item.scrollIntoView({block: "nearest"});
  }
  $("query").setAttribute("aria-activedescendant", `match-${selected}`);
}

// `keep`: the pages stay; `listed`: the query is from the list, so the model knows it.
async function choose(query, {keep = false, listed = false} = {}) {
  open(false);
  const before = listAds().map((row) => row.ad);
  $("query").value = query;
  state.query = query;
  answers.a = answers.b = null;
  if (listed) emptyPages();  // the ads of the query before are gone at once
  showPage("a");
  showPage("b");
  const result = await ask("ads", "/v1/relevance", {query, model: state.model});
  if (!result) return;
  answers.ads = result.problem ? [] : result.pairs;
  answers.others = [];
  const unknown = !answers.ads.length;
  $("query-note").textContent = result.problem || (unknown ? "The model has not seen this query: " +
    `${state.pages.a.length ? "the page stays, and " : ""}it answers from what it knows of the ads and their words.` : "");
  if (!keep && !unknown) {
    emptyPages();
    state.pages.a = answers.ads.slice(0, 4).map((row) => row.ad);
    if (state.compare) state.pages.b = [...state.pages.a];
    moveDraft();
  }
  showAds();
  changed();
  listOthers(unknown ? before : []);
  if (explained) explain(explained);
}

function emptyPages() {
  state.pages = {a: [], b: []};
  state.clicks = {a: [], b: []};
  state.bids = Object.create(null);
}

const listAds = () => [...answers.ads, ...answers.others];

// Ask about the ads of the pages and those written here, which are not among the query's own.
async function listOthers(more = []) {
  const own = new Set(answers.ads.map((row) => row.ad));
  const ads = [...new Set([...state.pages.a, ...state.pages.b, ...Object.keys(state.texts), ...more])].filter((ad) => !own.has(ad)).slice(0, 200);
  let pairs = [];
  if (ads.length && state.query) {
    const result = await ask("others", "/v1/relevance", {pairs: ads.map((ad) => ({query: state.query, ad})), model: state.model, text: newTexts(ads)});
    if (!result) return;
    pairs = result.pairs ?? [];
  }
  if (!pairs.length && !answers.others.length) return;
  answers.others = pairs;
  showAds();
  showPage("a");
  showPage("b");
}

// Put an ad that the model knows from other queries on page A.
async function addKnown(event) {
  event.preventDefault();
  const ad = $("known-ad").value.trim(), say = (text) => { $("known-note").textContent = text; };
  if (!ad || !state.query) return;
  const result = await ask("known", "/v1/explain", {query: state.query, ad, model: state.model});
  if (!result) return;
  if (result.problem) { say(result.problem); return; }
  if (!result.known_ad && !state.texts[ad]) { say(`The model knows no ad “${ad}”. Write it as a new one.`); return; }
  if (state.pages.a.includes(ad)) { say(`${ad} is on page A already.`); return; }
  say("");
  $("known-ad").value = "";
  add("a", ad);
  listOthers(answers.others.map((row) => row.ad));
}

function showAds() {
  $("ads").tBodies[0].replaceChildren(...listAds().slice(0, 400).map((row) => element("tr", {draggable: "true",
    on: {dragstart: (event) => event.dataTransfer.setData("text/plain", JSON.stringify({ad: row.ad}))}},
    element("th", {scope: "row"}, row.ad, element("span", {class: "words"}, row.words || ""),
      element("span", {class: "use"}, useButton("a", row.ad), state.compare ? useButton("b", row.ad) : null,
        element("button", {type: "button", "aria-label": `why ${row.ad}`, on: {click: () => showWhy(row.ad)}}, "why"))),
    element("td", {}, percent(row.attractiveness), interval(row.attractiveness_low, row.attractiveness, row.attractiveness_high, "attractiveness")),
    element("td", {}, ...(row.satisfaction == null ? ["–"] : [percent(row.satisfaction),
      interval(row.satisfaction_low, row.satisfaction, row.satisfaction_high, "satisfaction")])),
    element("td", {class: "number"}, Math.round(row.impressions).toLocaleString("en")))));
}

function useButton(name, ad) {
  return element("button", {type: "button", "aria-label": `add ${ad} to page ${name.toUpperCase()}`,
    on: {click: () => add(name, ad)}}, `+ ${name.toUpperCase()}`);
}

// ---- the pages

function add(name, ad, at = state.pages[name].length) {
  if (state.pages[name].includes(ad)) { say(`${ad} is on page ${name.toUpperCase()} already.`); return; }
  state.pages[name].splice(at, 0, ad);
  state.clicks[name] = [];
  changed();
}

function shift(name, from, to) {
  const page = state.pages[name];
  if (to < 0 || to >= page.length) return;
  page.splice(to, 0, ...page.splice(from, 1));
  state.clicks[name] = [];
  changed();
  $(`page-${name}`).querySelectorAll(".slot")[to]?.querySelector("button")?.focus();
}

function remove(name, i) {
  state.pages[name].splice(i, 1);
  state.clicks[name] = [];
  if (draft.ad !== null && !isOnPage(draft.ad)) clearForm();
  changed();
}

function click(name, i) {
  const position = i + 1, clicks = state.clicks[name];
  state.clicks[name] = clicks.includes(position) ? clicks.filter((each) => each !== position) : [...clicks, position];
  changed();
}

function showPage(name) {
  const article = $(`page-${name}`), answer = answers[name], ads = state.pages[name];
  const title = element("h2", {id: `page-${name}-title`}, `Page ${name.toUpperCase()}`);
  if (!ads.length) {
    article.replaceChildren(title, element("p", {class: "note"}, "No ads yet: drag some here, add them with + in the list, or write one."));
    return;
  }
  const list = element("ol", {class: "slots"});
  ads.forEach((ad, i) => list.append(showSlot(name, ad, i, answer)));
  const focus = findFocus(article);
  article.replaceChildren(title, list, ...showSummary(name, answer));
  if (focus) list.children[focus.slot]?.querySelectorAll("button")[focus.button]?.focus();
  if (answer) drawArrows(name, list, answer);
}

// Which button of which slot has the focus, so that it has it again when the page was drawn anew.
function findFocus(article) {
  const slots = [...article.querySelectorAll(".slot")], slot = slots.findIndex((each) => each.contains(document.activeElement));
  if (slot < 0) return null;
  return {slot, button: [...slots[slot].querySelectorAll("button")].indexOf(document.activeElement)};
}

// From 0 to 5: how much of the highest probability of the pages shown a position has.
function heatOf(probability) {
  const shown = [answers.a, state.compare ? answers.b : null].flatMap((answer) => answer?.click_prob ?? []);
  return Math.round(5 * Math.sqrt(probability / Math.max(...shown, 1e-9)));
}

function showSlot(name, ad, i, answer) {
  const probability = answer?.click_prob[i], clicks = state.clicks[name], order = clicks.indexOf(i + 1);
  const heat = probability == null ? 0 : heatOf(probability);
  const label = `${ad}, position ${i + 1}`;
  const slot = element("li", {class: `slot heat${heat}${order >= 0 ? " clicked" : ""}${ad === draft.ad ? " draft" : ""}`, draggable: "true", on: {
    dragstart: (event) => event.dataTransfer.setData("text/plain", JSON.stringify({name, i})),
    dragover: (event) => { event.preventDefault(); slot.classList.add("over"); },
    dragleave: () => slot.classList.remove("over"),
    drop: (event) => { event.preventDefault(); event.stopPropagation(); drop(name, i, event.dataTransfer.getData("text/plain")); },
    keydown: (event) => {
      const step = {ArrowUp: -1, ArrowDown: 1}[event.key];
      if (step && event.altKey) { event.preventDefault(); shift(name, i, i + step); }
    }}},
    element("header", {}, element("span", {}, `${i + 1}. ${state.texts[ad]?.title || ad}`),
      element("span", {class: "probability"}, probability == null ? "…" : percent(probability))),
    element("p", {}, describe(ad)),
    element("div", {class: "bar"},
      slotButton("↑", `move ${label} up`, () => shift(name, i, i - 1), i === 0),
      slotButton("↓", `move ${label} down`, () => shift(name, i, i + 1), i === state.pages[name].length - 1),
      element("button", {type: "button", "aria-pressed": String(order >= 0), "aria-label": `click ${label}`,
        on: {click: () => click(name, i)}}, order >= 0 ? `clicked (${order + 1})` : "click"),
      slotButton("edit", `edit ${label}`, () => edit(ad)),
      slotButton("why", `why ${label}`, () => showWhy(ad)),
      slotButton("✕", `remove ${label}`, () => remove(name, i))));
  return slot;
}

function slotButton(text, label, run, disabled = false) {
  return element("button", {type: "button", "aria-label": label, disabled, on: {click: run}}, text);
}

const wordsOf = (ad) => listAds().find((row) => row.ad === ad)?.words || "";

function describe(ad) {
  const text = state.texts[ad];
  if (!text) return wordsOf(ad);
  return [text.description, text.display_url].filter(Boolean).join(" · ") || ad;
}

function drop(name, at, data) {
  let from;
  try { from = JSON.parse(data); } catch { return; }
  if (typeof from?.ad === "string" && listAds().some((row) => row.ad === from.ad)) { add(name, from.ad, at); return; }
  if (!(from?.name in state.pages) || !Number.isInteger(from.i)) return;
  const ad = state.pages[from.name][from.i];
  if (ad === undefined) return;
  if (from.name === name) shift(name, from.i, Math.min(at, state.pages[name].length - 1));
  else add(name, ad, at);
}

function showSummary(name, answer) {
  if (!answer) return [];
  const none = answer.sequences.find((each) => each.clicks.length === 0);
  const tiles = element("dl", {class: "tiles"},
    tile("Expected clicks", short(answer.expected_clicks), "per session"),
    tile("No click", none ? percent(none.probability) : "–", "of sessions"),
    tile("Satisfied", answer.satisfaction_prob == null ? "–" : percent(answer.satisfaction_prob),
      answer.satisfaction_prob == null ? "not in this model" : "of sessions"));
  const last = state.clicks[name].at(-1);
  const after = last ? `After ${state.clicks[name].join(" → ")}: the session ends with ${percent(answer.end_prob)}. Arrows: where the next click goes.`
    : "Arrows: where the first click goes. Choose “click” at an ad to see what comes after it.";
  const legend = element("p", {class: "note legend"}, "clicked rarely", ...[0, 1, 2, 3, 4, 5].map((heat) => element("i", {class: `heat${heat}`})), "often");
  return [element("p", {class: "note"}, after), legend, tiles, element("h3", {}, "Likeliest click paths"), showPaths(answer.sequences)];
}

function tile(name, value, about) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, value, element("small", {}, about)));
}

function showPaths(sequences) {
  const most = Math.max(...sequences.map((each) => each.probability), 1e-9);
  return element("ol", {class: "paths"}, ...sequences.map((each) => {
    const bar = drawing("svg", {viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true"},
      drawing("rect", {x: 0, y: 0, height: 10, width: (100 * each.probability / most).toFixed(1)}));
    const clicks = each.clicks.length ? `position ${each.clicks.join(" → ")}` : "no click";
    return element("li", {}, element("span", {}, clicks), element("span", {}, percent(each.probability)), bar);
  }));
}

function drawArrows(name, list, answer) {
  const slots = [...list.querySelectorAll(".slot")];
  const middle = (i) => slots[i].offsetTop + slots[i].offsetHeight / 2;
  const last = state.clicks[name].at(-1), start = last ? middle(last - 1) : 4;
  const svg = drawing("svg", {class: "arrows", "aria-hidden": "true"}), labels = [];
  svg.append(drawing("circle", {cx: 45, cy: start, r: 4}));
  slots.forEach((slot, i) => {
    const probability = answer.next_click_prob[i];
    if (!(probability >= 0.002) || last === i + 1) return; // also none, where the answer is of a shorter page
    const end = middle(i), bend = Math.max(0, 30 - 6 * i), width = Math.max(1.2, 8 * Math.sqrt(probability)), head = 5 + width / 2;
    svg.append(
      drawing("path", {d: `M 45 ${start} C ${bend} ${start}, ${bend} ${end}, ${50 - head} ${end}`, "stroke-width": width.toFixed(1), opacity: ".75"}),
      drawing("polygon", {points: `${50 - head},${end - head} 51,${end} ${50 - head},${end + head}`}));
    const label = drawing("text", {x: 0, y: end + head + 12});
    label.textContent = percent(probability);
    labels.push(label);
  });
  svg.append(...labels);  // over all arrows
  list.prepend(svg);
}

// ---- writing ads

// A word has these signs between digits only, or not at all.
const SIGN_OF_URL = /(^|[^\p{Nd}])[.,/:]|[.,/:]([^\p{Nd}]|$)|[-?&=#~+@]/u;

// The text whose words are those of an ad that the model knows: the last of them is its display URL.
function textOf(ad) {
  const words = wordsOf(ad).split(" "), url = words.findIndex((word) => SIGN_OF_URL.test(word));
  const end = url < 0 ? words.length : url;
  return {title: words.slice(0, end).join(" "), description: "", display_url: words.slice(end).join(" ")};
}

const isOnPage = (ad) => state.pages.a.includes(ad) || state.pages.b.includes(ad);
const known = new Set(); // names that a model answered to know

function isTaken(ad) {
  return ad in state.texts || isOnPage(ad) || known.has(ad) || answers.ads.some((row) => row.ad === ad);
}

function findFreeName(base) {
  let name = base;
  for (let i = 2; isTaken(name); i++) name = `${base} ${i}`;
  return name;
}

function edit(ad) {
  const form = $("new-ad"), own = state.texts[ad];
  if (draft.ad !== ad) { // what was written before stays where it is
    draft = own ? {ad, original: ad, before: own} : {ad: null, original: ad, before: null};
    fillForm(own ? ad : findFreeName(`${ad} (edited)`), own || textOf(ad));
  }
  form.title.focus();
}

function fillForm(name, text) {
  const form = $("new-ad"), {ad, original, before} = draft;
  form.ad.value = name;
  for (const field of ["title", "description", "display_url"]) form[field].value = text[field];
  $("new-ad-title").textContent = original === null ? "Write an ad" : `Edit ${original}`;
  $("save-ad").textContent = original === null ? "Add to page A" : "Replace on page";
  $("cancel-edit").hidden = ad === null && original === null;
  $("text-note").textContent = original === null ? "The page shows it from the first key on. The model answers from its words."
    : before ? "The page follows as you type."
    : "The model keeps the words of an ad, not its text: the title has them all. Edited, it is a new ad, without the clicks of the old one.";
  showNameProblem();
  showDraft();
}

function clearForm() {
  draft = {ad: null, original: null, before: null};
  fillForm(findFreeName("my ad"), {title: "", description: "", display_url: ""});
}

// What the model says of the ad in the form, beside the form: on a phone the page is out of sight.
function showDraft() {
  const names = ["a", "b"].filter((name) => draft.ad !== null && state.pages[name].includes(draft.ad) && (name === "a" || state.compare));
  $("draft-note").textContent = names.map((name) => {
    const i = state.pages[name].indexOf(draft.ad), probability = answers[name]?.click_prob[i];
    return `Page ${name.toUpperCase()}, position ${i + 1}: ${probability == null ? "…" : percent(probability)} of sessions click it.`;
  }).join(" ");
}

function readForm() {
  const form = $("new-ad");
  return {title: form.title.value, description: form.description.value, display_url: form.display_url.value};
}

// The name in the form where it is free or the draft's own; otherwise null, and the form says why.
function readName() {
  const name = $("new-ad").ad.value.trim(), free = name !== "" && (name === draft.ad || !isTaken(name));
  showNameProblem(free ? "" : name ? `There is an ad “${name}” already. Give this one another name.` : "Give the ad a name.");
  return free ? name : null;
}

function showNameProblem(text = "") {
  $("name-problem").textContent = text;
  $("new-ad").ad.setAttribute("aria-invalid", String(text !== ""));
}

// Ask whether the model knows an ad of the name in the form: it would answer from its clicks, not from the text.
async function checkName() {
  const ad = $("new-ad").ad.value.trim();
  if (!ad || ad === draft.ad || isTaken(ad) || !state.query) return;
  const result = await ask("name", "/v1/explain", {query: state.query, ad, model: state.model});
  if (result?.known_ad) known.add(ad);
}

// Put what the form says on the page.
function write(name) {
  const ad = name ?? draft.ad ?? findFreeName("my ad");
  if (draft.ad === null) replace(draft.original, ad);
  else if (draft.ad !== ad) rename(draft.ad, ad);
  draft.ad = ad;
  state.texts[ad] = readForm();
  if (!isOnPage(ad)) state.pages.a.push(ad);
  $("cancel-edit").hidden = false;
  changed();
}

// Put an ad in the place of another on both pages.
function replace(old, ad) {
  for (const name of ["a", "b"]) state.pages[name] = state.pages[name].map((each) => (each === old ? ad : each));
  if (old !== null && old in state.bids) state.bids[ad] = state.bids[old];
}

function rename(old, ad) {
  replace(old, ad);
  delete state.texts[old];
  delete state.bids[old];
}

async function typed(event) {
  if (event.target.name === "ad") {
    await checkName();
    const name = readName();
    if (draft.ad !== null && name !== null) write(name);
    return;
  }
  const empty = Object.values(readForm()).every((text) => !text.trim());
  if (!empty || draft.original !== null) write(readName());
  else if (draft.ad !== null) {
    takeBack();
    draft.ad = null;
    $("cancel-edit").hidden = true;
    changed();
  }
}

// The pages as they were before the draft.
function takeBack() {
  const {ad, original, before} = draft;
  if (before) {
    if (ad !== original) rename(ad, original);
    state.texts[original] = before;
    return;
  }
  for (const name of ["a", "b"]) {
    const page = state.pages[name], back = original !== null && !page.includes(original);
    state.pages[name] = back ? page.map((each) => (each === ad ? original : each)) : page.filter((each) => each !== ad);
    if (state.pages[name].length < page.length) state.clicks[name] = [];
  }
  delete state.texts[ad];
  delete state.bids[ad];
}

function cancelEdit() {
  const {ad} = draft;
  if (draft.ad !== null) takeBack();
  clearForm();
  changed();
  listOthers(answers.others.map((row) => row.ad).filter((each) => each !== ad));
}

// A query brought its own ads to the pages: the draft is put beside them, as a new ad.
function moveDraft() {
  const {ad, original, before} = draft;
  if (ad === null) { clearForm(); return; }
  state.pages.a.push(ad);
  if (original === null || before) return;
  draft.original = null;
  fillForm(ad, readForm());
}

async function saveAd(event) {
  event.preventDefault();
  await checkName();
  const name = readName();
  if (name === null) { $("new-ad").ad.focus(); return; }
  write(name);
  if (draft.original === null) clearForm();
  else {
    draft = {ad: name, original: name, before: state.texts[name]};
    fillForm(name, draft.before);
  }
  explain(name);
  listOthers(answers.others.map((row) => row.ad));
}

// ---- why

let explained = null;  // the ad that is explained, again when the query or the model changes

async function showWhy(ad) {
  await explain(ad);
  $("why").scrollIntoView({block: "nearest"});
}

async function explain(ad) {
  explained = ad;
  const result = await ask("why", "/v1/explain", {query: state.query, ad, model: state.model, text: newTexts([ad])});
  if (!result) return;
  if (result.problem) { $("why-note").textContent = result.problem; return; }
  $("why-note").textContent = `${ad}: attractiveness ${percent(result.attractiveness)} (${percent(result.low)} to ${percent(result.high)}), ` +
    `${Math.round(result.clicks).toLocaleString("en")} clicks of ${Math.round(result.impressions).toLocaleString("en")} impressions for “${state.query}”.`;
  $("levels").replaceChildren(...result.levels.map((each) => element("li", {}, `${each.level}: ${percent(each.attractiveness)}`)));
  const effects = result.words.filter((each) => Math.abs(each.factor - 1) > 0.005);
  $("words").replaceChildren(...(effects.length ? effects.slice(0, 20).map((each) => element("li",
    {class: each.factor > 1 ? "helps" : "hurts"}, `${each.word} × ${each.factor.toFixed(2)}`))
    : [element("li", {}, result.words.length ? "its words make no difference to this model" : "no text of this ad")]));
}

// ---- best order and auction

async function rank() {
  const ads = state.pages.a;
  if (!ads.length) return;
  const value = Object.fromEntries(ads.map((ad) => [ad, bidOf(ad)]));
  const body = {query: state.query, ads, slots: Math.min(state.slots, ads.length), objective: state.objective,
    model: state.model, text: newTexts(ads)};
  if (state.objective === "value") body.value = value;
  const result = await ask("rank", "/v1/rank", body);
  if (!result) return;
  if (result.problem) { $("rank-note").textContent = result.problem; return; }
  const dropped = ads.filter((ad) => !result.ads.includes(ad));
  state.pages.a = result.ads;
  state.clicks.a = [];
  $("rank-note").textContent = `Best of all orders${result.exact ? " (exact)" : ""}.` + (dropped.length ? ` Left out: ${dropped.join(", ")}.` : "");
  changed();
}

const bidOf = (ad) => state.bids[ad] ?? 1;

function showBids() {
  const box = $("bids"), ads = [...new Set([...state.pages.a])];
  const now = [...box.querySelectorAll("input")].map((input) => input.dataset.ad).join("\n");
  if (now === ads.join("\n")) return;
  box.replaceChildren(...ads.flatMap((ad, i) => [
    element("label", {for: `bid-${i}`}, ad),
    element("input", {id: `bid-${i}`, type: "number", min: 0, step: 0.1, value: bidOf(ad), "data-ad": ad,
      on: {input: (event) => { const bid = Number(event.target.value); if (bid >= 0) { state.bids[ad] = bid; refreshSoon(); } }}})]));
}

const NAMES = {gsp: "GSP: each pays what keeps its rank", vcg: "VCG: each pays what it takes from the others"};

async function runAuctions() {
  const ads = state.pages.a;
  if (!ads.length) { $("outcomes").replaceChildren(); return; }
  const bids = Object.fromEntries(ads.map((ad) => [ad, bidOf(ad)]));
  const outcomes = await Promise.all(Object.keys(NAMES).map((mechanism) => ask(`auction-${mechanism}`, "/v1/auction",
    {query: state.query, bids, slots: state.slots, mechanism, reserve: state.reserve,
      satisfaction_weight: mechanism === "vcg" ? state.lambda : 0, model: state.model, text: newTexts(ads)})));
  if (outcomes.some((each) => each == null)) return;
  Object.keys(NAMES).forEach((mechanism, i) => { answers.outcomes[mechanism] = outcomes[i]; });
  $("outcomes").replaceChildren(...Object.keys(NAMES).map((mechanism, i) => showOutcome(NAMES[mechanism], outcomes[i])));
}

function showOutcome(name, outcome) {
  if (outcome.problem) return element("div", {}, element("h3", {}, name), element("p", {}, outcome.problem));
  const rows = outcome.slots.flatMap((slot, i) => [
    element("tr", {}, element("th", {scope: "row"}, `${i + 1}. ${slot.ad}`), element("td", {class: "number"}, bidOf(slot.ad).toFixed(2)),
      element("td", {class: "number"}, short(slot.price_per_click)), element("td", {class: "number"}, short(slot.expected_clicks))),
    element("tr", {class: "reason"}, element("td", {colspan: 4}, ...explainPrice(slot, outcome.slots[i + 1])))]);
  const table = element("table", {}, element("thead", {}, element("tr", {}, element("th", {scope: "col"}, "Ad"),
    ...["Bid", "Price per click", "Clicks"].map((each) => element("th", {scope: "col", class: "number"}, each)))), element("tbody", {}, ...rows));
  const satisfied = outcome.satisfaction == null ? "" : `, satisfied ${percent(outcome.satisfaction)}`;
  const excluded = Object.entries(outcome.excluded).map(([ad, why]) => ` ${ad} takes no part: ${why}.`).join("");
  return element("div", {}, element("h3", {}, name), element("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": name}, table),
    element("p", {class: "note"}, `Revenue ${short(outcome.revenue)}, value of the clicks to the advertisers ${short(outcome.welfare)}${satisfied}, per session.${excluded}`));
}

// Why an ad pays its price: in a sentence, or as the sum that it is.
function explainPrice(slot, next) {
  if (slot.because === "reserve") return ["It pays the reserve."];
  if (slot.because === "next rank") return [next ? `The lowest bid that keeps it above ${next.ad}.` : "The lowest bid that keeps its place."];
  if (slot.because !== "displaced clicks") return [slot.why];
  const total = slot.price_per_click * slot.expected_clicks, least = Math.max(1e-6, Math.abs(total) / 100);
  const parts = slot.displaced.filter((each) => Math.abs(each.value) >= least).sort((a, b) => b.value - a.value).map((each) => (each.value > 0
    ? `Without its bid, ${each.ad} would have ${short(each.clicks)} clicks more, worth ${short(each.value)}.`
    : `It brings ${each.ad} ${short(-each.clicks)} clicks, worth ${short(-each.value)}, which it need not pay.`));
  if (Math.abs(slot.at_reserve) >= least) parts.push(`At the reserve it would pay ${short(slot.at_reserve)}.`);
  if (Math.abs(slot.satisfaction) >= least) {
    parts.push(slot.satisfaction > 0 ? `It costs satisfied sessions worth ${short(slot.satisfaction)}.` : `It brings satisfied sessions worth ${short(-slot.satisfaction)}, which it need not pay.`);
  }
  return [element("ul", {class: "parts"}, ...[...parts, `Together ${short(total)} per session, for ${short(slot.expected_clicks)} clicks: ${short(slot.price_per_click)} per click.`].map((each) => element("li", {}, each)))];
}

// ---- everything that follows from the state

const refreshSoon = debounce(() => { remember(); refreshTools(); }, 120);
const changed = debounce(() => { remember(); showBids(); refreshPages(); refreshTools(); }, 10);

async function refreshPages() {
  const names = state.compare ? ["a", "b"] : ["a"];
  $("page-b").hidden = !state.compare;
  $("page-pair").classList.toggle("two", state.compare);
  document.body.classList.toggle("comparing", state.compare);
  names.forEach(showPage);
  const pageNames = names.filter((name) => state.pages[name].length);
  names.filter((name) => !state.pages[name].length).forEach((name) => { answers[name] = null; showPage(name); });
  if (pageNames.length && state.query) {
    const result = await ask("predict", "/v1/predict", {pages: pageNames.map(asPage), top: 5, model: state.model,
      text: newTexts([...new Set(pageNames.flatMap((name) => state.pages[name]))])});
    if (!result) return;
    say(result.problem || "");
    if (!result.problem) {
      pageNames.forEach((name, i) => { answers[name] = result.pages[i]; });
      answers.model = {name: result.model, version: result.version};
    }
    names.forEach(showPage);
  }
  showDraft();
  refreshComparison();
  refreshModels();
}

async function refreshComparison() {
  const box = $("comparison"), both = state.compare && state.pages.a.length && state.pages.b.length;
  if (!both || !box.querySelector("tbody").rows.length) box.hidden = true; // until there is an answer
  if (!both) return;
  const plain = (name) => ({query: state.query, ads: state.pages[name]});
  const result = await ask("compare", "/v1/compare", {old: [plain("a")], new: [plain("b")], model: state.model,
    text: newTexts([...new Set([...state.pages.a, ...state.pages.b])])});
  if (!result) return;
  if (result.problem) { box.hidden = true; say(result.problem); return; }
  box.hidden = false;
  answers.comparison = result.comparisons;
  box.querySelector("tbody").replaceChildren(...result.comparisons.map((each) => element("tr", {},
    element("th", {scope: "row"}, each.quantity), element("td", {class: "number"}, short(each.old)),
    element("td", {class: "number"}, short(each.new)),
    element("td", {class: "number wide"}, `${signed(each.change)} [${signed(each.low)}, ${signed(each.high)}]`), verdict(each))));
}

function verdict({low, high}) {
  if (low > 0) return element("td", {class: "better"}, "B is better");
  if (high < 0) return element("td", {class: "worse"}, "B is worse");
  return element("td", {}, "not clear");
}

const signed = (x) => (x >= 0 ? "+" : "−") + Math.abs(x).toFixed(3);

const DIFFERENT = 1.1; // a probability this many times another is marked

async function refreshModels() {
  const box = $("models-differ"), pages = (state.compare ? ["a", "b"] : ["a"]).filter((name) => state.pages[name].length);
  box.hidden = answers.models.length < 2 || !pages.length || !state.query;
  if (box.hidden) return;
  const ads = pages.map((name) => state.pages[name]);
  const result = await Promise.all(answers.models.map((model) => ask(`model-${model.name}`, "/v1/predict",
    {pages: ads.map((each) => ({query: state.query, ads: each})), top: 0, model: model.name, text: newTexts([...new Set(ads.flat())])})));
  if (result.some((each) => each == null)) return;
  const current = result[answers.models.findIndex((each) => each.name === state.model)];
  $("models-tables").replaceChildren(...pages.map((name, k) => showModels(name, k, result, current)));
}

function showModels(name, k, result, current) {
  const title = `Page ${name.toUpperCase()}`, ads = state.pages[name];
  const rows = result.map((each, i) => element("tr", {}, element("th", {scope: "row"}, answers.models[i].name),
    ...(each.problem ? [element("td", {colspan: ads.length + 1}, each.problem)]
      : [...each.pages[k].click_prob.map((p, j) => differenceCell(p, current?.pages?.[k].click_prob[j], percent)),
        differenceCell(each.pages[k].expected_clicks, current?.pages?.[k].expected_clicks, short)])));
  return element("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": `Models on page ${name.toUpperCase()}`},
    element("table", {}, element("caption", {}, title), element("thead", {}, element("tr", {}, element("th", {scope: "col"}, "Model"),
      ...ads.map((_, i) => element("th", {scope: "col", class: "number"}, String(i + 1))), element("th", {scope: "col", class: "number"}, "Clicks"))),
    element("tbody", {}, ...rows)));
}

function differenceCell(value, usual, write) {
  const sign = !(usual > 0) ? 0 : value > DIFFERENT * usual ? 1 : value < usual / DIFFERENT ? -1 : 0;
  if (!sign) return element("td", {class: "number"}, write(value));
  const mark = element("span", {role: "img", "aria-label": sign > 0 ? "more" : "less"}, sign > 0 ? "▲" : "▼");
  return element("td", {class: `number ${sign > 0 ? "better" : "worse"}`}, write(value), " ", mark);
}

function refreshTools() {
  const largest = Math.max(...state.pages.a.map(bidOf)) || 1;
  setSlider("reserve", largest, 2);
  setSlider("lambda", 4 * largest, 1);
  runAuctions();
}

// A slider ends at `end`, or at its value where that is larger, and has at most 60 steps of 1, 2 or 5 times a power of ten.
function setSlider(name, end, digits) {
  const slider = $(name), value = state[name], most = Math.max(end, value), power = 10 ** Math.floor(Math.log10(most / 60));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= most / 60 * 0.999);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  slider.step = step.toFixed(decimals);
  slider.max = (step * Math.ceil(most / step - 1e-9)).toFixed(decimals);
  slider.value = value;
  $(`${name}-out`).textContent = value.toFixed(Math.max(digits, decimals));
}

// ---- links and files

function encodeState() {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function remember() { history.replaceState(null, "", `#${encodeState()}`); }

const isText = (value) => typeof value === "string" && value.length < 20000;
const isTexts = (value) => Array.isArray(value) && value.length <= 100 && value.every(isText);

function restore(hash) {
  let saved;
  try {
    const text = atob(hash.replaceAll("-", "+").replaceAll("_", "/"));
    saved = JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (each) => each.charCodeAt(0))));
  } catch { return false; }
  if (saved === null || typeof saved !== "object" || !isText(saved.query)) return false;
  state.query = saved.query;
  state.model = isText(saved.model) ? saved.model : null;
  state.compare = saved.compare === true;
  for (const name of ["a", "b"]) {
    state.pages[name] = isTexts(saved.pages?.[name]) ? [...new Set(saved.pages[name])] : [];
    const clicks = saved.clicks?.[name];
    const possible = (each) => Number.isInteger(each) && each >= 1 && each <= state.pages[name].length;
    state.clicks[name] = Array.isArray(clicks) ? [...new Set(clicks.filter(possible))] : [];
  }
  for (const [ad, text] of Object.entries(saved.texts || {})) {
    if (["title", "description", "display_url"].every((field) => isText(text?.[field]))) {
      state.texts[ad] = {title: text.title, description: text.description, display_url: text.display_url};
    }
  }
  for (const [ad, bid] of Object.entries(saved.bids || {})) if (bid >= 0 && bid < 1e9) state.bids[ad] = bid;
  for (const field of ["reserve", "lambda"]) if (saved[field] >= 0 && saved[field] < 1e9) state[field] = saved[field];
  if (["clicks", "satisfaction", "value"].includes(saved.objective)) state.objective = saved.objective;
  if (Number.isInteger(saved.slots) && saved.slots >= 1 && saved.slots <= 10) state.slots = saved.slots;
  return true;
}

function download(name, content, type) {
  const link = element("a", {href: URL.createObjectURL(content instanceof Blob ? content : new Blob([content], {type})), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function exportJson() {
  const {a, b, model, comparison, outcomes} = answers;
  download("page.json", JSON.stringify({state, model, predictions: {a, b: state.compare ? b : null},
    comparison, auctions: outcomes}, null, 2), "application/json");
}

function quote(value) {
  // A spreadsheet takes = + - @ at the start of a cell for a formula.
  const text = String(value), safe = /^[=+\-@\t\r]/.test(text) && typeof value === "string" ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function exportCsv() {
  const price = (mechanism, ad) => answers.outcomes[mechanism]?.slots?.find((slot) => slot.ad === ad)?.price_per_click ?? "";
  const rows = [["page", "position", "ad", "click_prob", "next_click_prob", "bid", "gsp_price", "vcg_price"]];
  for (const name of state.compare ? ["a", "b"] : ["a"]) {
    state.pages[name].forEach((ad, i) => rows.push([name.toUpperCase(), i + 1, ad,
      answers[name]?.click_prob[i] ?? "", answers[name]?.next_click_prob[i] ?? "",
      ...(name === "a" ? [bidOf(ad), price("gsp", ad), price("vcg", ad)] : ["", "", ""])]));
  }
  download("page.csv", rows.map((row) => row.map(quote).join(",")).join("\r\n") + "\r\n", "text/csv");
}

function exportPng() {
  const names = state.compare ? ["a", "b"] : ["a"], scale = 2, width = 600, longest = Math.max(...names.map((name) => state.pages[name].length));
  const height = 150 + 74 * longest;
  const canvas = element("canvas", {width: names.length * width * scale, height: height * scale});
  const pen = canvas.getContext("2d"), colours = getComputedStyle(document.documentElement);
  const colour = (name) => colours.getPropertyValue(`--${name}`).trim();
  pen.scale(scale, scale);
  pen.fillStyle = colour("paper"); pen.fillRect(0, 0, names.length * width, height);
  pen.fillStyle = colour("ink"); pen.font = "600 20px serif"; paintText(pen, state.query, 20, 36, names.length * width - 40);
  names.forEach((name, k) => paintPage(pen, colour, name, k * width, width));
  pen.fillStyle = colour("muted"); pen.font = "13px sans-serif";
  pen.fillText(answers.model ? `${answers.model.name} ${answers.model.version}` : "", 20, height - 16);
  canvas.toBlob((blob) => download("page.png", blob), "image/png");
}

// A text in one line, shortened to the width.
function paintText(pen, text, x, y, width) {
  if (pen.measureText(text).width > width) {
    const letters = [...text];
    let low = 0, end = letters.length;
    while (end - low > 1) {
      const middle = (low + end) >> 1;
      if (pen.measureText(`${letters.slice(0, middle).join("")}…`).width > width) end = middle; else low = middle;
    }
    text = `${letters.slice(0, low).join("").trimEnd()}…`;
  }
  pen.fillText(text, x, y);
}

function paintPage(pen, colour, name, left, width) {
  const ads = state.pages[name], answer = answers[name];
  pen.fillStyle = colour("ink"); pen.font = "600 15px serif"; pen.fillText(`Page ${name.toUpperCase()}`, left + 20, 62);
  ads.forEach((ad, i) => {
    const top = 74 + 74 * i, probability = answer?.click_prob[i] ?? 0;
    pen.fillStyle = colour(`h${heatOf(probability)}`); pen.fillRect(left + 20, top, width - 40, 64);
    pen.fillStyle = colour("ink"); pen.font = "600 15px sans-serif";
    paintText(pen, `${i + 1}. ${state.texts[ad]?.title || ad}`, left + 32, top + 26, width - 160);
    pen.textAlign = "right"; pen.fillText(percent(probability), left + width - 32, top + 26); pen.textAlign = "left";
    pen.font = "13px sans-serif"; paintText(pen, describe(ad), left + 32, top + 48, width - 64);
  });
  const satisfied = answer?.satisfaction_prob == null ? "" : `, ${percent(answer.satisfaction_prob)} satisfied`;
  pen.font = "13px sans-serif";
  pen.fillText(`${short(answer?.expected_clicks ?? 0)} clicks per session${satisfied}`, left + 20, 96 + 74 * ads.length);
}

function debounce(run, wait) {
  let timer;
  return (...given) => { clearTimeout(timer); timer = setTimeout(() => run(...given), wait); };
}

// ---- start

function connect() {
  for (const name of ["a", "b"]) {
    const page = $(`page-${name}`);
    page.addEventListener("dragover", (event) => { event.preventDefault(); page.classList.add("over"); });
    page.addEventListener("dragleave", () => page.classList.remove("over"));
    page.addEventListener("drop", (event) => {
      event.preventDefault();
      page.classList.remove("over");
      drop(name, state.pages[name].length, event.dataTransfer.getData("text/plain"));
    });
  }
  const suggestSoon = debounce(suggest, 80);
  $("query").addEventListener("input", suggestSoon);
  $("query").addEventListener("focus", suggestSoon);
  $("query").addEventListener("blur", () => open(false));
  $("query").addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") { event.preventDefault(); move(1); }
    else if (event.key === "ArrowUp") { event.preventDefault(); move(-1); }
    else if (event.key === "Escape") open(false);
    else if (event.key === "Enter") { event.preventDefault(); const text = selected >= 0 ? matches[selected].query : $("query").value.trim(); if (text) choose(text, {listed: selected >= 0}); }
  });
  $("model").addEventListener("change", () => { state.model = $("model").value; choose(state.query, {keep: true}); });
  $("compare").addEventListener("change", () => {
    state.compare = $("compare").checked;
    if (state.compare && !state.pages.b.length) state.pages.b = [...state.pages.a];
    showAds();
    changed();
  });
  $("new-ad").addEventListener("submit", saveAd);
  $("new-ad").addEventListener("input", debounce(typed, 150));
  $("cancel-edit").addEventListener("click", cancelEdit);
  $("add-known").addEventListener("submit", addKnown);
  $("rank").addEventListener("click", rank);
  $("objective").addEventListener("change", () => { state.objective = $("objective").value; remember(); });
  $("slots").addEventListener("input", () => { const slots = Number($("slots").value); if (Number.isInteger(slots) && slots >= 1 && slots <= 10) { state.slots = slots; refreshSoon(); } });
  $("reserve").addEventListener("input", () => { state.reserve = Number($("reserve").value); refreshSoon(); });
  $("lambda").addEventListener("input", () => { state.lambda = Number($("lambda").value); refreshSoon(); });
  $("export-json").addEventListener("click", exportJson);
  $("export-csv").addEventListener("click", exportCsv);
  $("export-png").addEventListener("click", exportPng);
  $("share").addEventListener("click", async () => {
    remember();
    try { await navigator.clipboard.writeText(location.href); say("The link is in the clipboard."); }
    catch { say("Copy the address of this page: it holds everything."); }
  });
  $("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("token").value.trim();
    if (!/^[\x21-\x7e]+$/.test(text)) { say("A token has letters, digits and signs of ASCII, and no spaces."); return; }
    token = text;
    say("");
    sessionStorage.setItem("reclick-token", token);
    $("token-form").hidden = true;
    start();
  });
  addEventListener("resize", debounce(() => ["a", "b"].forEach((name) => answers[name] && showPage(name)), 150));
}

async function start() {
  const result = await ask("models", "/v1/models");
  if (!result) return;
  if (result.problem || !result.models.length) { say(result.problem || "No model is loaded yet."); setTimeout(start, 1000); return; }
  const restored = location.hash.length > 1 && restore(location.hash.slice(1));
  clearForm(); // with a name that the link has not
  const usual = result.models.find((each) => each.default) || result.models[0];
  if (!result.models.some((each) => each.name === state.model)) state.model = usual.name;
  listModels(result.models);
  $("compare").checked = state.compare;
  $("objective").value = state.objective;
  $("slots").value = state.slots;
  if (restored) { await choose(state.query, {keep: true}); return; }
  say("Reading the queries of the model…");  // a large one takes a while after it was loaded
  const first = await ask("first", `/v1/queries?limit=1&model=${encodeURIComponent(state.model)}`);
  say(first?.problem || "");
  if (first?.queries?.length) choose(first.queries[0].query, {listed: true});
}

connect();
start();
