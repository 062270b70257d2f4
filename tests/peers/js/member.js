// A member of a group on kafkajs, as tests/clients/member.py is one: KIND BOOTSTRAP TOPIC GROUP.
//
// It has one assignor, so KIND says nothing. A TOPIC that begins with ^ is a pattern, which kafkajs looks at once, when
// it subscribes. A SIGTERM makes it leave.
const { Kafka, logLevel } = require('kafkajs')

const [, , , bootstrap, topic, groupId] = process.argv
const sessionTimeout = Number(process.env.DRAY_TEST_SESSION_MS || 6000)
const tell = (said) => process.stdout.write(JSON.stringify(said) + '\n')

const kafka = new Kafka({
  clientId: 'member',
  brokers: bootstrap.split(','),
  retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 1000 },
  logLevel: logLevel.ERROR,
  logCreator: () => ({ log }) => process.stderr.write(log.message + '\n'),
})
const consumer = kafka.consumer({
  groupId,
  sessionTimeout,
  rebalanceTimeout: 30000,
  heartbeatInterval: Math.floor(sessionTimeout / 8),
  maxWaitTimeInMs: 200,
  metadataMaxAge: 1000,
})

consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  const assigned = Object.entries(payload.memberAssignment)
    .flatMap(([name, numbers]) => numbers.map((number) => [name, number]))
  tell({ assigned })
})
consumer.on(consumer.events.REBALANCING, () => tell({ assigned: [] }))
// kafkajs ends a consumer whose commit is refused because it was silent for too long: whoever uses it begins again.
consumer.on(consumer.events.CRASH, ({ payload }) => {
  tell({ assigned: [] })
  if (!payload.restart) setTimeout(begin, 100)
})
process.on('SIGTERM', async () => {
  await consumer.disconnect()
  process.exit(0)
})

async function main() {
  await consumer.connect()
  await consumer.subscribe({ topic: topic.startsWith('^') ? new RegExp(topic) : topic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
      for (const { offset } of batch.messages) {
        if (!isRunning() || isStale()) return
        const next = (BigInt(offset) + 1n).toString()
        await consumer.commitOffsets([{ topic: batch.topic, partition: batch.partition, offset: next }])
        resolveOffset(offset)
        tell({ read: [batch.topic, batch.partition, Number(offset)] })
        await heartbeat()
      }
    },
  })
}

function begin() {
  main().catch((error) => {
    console.error(error)
    process.exit(1)
  })
}

begin()
