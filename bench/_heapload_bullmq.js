// The load of bench/_heapload.py for BullMQ: as many producers and workers, one process, the same figures.
//
//     node _heapload_bullmq.js HOST:PORT SECONDS
const {Queue, Worker} = require("bullmq");

const PRODUCERS = 64, WORKERS = 64, WAITING = 1000, BODY_BYTES = 1024;
const [address, seconds] = process.argv.slice(2);
const [host, port] = address.split(":");
const connection = {host, port: Number(port), maxRetriesPerRequest: null};
const name = `jobs-${process.pid}-${Date.now()}`;
const begun = new Map(), enqueues = [], deliveries = [], waiters = [];
let put = 0, taken = 0, acked = 0, ended = false, allAcked;

const now = () => Number(process.hrtime.bigint()) / 1e6;
const room = () => new Promise((resolve) => waiters.push(resolve));

async function produce(queue, began) {
  for (;;) {
    while (put - taken >= WAITING) await room();
    const at = now();
    if (at - began >= seconds * 1000) return;
    const key = String(put++).padStart(10, "0");
    begun.set(key, at);
    await queue.add("cycle", key.padEnd(BODY_BYTES, "x"));
    enqueues.push(now() - at);
  }
}

async function cycle(job) {
  const key = job.data.slice(0, 10);
  if (!begun.has(key) || job.data.length !== BODY_BYTES) throw new Error("a message that was never put");
  deliveries.push(now() - begun.get(key));
  begun.delete(key);
  taken++;
  if (put - taken < WAITING) for (const go of waiters.splice(0)) go();
}

function quantiles(what, found) {
  found.sort((a, b) => a - b);
  const of = (part) => found[Math.floor((found.length * part) / 100)];
  return {[`${what} p50 ms`]: of(50), [`${what} p95 ms`]: of(95)};
}

(async () => {
  const queue = new Queue(name, {connection, defaultJobOptions: {removeOnComplete: true}});
  const worker = new Worker(name, cycle, {connection, concurrency: WORKERS, removeOnComplete: {count: 0}});
  worker.on("failed", (job, error) => { console.error(error); process.exit(1); });
  worker.on("completed", () => { acked++; if (ended && acked >= put) allAcked(); });
  await Promise.all([queue.waitUntilReady(), worker.waitUntilReady()]);
  const cpu = process.cpuUsage(), began = now();
  await Promise.all(Array.from({length: PRODUCERS}, () => produce(queue, began)));
  ended = true;
  if (acked < put) await new Promise((resolve) => { allAcked = resolve; });
  const spent = now() - began, used = process.cpuUsage(cpu);
  console.log(JSON.stringify({
    "cycles/s": (acked / spent) * 1000, "client CPU us/cycle": (used.user + used.system) / acked,
    ...quantiles("enqueue", enqueues), ...quantiles("pop", deliveries), cycles: acked,
  }));
  await worker.close();
  await queue.obliterate({force: true});
  await queue.close();
  process.exit(0);
})();
