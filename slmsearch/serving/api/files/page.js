import { get, linkTo, post, readChunks, splitAt, visible } from "./reply.js";

const KEY = "slmsearch.asked";
const MOST = 50;
const SESSION = `page-${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`; // of this page, until it is closed or loaded anew
const CALLS = {
  search_pages: "Searched for",
  view_sections: "Looked at the sections of",
  read_section: "Read",
  program: "Ran a program",
  malformed: "Wrote neither a call nor an answer",
};
const LONG = 120; // characters of an answer that is set as text, not as a headline
const byId = (id) => document.getElementById(id);
const make = (tag, text, name) => {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = visible(text);
  return node;
};
const show = (id, shown) => { byId(id).hidden = !shown; };
const tell = (text) => { byId("told").textContent = visible(text); };

const BOUNDS = { folder: "folder", file: "file", tag: "tag", since: "from", until: "to" }; // of the documents that a question may use

let shown = null; // the question on the page
let running = null; // what ends the question that is being answered

// Earlier questions

function load() {
  try {
    const held = JSON.parse(localStorage.getItem(KEY));
    return held.filter((one) => typeof one.question === "string" && Array.isArray(one.steps) && Array.isArray(one.sources));
  } catch {
    return []; // none, or not ours
  }
}

function keep(entry) {
  const held = [entry, ...load().filter((one) => one.id !== entry.id)].sort((a, b) => b.when - a.when).slice(0, MOST);
  while (held.length) {
    try {
      localStorage.setItem(KEY, JSON.stringify(held));
      break;
    } catch {
      held.pop(); // the browser keeps no more, or nothing
    }
  }
  list();
}

function list() {
  const held = load();
  byId("earlier").replaceChildren(...held.map((entry) => {
    const button = make("button");
    button.type = "button";
    const reply = make("span", undefined, "reply");
    if (entry.verdict) reply.append(make("span", entry.verdict === "right" ? "✓ right " : "✗ wrong ", entry.verdict));
    reply.append(visible(entry.answer ?? "no answer"));
    button.append(make("span", entry.question), reply);
    if (shown?.id === entry.id) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => {
      open(entry);
      byId("asked").focus();
    });
    const item = make("li");
    item.append(button);
    return item;
  }));
  show("clear", held.length);
  show("none", !held.length);
}

// The question on the page

function open(entry) {
  shown = entry;
  byId("asked").textContent = visible(entry.question);
  const within = boundsOf(entry.within ?? {});
  byId("within").textContent = visible(`Only documents with ${within.join(", ")}`);
  show("within", within.length);
  byId("steps").replaceChildren(...entry.steps.map(stepItem));
  for (const id of ["failed", "answered", "judged", "sourced"]) show(id, false);
  show("shown", true);
  byId("shown").setAttribute("aria-busy", String(!entry.done));
  if (entry.done) finish(entry);
  else byId("steps").append(make("li", "Searching …", "waits"));
  list();
}

const named = (step) => [CALLS[step.call] ?? `Called ${step.call}`, step.call === "program" || step.call === "malformed" ? "" : step.argument];

function stepItem(step) {
  const [what, of] = named(step);
  const item = make("li", undefined, step.served ? "" : "unserved");
  const summary = make("summary", `${what} `);
  summary.append(make("b", of));
  if (!step.served) summary.append(" ", make("em", "not possible"));
  const details = make("details");
  details.append(summary);
  if (!of && step.argument) details.append(make("pre", step.argument));
  details.append(make("pre", step.result || "Nothing came back."));
  item.append(details);
  return item;
}

function addStep(entry, step) {
  entry.steps.push(step);
  if (shown !== entry) return;
  byId("steps").lastChild.before(stepItem(step));
  tell(`Step ${entry.steps.length}: ${named(step).join(" ")}`);
}

