// What comes from the service, as data and as text. Nothing here or in page.js makes markup of a text.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

/** Write characters that turn or hide text by their number. */
export const visible = (text) =>
  String(text ?? "")
    .replace(/\r\n/g, "\n")
    .replace(HIDDEN, (found) => `⟨U+${found.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

const find = (path) => new URL(path, location.origin + location.pathname); // without a password that stands in the address

/** Return the address of the file of a source: of a PDF its page, of text the sentence that states the answer. */
export function linkTo(source) {
  const path = source.path.split("/").map(encodeURIComponent).join("/");
  const sentence = source.supports ? `#:~:text=${encodeURIComponent(source.supports).replaceAll("-", "%2D")}` : "";
  return find(`v1/documents/${path}${/\.pdf$/i.test(path) ? (source.page ? `#page=${source.page}` : "") : sentence}`);
}

/** Fetch JSON; null if there is none. */
export async function get(path) {
  const response = await fetch(find(path), { redirect: "error" }).catch(() => null);
  return response?.ok ? response.json().catch(() => null) : null;
}

/** Send JSON; an error says what is to be told. */
export async function post(path, body, signal) {
  const address = find(path);
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal, redirect: "error" };
  const response = await fetch(address, options).catch(() => {
    throw new Error("The service does not answer. It may have stopped, or the connection is down.");
  });
  if (response.ok) return response;
  if (response.status === 401) throw new Error("The service asks for another token. Reload this page.");
  const told = (await response.json().catch(() => ({}))).error?.message ?? `The service answered with status ${response.status}`;
  const after = response.headers.get("Retry-After");
  throw new Error(`${told[0].toUpperCase()}${told.slice(1)}.${after ? ` Try again in ${after} s.` : ""}`);
}

/** Give the chunks of a stream as they come. */
export async function* readChunks(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch(() => ({ done: true }));
    if (done) throw new Error("The connection broke off before the answer was complete.");
    const events = (rest + value).split(/\r?\n\r?\n/);
    rest = events.pop();
    for (const event of events) {
      const lines = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
      if (!lines.length) continue; // a sign of life
      const data = lines.map((line) => line.slice(5).trimStart()).join("\n");
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

/** Split a text into pieces, each with whether it is the answer: as whole words, else wherever it stands. */
export function splitAt(text, answer) {
  const words = visible(answer).trim();
  if (!words) return [[text, false]];
  const pattern = words.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&").replace(/\s+/g, "\\s+");
  const whole = new RegExp(`(?<![\\p{L}\\p{N}])(${pattern})(?![\\p{L}\\p{N}])`, "giu");
  const found = whole.test(text) ? whole : new RegExp(`(${pattern})`, "giu");
  return text.split(found).map((piece, place) => [piece, place % 2 === 1]).filter(([piece]) => piece);
}
