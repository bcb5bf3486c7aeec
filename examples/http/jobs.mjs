// Put, delete and work through jobs over HTTP. Needs Node.js 18 or later.
//
//   node jobs.mjs put TOPIC DELAY BODY ID
//   node jobs.mjs delete ID
//   node jobs.mjs work TOPIC [COUNT]

import { setTimeout as sleep } from "node:timers/promises";

const GATEWAY = process.env.RABBITDELAY_GATEWAY ?? "http://localhost:8437";
const TOKEN = process.env.RABBITDELAY_TOKEN;
const WAIT_SECONDS = Number(process.env.RABBITDELAY_WAIT ?? 20);
const REPEATED = [202, 429, 502, 503, 504]; // 202: whether the job was put is not known
const GIVE_UP_SECONDS = 60;

const headers = { "Content-Type": "application/json" };
if (TOKEN) headers.Authorization = `Bearer ${TOKEN}`;

// Send a request once. Return its status and answer, and the seconds before it may be repeated.
async function send(method, path, body, waitSeconds) {
  try {
    const response = await fetch(GATEWAY + path, {
      method,
      headers,
      body: body && JSON.stringify(body),
      signal: AbortSignal.timeout(1000 * (waitSeconds + 10)), // longer than the long poll
    });
    const text = await response.text();
    const isJson = /[/+]json/.test(response.headers.get("Content-Type"));
    const pause = Number(response.headers.get("Retry-After")) || 1;
    return { status: response.status, answer: isJson ? JSON.parse(text) : text, pause };
  } catch (error) {
    return { status: 0, answer: error.cause?.message ?? error.message, pause: 1 };
  }
}

// Send a request, and repeat it while the gateway or its broker is away.
async function call(method, path, body, waitSeconds = 0) {
  const deadline = Date.now() + 1000 * GIVE_UP_SECONDS;
  while (true) {
    const response = await send(method, path, body, waitSeconds);
    const { status, answer, pause } = response;
    if (status !== 0 && !REPEATED.includes(status)) return response;
    const problem = `${method} ${path}: ${status || answer}`;
    if (Date.now() + 1000 * pause > deadline) throw new Error(problem);
    console.error(`${problem}; repeating in ${pause} s`);
    await sleep(1000 * pause);
  }
}

// Return the answer to a request that must succeed.
function succeeded({ status, answer }) {
  if (status >= 300) throw new Error(`${status}: ${answer.detail ?? answer}`);
  return answer;
}

// Put a job. A repeated request replaces the job that the first one put, so it is never put twice.
async function put(topic, delay, body, id) {
  succeeded(await call("PUT", `/v1/jobs/${encodeURIComponent(id)}`, { topic, delay, body }));
}

async function remove(id) {
  succeeded(await call("DELETE", `/v1/jobs/${encodeURIComponent(id)}`));
}

// Handle `count` jobs of a topic, one after the other.
async function work(topic, count) {
  while (count > 0) {
    const asked = { topics: topic, wait: WAIT_SECONDS };
    const response = await call("POST", "/v1/pop", asked, WAIT_SECONDS);
    if (response.status === 204) {
      console.error("no job came");
      continue;
    }
    for (const job of succeeded(response).jobs) {
      await settle(job);
      count--;
    }
  }
}

// Handle a job, then finish it, or release it for another attempt if the handler fails.
async function settle({ lease, ...job }) {
  let verb = "finish";
  try {
    await handle(job);
  } catch (error) {
    console.error(`job ${job.id} failed: ${error.message}`);
    verb = "release";
  }
  const response = await call("POST", `/v1/${verb}`, { lease });
  if (response.status === 409) { // its ttr is over: it was handed to another consumer, or will be
    console.error(`job ${job.id}: lease lost`);
    return;
  }
  succeeded(response);
}

// A job may come twice. What happens here must have the same effect then: the id tells.
async function handle({ id, body, attempt }) {
  if (body?.order === undefined) throw new Error("the body has no order");
  console.log(`${id}: close order ${body.order} (attempt ${attempt})`);
}

const [command, ...args] = process.argv.slice(2);
switch (command) {
  case "put": await put(args[0], args[1], JSON.parse(args[2]), args[3]); break;
  case "delete": await remove(args[0]); break;
  case "work": await work(args[0], Number(args[1] ?? Infinity)); break;
  default: throw new Error("usage: node jobs.mjs put|delete|work …");
}