function finish(entry) {
  byId("steps").querySelector(".waits")?.remove();
  if (!entry.steps.length) byId("steps").append(make("li", "None: it answered at once.", "waits-no-more"));
  show("failed", entry.failure);
  byId("failure").textContent = visible(entry.failure);
  byId("shown").setAttribute("aria-busy", "false");
  if (entry.failure) return;
  const answer = byId("answer");
  answer.textContent = visible(entry.nearest == null ? entry.answer ?? entry.said : entry.said);
  answer.className = entry.answer === null ? "none" : answer.textContent.length > LONG ? "long" : "";
  const steps = `${entry.steps.length} ${entry.steps.length === 1 ? "step" : "steps"}`;
  const doubt = entry.supported === false ? ["nothing that was read states it"] : [];
  const sure = entry.confidence == null ? [] : [`${Math.floor(100 * entry.confidence)} % sure`];
  byId("facts").textContent = visible([...sure, ...doubt, steps, `${Number(entry.seconds).toFixed(1)} s`, entry.version].join(" · "));
  byId("promise").textContent = visible(promised(entry.promise));
  show("promise", entry.promise);
  const stating = entry.sources.filter((source) => source.supports);
  const others = entry.sources.filter((source) => !source.supports);
  const apart = stating.length && others.length ? [make("h4", "Read, but does not state it")] : [];
  const found = entry.nearest ?? entry.answer;
  byId("sources").replaceChildren(...stating.map((source) => figure(source, found)), ...apart, ...others.map((source) => figure(source, found)));
  show("answered", true);
  show("sourced", entry.sources.length);
  askVerdict(entry);
}

function promised(promise) {
  if (!promise) return "";
  if (!promise.holds) return "No promise holds for this answer: the documents are not those that it was measured on.";
  return `Of the answers given here at most ${+(100 * promise.wrong_at_most).toFixed(1)} % are wrong, as measured on ${promise.n}.`;
}

function placeOf(source) {
  const place = make(source.path ? "a" : "span", source.path || source.section_id);
  if (source.path) Object.assign(place, { href: linkTo(source), target: "_blank", rel: "noopener" });
  const line = make("small");
  line.append(place, ...[source.page ? ` · page ${source.page}` : "", source.quoted ? " · quoted" : ""].filter(Boolean));
  return line;
}

