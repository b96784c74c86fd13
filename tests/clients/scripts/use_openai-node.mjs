// The official JavaScript client of OpenAI: models, a question both ways, JSON, and what is refused.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { VERSION } from "openai/version";
import { z } from "zod";

const served = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL: served.base_url, apiKey: served.token, maxRetries: 0 });
const { answer } = served;
const asked = { model: "searcher", messages: [{ role: "user", content: served.question }] };
const reply = zodResponseFormat(z.object({ answer: z.string() }), "reply");
const person = zodResponseFormat(z.object({ name: z.string(), age: z.number() }), "person");
const chat = client.chat.completions;

assert.deepEqual((await client.models.list()).data.map((model) => model.id), ["searcher"]);
const whole = await chat.create(asked);
assert.equal(whole.choices[0].message.content, answer);
assert.ok(whole.slmsearch.sources.length > 0);
let text = "";
for await (const chunk of await chat.create({ ...asked, stream: true })) text += chunk.choices[0]?.delta?.content ?? "";
assert.equal(text, answer);
assert.equal((await chat.stream(asked).finalChatCompletion()).choices[0].message.content, answer);
assert.equal((await chat.create({ ...asked, model: null, n: 1, tools: [{ type: "function", function: { name: "f" } }], tool_choice: "none" })).choices.length, 1);
assert.deepEqual((await chat.parse({ ...asked, response_format: reply })).choices[0].message.parsed, { answer });
assert.deepEqual((await chat.stream({ ...asked, response_format: reply }).finalChatCompletion()).choices[0].message.parsed, { answer });

const endpoint = /POST \/v1\/chat\/completions/;
await assert.rejects(chat.parse({ ...asked, response_format: person }), { status: 400, param: "response_format", message: /'name'/ });
await assert.rejects(chat.create({ ...asked, messages: [] }), { status: 400, param: "messages" });
await assert.rejects(client.models.retrieve("gpt"), { status: 404, code: "model_not_found" });
await assert.rejects(client.responses.create({ model: "searcher", input: "?" }), { status: 404, message: endpoint });
await assert.rejects(client.completions.create({ model: "searcher", prompt: "?" }), { status: 404, message: endpoint });
await assert.rejects(client.withOptions({ apiKey: "wrong" }).models.list(), { status: 401, code: "invalid_api_key" });
console.log("openai-node", VERSION);
