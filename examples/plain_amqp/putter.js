// Put jobs with plain amqplib. Does not use rabbitdelay.
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

// Return a delay as eight digits, rounded up to its grain so that a job is never early.
function digits(delayMs) {
  if (!(delayMs >= 0 && delayMs <= MAX_DELAY_MS)) {
    throw new RangeError(`a delay must be from 0 to ${MAX_DELAY_MS} ms, not ${delayMs}`);
  }
  const grain = delayMs < MINUTE ? 10 : delayMs < HOUR ? 100 : SECOND;
  let rest = Math.ceil(delayMs / grain) * grain;
  return UNITS_MS.map((unit) => {
    const digit = Math.floor(rest / unit);
    rest %= unit;
    return digit;
  });
}

// Return the exchange of the first non-zero digit's level, or ready without a delay.
function entryExchange(delayDigits) {
  const level = LEVELS[delayDigits.findIndex((digit) => digit > 0)];
  return level ? `${PREFIX}level.${level}` : `${PREFIX}ready`;
}

// Return the properties of a new job. Never set `expiration`: the hold queues delay it.
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

// Put jobs, and print each id once the broker has confirmed the job.
async function main(topic, delayMs, count) {
  const delayDigits = digits(delayMs);
  const routingKey = [...delayDigits, topic].join(".");
  const connection = await amqp.connect(URL);
  const channel = await connection.createConfirmChannel();
  channel.on("return", () => { throw new Error("the job cannot be routed: the queue `unrouted` is missing"); });
  await channel.checkQueue(`${PREFIX}ready.${topic}`); // fails if it is missing
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
