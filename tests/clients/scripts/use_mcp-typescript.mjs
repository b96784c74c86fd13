// The official TypeScript SDK of MCP over HTTP: every list and every tool; nothing it asks for in the background is an error.
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const served = JSON.parse(process.argv[2]);
const requestInit = { headers: { Authorization: `Bearer ${served.token}` } };
const statuses = [];
const watched = async (...request) => {
  const response = await fetch(...request);
  statuses.push(`${request[1]?.method} ${response.status}`);
  return response;
};
const client = new Client({ name: "test", version: "1" });
const errors = [];
client.onerror = (error) => errors.push(error.message);
await client.connect(new StreamableHTTPClientTransport(new URL(served.mcp_url), { requestInit, fetch: watched }));

const call = async (name, args, onprogress) => {
  const result = await client.callTool({ name, arguments: args }, undefined, { timeout: 240_000, onprogress });
  assert.ok(!result.isError, JSON.stringify(result));
  return result.structuredContent;
};
assert.deepEqual((await client.listTools()).tools.map((tool) => tool.name), ["search_pages", "view_sections", "read_section", "ask"]);
assert.deepEqual((await client.listResources()).resources, []);
assert.deepEqual((await client.listResourceTemplates()).resourceTemplates, []);
assert.deepEqual((await client.listPrompts()).prompts, []);
assert.equal((await call("search_pages", { query: served.title })).pages[0].page_id, served.page_id);
const { sections } = await call("view_sections", { page_id: Number(served.page_id) });
assert.equal((await call("read_section", { section_id: sections[0].section_id })).title, served.title);
const steps = [];
assert.equal((await call("ask", { question: served.question }, (step) => steps.push(step.message))).answer, served.answer);
assert.ok(steps.length >= 2);
assert.deepEqual(errors, []);
assert.ok(statuses.includes("GET 405"), `the stream that a server may offer was refused: ${statuses}`);
await client.close();
console.log("mcp-typescript done");