function figure(source, answer) {
  const node = make("figure");
  const caption = make("figcaption");
  const names = [source.title, ...(source.under ?? []), source.heading].filter((name, place) => name && (!place || name !== source.title));
  caption.append(...names.flatMap((name) => [make("bdi", name), " "]), placeOf(source));
  const text = visible(source.text);
  const rest = text.replace(/^#+ +(.*)\n+/, (line, heading) => (heading.trim() === source.heading ? "" : line)); // the caption has it
  const quote = make("blockquote");
  quote.append(...splitAt(rest.trim() ? rest : text, answer ?? "").map(([piece, marked]) => (marked ? make("mark", piece) : piece)));
  node.append(caption, quote);
  return node;
}

// Which documents

const fields = () => [...byId("where").querySelectorAll("input")];
const bounds = () => Object.fromEntries(fields().map((field) => [field.name, field.value.trim()]).filter(([, value]) => value));
const boundsOf = (within) => Object.entries(BOUNDS).filter(([name]) => within[name]).map(([name, said]) => `${said} ${within[name]}`);

function showChips() {
  const chips = fields().filter((field) => field.value.trim()).map((field) => {
    const button = make("button", `${BOUNDS[field.name]} ${field.value.trim()} ×`, "chip");
    button.type = "button";
    button.setAttribute("aria-label", visible(`Remove ${BOUNDS[field.name]} ${field.value.trim()}`));
    button.addEventListener("click", () => {
      field.value = "";
      showChips();
      byId("question").focus();
    });
    return button;
  });
  byId("chips").replaceChildren(...chips);
  show("chips", chips.length);
}

async function ask(question, within) {
  running?.abort();
  const control = (running = new AbortController());
  const entry = { id: crypto.randomUUID?.() ?? String(Math.random()), when: Date.now(), question, within, steps: [], sources: [], answer: null, said: "" };
  open(entry);
  show("stop", true);
  tell("Searching");
  try {
    const messages = [{ role: "user", content: question }];
    const body = { model: "searcher", stream: true, messages, metadata: { session_id: SESSION, ...within } };
    for await (const chunk of readChunks(await post("v1/chat/completions", body, control.signal))) {
      if (chunk.error) throw new Error(chunk.error.message);
      entry.completion = chunk.id;
      entry.said += chunk.choices[0]?.delta.content ?? "";
      const { step, ...rest } = chunk.slmsearch ?? {};
      if (step) addStep(entry, step);
      Object.assign(entry, rest);
    }
  } catch (error) {
    entry.failure = control.signal.aborted ? "Stopped before it was answered." : error.message;
  }
  entry.done = true;
  if (running === control) {
    running = null;
    show("stop", false);
  }
  if (!entry.failure) keep(entry);
  if (shown === entry) finish(entry);
  tell(entry.failure ?? `Answer: ${entry.answer ?? entry.said}`);
  showDocuments();
}

// The documents

const ago = (seconds) => (seconds < 90 ? `${Math.round(seconds)} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`);

async function showDocuments() {
  const found = await get("v1/documents");
  if (!found?.folder) return;
  const lines = [`${found.pages} pages, as they were ${ago(found.age_s)} ago.`];
  if (found.withdrawn) lines.push(`${found.withdrawn} of them are withdrawn: their files are gone.`);
  if (found.held_back) lines.push(`An edit is held back: ${found.held_back.reasons.join("; ")}.`);
  if (found.skipped.length) lines.push(`Not read: ${found.skipped.map((file) => `${file.path} (${file.reason})`).join(", ")}.`);
  byId("documents").textContent = visible(lines.join(" "));
  show("documents", true);
}

// Right or wrong

function askVerdict(entry) {
  const holds = entry.sources.find((source) => splitAt(visible(source.text), entry.answer ?? "").some(([, marked]) => marked));
  const given = entry.verdict === "right" ? "✓ You called it right." : "✗ You called it wrong.";
  byId("thanks").textContent = entry.verdict ? visible(`${given}${entry.correct ? ` Correct: ${entry.correct}` : ""} Thank you.`) : "";
  show("verdicts", !entry.verdict);
  show("right", entry.answer !== null);
  openCorrection(false);
  show("judged", true);
  byId("correct").value = "";
  byId("source").replaceChildren(new Option("Not said", ""), ...entry.sources.map((source) => {
    const name = [source.title, source.heading].filter(Boolean).join(" › ");
    return new Option(visible(name), source.section_id);
  }));
  byId("right").onclick = () => send(entry, "right", undefined, holds?.section_id);
}

function openCorrection(opened) {
  show("correction", opened);
  byId("wrong").setAttribute("aria-expanded", String(opened));
}

async function send(entry, verdict, correct, source) {
  const { question, answer, completion } = entry;
  const body = { question, answer: answer === null ? null : [...answer].slice(0, 4000).join(""), verdict, correct_answer: correct, source, completion };
  const within = boundsOf(entry.within ?? {}).join(", ");
  if (within) body.within = within;
  try {
    await post("v1/feedback", body);
  } catch (error) {
    if (shown === entry) byId("thanks").textContent = visible(`Not sent. ${error.message}`);
    return;
  }
  Object.assign(entry, { verdict, correct });
  keep(entry);
  if (shown !== entry) return;
  askVerdict(entry);
  byId("asked").focus(); // the button that had it is gone
}

// Controls

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = byId("question").value.trim();
  if (!question) return;
  byId("question").value = "";
  ask(question, bounds());
});
byId("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("ask").requestSubmit();
});
byId("where").addEventListener("input", showChips);
byId("stop").addEventListener("click", () => {
  running?.abort();
  byId("question").focus();
});
byId("again").addEventListener("click", () => {
  byId("question").focus();
  ask(shown.question, shown.within);
});
byId("wrong").addEventListener("click", () => {
  openCorrection(byId("correction").hidden);
  if (!byId("correction").hidden) byId("correct").focus();
});
byId("cancel").addEventListener("click", () => {
  openCorrection(false);
  byId("wrong").focus();
});
byId("correction").addEventListener("submit", (event) => {
  event.preventDefault();
  send(shown, "wrong", byId("correct").value.trim() || undefined, byId("source").value || undefined);
});
byId("clear").addEventListener("click", () => {
  localStorage.removeItem(KEY);
  list();
  tell("Earlier questions cleared");
  byId("question").focus();
});
addEventListener("storage", list);
list();
showChips(); // a browser may give back what was written before a reload
showDocuments();
byId("question").focus(); // not by `autofocus`: after a reload the browser may have given it back already, and says so
