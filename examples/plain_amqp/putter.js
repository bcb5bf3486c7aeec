// Put jobs with plain amqplib: nothing here comes from rabbitdelay.
//
//   node putter.js TOPIC DELAY_MS [COUNT]

const { randomBytes, randomUUID } = require("node:crypto");
const amqp = require("amqplib");

const URL = process.env.RABBITDELAY_URL ?? "amqp://localhost";
const PREFIX = `${process.env.RABBITDELAY_NAMESPACE ?? "rabbitdelay"}.v1.`;

const [SECOND, MINUTE, HOUR, DAY] = [1_000, 60_000, 3_600_000, 86_400_000];
const LEVELS = ["y", "mo", "d", "h", "m", "s", "ds", "cs"];
const UNITS_MS = [360 * DAY, 30 * DAY, DAY, HOUR, MINUTE, SECOND, 100, 10];
const MAX_DELAY_MS = 3288 * DAY;

// Write a delay as eight digits, rounded up to its grain: a job is never early.
function digits(delayMs) {
  if (!(delayMs >= 0 && delayMs <= MAX_DELAY_MS)) {
    throw new RangeError(`a delay is 0 to ${MAX_DELAY_MS} ms, not ${delayMs}`);
  }
  const grain = delayMs < MINUTE ? 10 : delayMs < HOUR ? 100 : SECOND;
  let rest = Math.ceil(delayMs / grain) * grain;
  return UNITS_MS.map((unit) => {
    const digit = Math.floor(rest / unit);
    rest %= unit;
    return digit;
  });
}

// Enter at the level of the first digit that is not 0; without a delay, at ready.
function entryExchange(delayDigits) {
  const level = LEVELS[delayDigits.findIndex((digit) => digit > 0)];
  return level ? `${PREFIX}level.${level}` : `${PREFIX}ready`;
}

// Describe a job that is put now. Never set `expiration`: the hold queues do the waiting.
function newJob(delayMs) {
  const nowMs = Date.now();
  return {
    persistent: true,
    mandatory: true,
    messageId: randomUUID(),
    contentType: "application/json",
    timestamp: Math.floor(nowMs / 1000),
    headers: {
      "rd-version": 1,
      "rd-put": nowMs,
      "rd-due": nowMs + delayMs,
      "rd-ttr": 60_000,
      "rd-token": randomBytes(8).toString("hex"),
    },
  };
}

// Put jobs, and print the id of each when the broker has confirmed it.
async function main(topic, delayMs, count) {
  const delayDigits = digits(delayMs);
  const routingKey = [...delayDigits, topic].join(".");
  const connection = await amqp.connect(URL);
  const channel = await connection.createConfirmChannel();
  channel.on("return", () => { throw new Error("the namespace has lost its queue `unrouted`"); });
  await channel.checkQueue(`${PREFIX}ready.${topic}`); // an error when it is missing
  for (let number = 0; number < count; number++) {
    const job = newJob(delayMs);
    const body = Buffer.from(JSON.stringify({ number }));
    channel.publish(entryExchange(delayDigits), routingKey, body, job, (error) => {
      if (error) throw error;
      console.log(job.messageId);
    });
  }
  await channel.waitForConfirms();
  await connection.close();
}

module.exports = { digits };
if (require.main === module) {
  const [topic, delayMs, count = 1] = process.argv.slice(2);
  main(topic, Number(delayMs), Number(count));
}
