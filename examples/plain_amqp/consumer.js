// Consume jobs with plain amqplib. Does not use rabbitdelay.
//
//   node consumer.js TOPIC COUNT

const amqp = require("amqplib");

const URL = process.env.RABBITDELAY_URL ?? "amqp://localhost";
const PREFIX = `${process.env.RABBITDELAY_NAMESPACE ?? "rabbitdelay"}.v1.`;
const MAX_ATTEMPTS = 5;

// Return the job in a message, with defaults for missing fields, or throw.
function read(topic, { properties, content }) {
  const integer = (name, fallback) => {
    const value = properties.headers?.[name] ?? fallback;
    if (!Number.isInteger(value)) throw new TypeError(`${name} is not an integer`);
    return value;
  };
  if (integer("rd-version", 1) !== 1) throw new Error("this consumer is too old for the message");
  const isJson = properties.contentType === "application/json";
  return {
    id: properties.messageId,
    topic,
    attempt: integer("rd-attempt", 1),
    max_attempts: integer("rd-max-attempts", MAX_ATTEMPTS),
    lateness_ms: Math.max(0, Date.now() - integer("rd-due", Date.now())),
    body: isJson ? JSON.parse(content) : content.toString(),
  };
}

// Return the headers for putting a job again, without those that the broker added.
function freshHeaders(headers, attempt, delayS) {
  const kept = Object.entries(headers ?? {}).filter(([name]) => !name.startsWith("x-"));
  const dueMs = Number(headers?.["rd-due"] ?? Date.now()); // the putter's clock, not ours
  const dates = { "rd-due": dueMs + delayS * 1000, "rd-known": headers?.["rd-known"] ?? dueMs };
  return { ...Object.fromEntries(kept), "rd-attempt": attempt, ...dates };
}

// Handle one job, put it again with a confirm if it fails, then settle the message.
async function work(channel, topic, message, handle) {
  let job;
  try {
    job = read(topic, message);
    await handle(job);
  } catch (error) {
    console.error(`job ${message.properties.messageId} failed:`, error);
    if (!job || job.attempt >= job.max_attempts) {
      return channel.nack(message, false, false); // buries the job
    }
    const delayS = Math.min(job.attempt ** 2, 59);
    const headers = freshHeaders(message.properties.headers, job.attempt + 1, delayS);
    const copy = { ...message.properties, headers, persistent: true, mandatory: true };
    const key = `0.0.0.0.0.${delayS}.0.0.${topic}`;
    channel.publish(`${PREFIX}level.s`, key, message.content, copy);
    await channel.waitForConfirms();
  }
  channel.ack(message);
}

// Consume jobs from a topic's ready queue, one at a time, until `count` are settled.
async function consume(topic, count, handle) {
  const connection = await amqp.connect(URL);
  const channel = await connection.createConfirmChannel();
  await channel.prefetch(1); // number of jobs in flight at once
  let settled = 0;
  await channel.consume(`${PREFIX}ready.${topic}`, async (message) => {
    await work(channel, topic, message, handle);
    if (++settled === count) await channel.close().then(() => connection.close());
  });
}

module.exports = { consume };
if (require.main === module) {
  const [topic, count] = process.argv.slice(2);
  consume(topic, Number(count), (job) => console.log(JSON.stringify(job)));
}
